/** Dead jobs, grouped by what went wrong. */
import { call, can, now } from "./api.js";
import { orderAll } from "./bulk.js";
import { h } from "./dom.js";
import { count, fingerprint, plural } from "./format.js";
import { link } from "./router.js";
import { badge, button, empty, moment, queueLink, table } from "./widgets.js";

/** @typedef {any} Job */
/** @typedef {{key: string, queue: string, task: string, code: string, message: string, jobs: Job[], first: string, last: string}} Group */

const PAGE = 200;
/** Dead jobs read at first, and with each "Read more". */
const READ = 1000;
/** Seconds between two reads of one page; of more, SLOW for each page: at multiples of that, by all open dashboards at once, so that they share them. */
const REST = 10;
const SLOW = 20;
const SOONEST = 5;
/** Waiting jobs that are read: of more, it is not known which errors they have. */
const WAITING = 200;

/**
 * The causes of these jobs, and of the jobs that wait for another attempt.
 * @typedef {object} Found
 * @property {Group[]} groups
 * @property {boolean} isWhole whether all dead jobs were read
 * @property {Map<string, number> | null} waiting how many jobs wait, by the key of their group; null: not known
 */

/** @param {Job} job */
const keyOf = (job) => JSON.stringify([job.queue, job.task, job.last_error?.code ?? "unknown", fingerprint(job.last_error?.message ?? "")]);

/** @param {string} queue */
async function readWaiting(queue) {
  if (!can("POST", "/jobs/cancel")) return null;
  const answer = await call("GET", "jobs", { query: { state: ["scheduled", "queued"], queue, limit: WAITING } }).catch(() => null);
  if (!answer || answer.cursor) return null;
  /** @type {Map<string, number>} */
  const found = new Map();
  for (const job of answer.jobs) if (job.last_error) found.set(keyOf(job), (found.get(keyOf(job)) ?? 0) + 1);
  return found;
}

/**
 * @param {Job[]} jobs
 * @returns {Group[]} the largest first
 */
export function grouped(jobs) {
  /** @type {Map<string, Group>} */
  const groups = new Map();
  for (const job of jobs) {
    const { code, message } = job.last_error ?? { code: "unknown", message: "" };
    const key = keyOf(job);
    const at = job.finished_at ?? job.submitted_at;
    const group = groups.get(key);
    if (!group) groups.set(key, { key, queue: job.queue, task: job.task, code, message, jobs: [job], first: at, last: at });
    else {
      group.jobs.push(job);
      if (at < group.first) group.first = at;
      if (at > group.last) {
        group.last = at;
        group.message = message;
      }
    }
  }
  return [...groups.values()].sort((a, b) => b.jobs.length - a.jobs.length || (a.last < b.last ? 1 : -1));
}

/**
 * @param {import("./router.js").Place} place
 * @param {import("./main.js").Page} page
 * @returns {import("./main.js").View}
 */
export function open(place, page) {
  /** @type {Job[]} */
  let jobs = [];
  let most = READ;
  let isWhole = true;
  let isReading = false;
  let rest = REST;
  /** @type {number | null} */
  let total = null;
  /** @type {Map<string, number> | null} */
  let waiting = null;
  const queue = place.query.get("queue") ?? "";

  async function load() {
    const found = [];
    let cursor = "";
    const soonest = now() / 1000 + SOONEST;
    try {
      do {
        const answer = await call("GET", "jobs", { query: { state: "dead", queue, limit: PAGE, cursor } });
        found.push(...answer.jobs);
        cursor = answer.cursor ?? "";
      } while (cursor && found.length < most);
      if (found.length) waiting = await readWaiting(queue);
    } finally {
      isReading = false;
    }
    jobs = found;
    const period = SLOW * Math.ceil(found.length / PAGE);
    rest = found.length > PAGE ? SOONEST + period - (soonest % period) : REST;
    isWhole = !cursor;
    if (!isWhole) total = (await call("GET", "stats").catch(() => null))?.dead ?? null;
    isWhole ||= !queue && total === found.length; // the last page has no more jobs
  }

  const render = () => {
    const groups = grouped(jobs);
    const read = isWhole ? `${plural(jobs.length, "dead job")} in ${plural(groups.length, "group")}.` : `The latest ${count(jobs.length)}${total ? ` of ${count(total)}` : ""} dead jobs are read, in ${plural(groups.length, "group")}.`;
    const more = async () => {
      most += READ;
      isReading = true;
      page.paint();
      page.reload(true);
    };
    return [
      h("h1", { id: "title" }, "Failures"),
      jobs.length ? h("p", { class: "row subtitle" }, read, isWhole ? null : button(isReading ? "Reading…" : "Read more", () => void more(), { class: "small", disabled: isReading }), queue && h("a", { href: link("failures") }, "all queues")) : null,
      groups.length ? h("div", { class: "panel" }, list({ groups, isWhole, waiting }, page)) : empty("No dead jobs.", "A job is dead when its attempts are used up, or its task says that another is useless."),
    ];
  };
  return { title: "Failures", load, render, touched: (events) => events.some(({ state, code }) => state === "dead" || code === "retry"), every: 30, get rest() { return rest; } };
}

/**
 * @param {Found} found
 * @param {import("./main.js").Page} page
 */
function list(found, page) {
  const rows = found.groups.map((group) => {
    const sample = group.jobs[0];
    return h("tr", { key: group.key },
      h("td", { class: "number big", title: found.isWhole ? null : "There may be more: not all dead jobs are read." }, count(group.jobs.length), found.isWhole ? "" : "+"),
      h("th", { scope: "row", class: "error" }, h("a", { class: "open", href: link("jobs", sample.id), title: "The latest of these jobs" }, h("code", { class: "code" }, group.code), " ", h("span", { class: "clamp" }, group.message || "no message")), h("div", { class: "row orders" }, orders(group, found, page))),
      h("td", { class: "wrap" }, h("a", { href: link("jobs", "", { state: "dead", task: group.task, queue: group.queue, code: group.code }) }, group.task), h("small", { class: "block" }, queueLink(group.queue))),
      h("td", { class: "when" }, moment(group.first)), h("td", { class: "when" }, moment(group.last)));
  });
  return table("Failures", [{ label: "Jobs", class: "number" }, "Error", "Task and queue", "First", "Last"], rows);
}

/**
 * @param {Group} group
 * @param {Found} found
 * @param {import("./main.js").Page} page
 */
function orders(group, { isWhole, waiting }, page) {
  const { queue, task, code, message } = group;
  const filter = { queue, task, code, message };
  const about = [h("a", { href: link("jobs", "", { state: "dead", task, queue }) }, task), " in ", h("b", null, queue), " ", badge("dead", code), message ? h("span", { class: "clamp", title: message }, message) : null, message ? h("small", { class: "faint" }, "Numbers, identifiers and quoted text in it may differ.") : null];
  const dead = isWhole ? count(group.jobs.length) : "all";
  const waits = waiting?.get(group.key) ?? 0;
  const one = (/** @type {"retry" | "cancel" | "erase"} */ verb, /** @type {string} */ label) => {
    const order = () => void (verb === "cancel" ? orderAll(verb, filter, about, page) : orderAll(verb, { ...filter, state: "dead" }, about, page, { read: group.jobs.length }));
    return can("POST", `/jobs/${verb}`) ? button(label, order, { class: verb === "retry" ? "" : "quiet" }) : null;
  };
  return [one("retry", `Retry ${dead}`), one("erase", `Erase ${dead}`), waiting && !waits ? null : one("cancel", waiting ? `Cancel ${count(waits)} waiting` : "Cancel waiting")];
}
