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

/**
 * @param {Job[]} jobs
 * @returns {Group[]} the largest first
 */
export function grouped(jobs) {
  /** @type {Map<string, Group>} */
  const groups = new Map();
  for (const job of jobs) {
    const { code, message } = job.last_error ?? { code: "unknown", message: "" };
    const key = JSON.stringify([job.queue, job.task, code, fingerprint(message)]);
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
    } finally {
      isReading = false;
    }
    jobs = found;
    const period = SLOW * Math.ceil(found.length / PAGE);
    rest = found.length > PAGE ? SOONEST + period - (soonest % period) : REST;
    isWhole = !cursor;
    if (!isWhole) total = (await call("GET", "stats").catch(() => null))?.dead ?? null;
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
      groups.length ? h("div", { class: "panel" }, list(groups, page)) : empty("No dead jobs.", "A job is dead when its attempts are used up, or its task says that another is useless."),
    ];
  };
  return { title: "Failures", load, render, touched: (events) => events.some(({ state, code }) => state === "dead" || code === "retry"), every: 30, get rest() { return rest; } };
}

/**
 * @param {Group[]} groups
 * @param {import("./main.js").Page} page
 */
function list(groups, page) {
  const rows = groups.map((group) => {
    const sample = group.jobs[0];
    return h("tr", { key: group.key },
      h("td", { class: "number big" }, count(group.jobs.length)),
      h("th", { scope: "row", class: "error" }, h("a", { class: "open", href: link("jobs", sample.id), title: "The latest of these jobs" }, h("code", { class: "code" }, group.code), " ", h("span", { class: "clamp" }, group.message || "no message")), h("div", { class: "row orders" }, orders(group, page))),
      h("td", { class: "wrap" }, h("a", { href: link("jobs", "", { state: "dead", task: group.task, queue: group.queue, code: group.code }) }, group.task), h("small", { class: "block" }, queueLink(group.queue))),
      h("td", { class: "when" }, moment(group.first)), h("td", { class: "when" }, moment(group.last)));
  });
  return table("Failures", [{ label: "Jobs", class: "number" }, "Error", "Task and queue", "First", "Last"], rows);
}

/**
 * @param {Group} group
 * @param {import("./main.js").Page} page
 */
function orders(group, page) {
  const { queue, task, code, message } = group;
  const filter = { queue, task, code, message };
  const about = [h("a", { href: link("jobs", "", { state: "dead", task, queue }) }, task), " in ", h("b", null, queue), " ", badge("dead", code), message ? h("span", { class: "clamp", title: message }, message) : null, message ? h("small", { class: "faint" }, "Numbers, identifiers and quoted text in it may differ.") : null];
  const n = count(group.jobs.length);
  const one = (/** @type {"retry" | "cancel" | "erase"} */ verb, /** @type {string} */ label) => (can("POST", `/jobs/${verb}`) ? button(label, () => void orderAll(verb, verb === "cancel" ? filter : { ...filter, state: "dead" }, about, page), { class: verb === "retry" ? "" : "quiet" }) : null);
  return [one("retry", `Retry ${n}`), one("erase", `Erase ${n}`), one("cancel", "Cancel waiting")];
}
