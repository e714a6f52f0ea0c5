/** Dead jobs, grouped by what went wrong. */
import { ApiError, call, can } from "./api.js";
import { h } from "./dom.js";
import { count, fingerprint, plural } from "./format.js";
import { order } from "./orders.js";
import { link } from "./router.js";
import { badge, button, dialog, empty, moment, queueLink, table } from "./widgets.js";

/** @typedef {any} Job */
/** @typedef {{key: string, queue: string, task: string, code: string, message: string, jobs: Job[], first: string, last: string}} Group */

const PAGE = 200;
/** Dead jobs read at first, and with each "Read more". */
const READ = 1000;
/** Jobs that are retried at the same time. */
const HANDS = 4;

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
  /** @type {number | null} */
  let total = null;
  const queue = place.query.get("queue") ?? "";

  async function load() {
    const found = [];
    let cursor = "";
    do {
      const answer = await call("GET", "jobs", { query: { state: "dead", queue, limit: PAGE, cursor } });
      found.push(...answer.jobs);
      cursor = answer.cursor ?? "";
    } while (cursor && found.length < most);
    jobs = found;
    isWhole = !cursor;
    if (!isWhole) total = (await call("GET", "stats").catch(() => null))?.dead ?? null;
  }

  const render = () => {
    const groups = grouped(jobs);
    const read = isWhole ? `${plural(jobs.length, "dead job")} in ${plural(groups.length, "group")}.` : `The latest ${count(jobs.length)}${total ? ` of ${count(total)}` : ""} dead jobs are read, in ${plural(groups.length, "group")}.`;
    const more = async () => {
      most += READ;
      page.reload();
    };
    return [
      h("h1", { id: "title" }, "Failures"),
      jobs.length ? h("p", { class: "row subtitle" }, read, isWhole ? null : button("Read more", () => void more(), { class: "small" }), queue && h("a", { href: link("failures") }, "all queues")) : null,
      groups.length ? h("div", { class: "panel" }, list(groups, page)) : empty("No dead jobs.", "A job is dead when its attempts are used up, or its task says that another is useless."),
    ];
  };
  return { title: "Failures", load, render, touched: (events) => events.some(({ state, code }) => state === "dead" || code === "retry"), every: 30, rest: 10 };
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
      h("th", { scope: "row", class: "error" }, h("a", { class: "open", href: link("jobs", sample.id), title: "The latest of these jobs" }, h("code", { class: "code" }, group.code), " ", h("span", { class: "clamp" }, group.message || "no message"))),
      h("td", null, h("a", { href: link("jobs", "", { state: "dead", task: group.task, queue: group.queue }) }, group.task), h("small", { class: "block" }, queueLink(group.queue))),
      h("td", { class: "when" }, moment(group.first)), h("td", { class: "when" }, moment(group.last)),
      h("td", { class: "actions" }, can("POST", "/jobs/{id}/retry") ? button(`Retry ${count(group.jobs.length)}`, () => void retryAll(group, page)) : null));
  });
  return table("Failures", [{ label: "Jobs", class: "number" }, "Error", "Task and queue", "First", "Last", { label: "Orders", class: "actions" }], rows);
}

/**
 * Retry the jobs of a group that the page has read, one call for each, with its revision: a job that has changed is left.
 * @param {Group} group
 * @param {import("./main.js").Page} page
 */
async function retryAll(group, page) {
  const jobs = [...group.jobs];
  await dialog(`Retry ${plural(jobs.length, "job")}?`, (close) => {
    const bar = h("progress", { max: jobs.length, value: 0, "aria-label": "Jobs retried", class: "full" });
    const words = h("p", { role: "status" });
    const begin = button(`Retry ${count(jobs.length)}`, () => void run(), { class: "primary", autofocus: true });
    const leave = button("Keep as it is", () => close(null), { class: "quiet" });
    const outcome = { done: 0, changed: 0, failed: 0 };
    let isStopped = false;
    const show = () => {
      const at = outcome.done + outcome.changed + outcome.failed;
      bar.setAttribute("value", String(at));
      words.textContent = `${plural(outcome.done, "job")} queued again${outcome.changed ? `, ${count(outcome.changed)} had changed` : ""}${outcome.failed ? `, ${count(outcome.failed)} failed` : ""}.`;
    };
    const hand = async () => {
      for (let job = jobs.shift(); job && !isStopped && bar.isConnected; job = jobs.shift()) {
        try {
          await order("retry", job);
          outcome.done += 1;
        } catch (error) {
          if (!(error instanceof ApiError)) throw error;
          if (error.status === 409 || error.status === 404) outcome.changed += 1;
          else {
            outcome.failed += 1;
            isStopped = error.status === 403 || error.status === 0 || error.status === 401;
            problem.textContent = error.message;
            problem.hidden = false;
          }
        }
        show();
      }
    };
    const run = async () => {
      begin.remove();
      bar.hidden = false;
      leave.textContent = "Stop";
      show();
      await Promise.all(Array.from({ length: HANDS }, hand));
      leave.textContent = "Close";
      leave.focus();
      page.reload();
    };
    bar.hidden = true;
    const problem = h("p", { class: "note error", role: "alert", hidden: true });
    return [h("p", null, h("a", { href: link("jobs", "", { state: "dead", task: group.task, queue: group.queue }) }, group.task), " in ", h("b", null, group.queue), " ", badge("dead", group.code)), h("p", { class: "faint" }, "Each gets all of its attempts again."), bar, words, problem, h("div", { class: "row end" }, leave, begin)];
  });
}
