/** Jobs by state, queue, task, tag and more. The filter is the URL. */
import { ApiError, call, now, seenAt } from "./api.js";
import { h } from "./dom.js";
import { filters, isFiltered, moved } from "./filters.js";
import { count, duration, plural } from "./format.js";
import { link } from "./router.js";
import { awaits, badge, button, countdown, dueLabel, empty, errorNote, groupLink, icon, isOutdated, moment, ms, queueLink, table, tagLinks, waiting, waitsFor } from "./widgets.js";

/** @typedef {import("./dom.js").Child} Child */
/** @typedef {any} Job */

export const STATES = ["scheduled", "queued", "running", "completed", "dead", "cancelled"];
const LIMIT = 50;
/** Pages read at most for one page of rows: the server may answer with short ones. */
const PAGES = 5;
/** What the moment of a job is, by state; of others when they ended. */
const WHEN = { scheduled: "Due", queued: "Waiting since", running: "Lease left" };
/** The same beside one job of a list of several states. */
const MOMENTS = { scheduled: "due", queued: "queued", running: "lease left" };
/** Milliseconds between two readings of the counts. */
const REST = 5000;
/** Seconds between two reads of a list that takes several pages. */
const SLOW = 60;

/**
 * @param {import("./router.js").Place} place
 * @param {import("./main.js").Page} page
 * @returns {import("./main.js").View}
 */
export function open(place, page) {
  const { query } = place;
  /** @type {Job[]} */
  let jobs = [];
  /** @type {Job[]} */
  let shown = [];
  let cursor = "";
  let oldest = 0;
  /** @type {any} */
  let stats = null;
  let statsAt = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let later;
  /** @type {{queue: string[], task: string[]} | null} */
  let names = null;
  let pages = 1;
  let withheld = 0;
  /** Why the filter is refused. @type {ApiError | null} */
  let refusal = null;

  async function load() {
    try {
      await readPage();
      refusal = null;
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 422) throw error;
      refusal = error;
      jobs = [];
    }
  }

  async function readPage() {
    const filter = Object.fromEntries([...query.keys()].map((name) => [name, query.getAll(name)]));
    const found = [];
    let next = query.get("cursor") ?? "";
    let read = 0;
    let first = Infinity;
    do {
      const answer = await call("GET", "jobs", { query: { ...filter, limit: LIMIT - found.length, cursor: next } });
      first = Math.min(first, seenAt(answer));
      found.push(...answer.jobs);
      next = answer.cursor ?? "";
      read += 1;
    } while (read < PAGES && next && found.length < LIMIT);
    jobs = found;
    cursor = next;
    pages = read;
    oldest = first;
    void readRest();
  }

  /** Read what the rows need not wait for: counts, and names for the filter. */
  async function readRest() {
    const wait = statsAt + REST - Date.now();
    if (wait > 0) {
      later ??= setTimeout(readLater, wait);
      return;
    }
    statsAt = Date.now();
    stats = await call("GET", "stats", { query: { queue: query.get("queue") } }).catch(() => null);
    names ??= await readNames();
    page.paint();
  }

  /** The last change may come soon after a reading of the counts. */
  function readLater() {
    later = undefined;
    if (!document.hidden) void readRest();
  }

  /** Rows stay where they are while the pointer or the focus is on one of them. */
  function arrange() {
    const region = document.querySelector("#jobs tbody");
    const isHeld = Boolean(shown.length && region && (region.matches(":hover") || region.contains(document.activeElement)));
    if (isHeld) {
      const fresh = new Map(jobs.map((job) => [job.id, job]));
      const kept = new Set(shown.map(({ id }) => id));
      withheld = jobs.filter(({ id }) => !kept.has(id)).length;
      shown = shown.map((job) => fresh.get(job.id) ?? { ...job, left: true });
    } else {
      shown = jobs;
      withheld = 0;
    }
  }

  const release = () => {
    /** @type {HTMLElement | null} */ (document.activeElement)?.blur();
    shown = jobs;
    withheld = 0;
    page.paint();
  };

  const render = () => {
    arrange();
    if (shown.some((job) => !job.left && isOutdated(job.lease_expires_at, oldest))) page.reload(); // heartbeats are not events
    const more = withheld ? button(`${plural(withheld, "change")} above: show`, release, { class: "primary small" }) : null;
    return [
      h("div", { class: "title" }, h("h1", { id: "title" }, "Jobs"), more),
      tabs(query, stats),
      filters(query, { ...names, ...seen(shown) }),
      errorNote(refusal),
      shown.length ? rows(shown, query, oldest) : refusal ? null : nothing(query, cursor),
      h("nav", { class: "row end", "aria-label": "Pages" }, query.get("cursor") && h("a", { rel: "first", class: "button", href: moved(query, {}) }, "First page"), cursor && shown.length ? h("a", { rel: "next", class: "button", href: moved(query, { cursor }) }, "Next page") : null),
    ];
  };

  return {
    title: "Jobs",
    load,
    render,
    get every() {
      return pages > 1 ? SLOW : 10;
    },
    get rest() {
      return pages > 1 ? SLOW : 2;
    },
    ticks: () => shown.some((job) => job.state === "running"),
  };
}

async function readNames() {
  const [queues, tasks] = await Promise.all([
    call("GET", "queues", { query: { limit: 200 } }).catch(() => ({ queues: [] })),
    call("GET", "tasks", { query: { limit: 200 } }).catch(() => ({ tasks: [] })),
  ]);
  return { queue: queues.queues.map((/** @type {any} */ one) => one.name), task: tasks.tasks.map((/** @type {any} */ one) => one.name) };
}

/**
 * Tags, groups, error codes and workers of these jobs, for the filter.
 * @param {Job[]} jobs
 */
function seen(jobs) {
  const some = (/** @type {(job: Job) => string[]} */ of) => [...new Set(jobs.flatMap(of))].sort();
  return { tag: some((job) => job.tags), group: some((job) => job.group ?? []), code: some((job) => job.last_error?.code ?? []), worker: some((job) => job.worker ?? []) };
}

/**
 * @param {URLSearchParams} query
 * @param {any} stats
 */
function tabs(query, stats) {
  const states = query.getAll("state");
  const isCounted = [...query.keys()].every((name) => ["state", "queue", "cursor"].includes(name));
  const items = ["", ...STATES].map((name) => {
    const n = name && stats && isCounted ? stats[name] : null;
    const href = moved(query, { state: name });
    return h("li", null, h("a", { href, "aria-current": (name ? states.includes(name) : !states.length) ? "true" : null }, name ? [icon(name), name] : "all", n === null || n === undefined ? null : h("b", null, count(n))));
  });
  return h("nav", { class: "tabs", "aria-label": "States" }, h("ul", null, items));
}

/**
 * @param {URLSearchParams} query
 * @param {string} cursor
 */
function nothing(query, cursor) {
  const states = query.getAll("state");
  const words = [states.join(" or "), "jobs"].filter(Boolean).join(" ");
  if (cursor) return empty("No job matches so far.", "There are more jobs: a page looks at some thousands of them.", h("a", { rel: "next", class: "button", href: moved(query, { cursor }) }, "Search on"));
  if (query.has("cursor")) return empty("No more jobs.", "The last page is empty: its jobs have moved on, or do not match.");
  if (isFiltered(query)) return empty(`No ${words} match the filter.`, "Names must match as a whole.", h("a", { href: link("jobs", "", new URLSearchParams(states.map((state) => ["state", state]))) }, `All ${words}`));
  if (states.length) return empty(`No ${words}.`, states[0] === "dead" ? "No job has failed for good." : `Nothing is ${states.join(" or ")} at the moment.`);
  return empty("No jobs yet.", "Submit one: the page shows it at once.", h("pre", null, "sublet submit TASK '{\"key\": \"value\"}'"));
}

/**
 * @param {Job[]} jobs
 * @param {URLSearchParams} query
 * @param {number} seen when the server read them, in ms of its clock
 */
function rows(jobs, query, seen) {
  const states = query.getAll("state");
  const state = states.length > 1 ? "" : (states[0] ?? "");
  const when = state ? WHEN[/** @type {keyof WHEN} */ (state)] ?? "Ended" : "When";
  const hasWorkers = query.has("worker") || state === "running";
  const columns = ["Job", "Queue", "State", { label: "Tries", class: "number" }, when, ...(hasWorkers ? ["Worker"] : []), ["queued", "scheduled"].includes(state) ? "Waits for, or last error" : state ? "Last error or progress" : "Waits for, error or progress"];
  return table("Jobs", columns, jobs.map((job) => row(job, query, seen, hasWorkers, !state)), { id: "jobs" });
}

/**
 * @param {Job} job
 * @param {URLSearchParams} query
 * @param {number} seen
 * @param {boolean} hasWorkers
 * @param {boolean} mixed whether the list has jobs of several states
 */
function row(job, query, seen, hasWorkers, mixed) {
  const state = job.left ? null : job.state;
  return h("tr", { key: job.id, class: job.left ? "left" : null },
    h("th", { scope: "row" }, h("a", { class: "open clamp", href: link("jobs", job.id), title: job.task }, job.task), h("span", { class: "tags" }, h("code", { class: "id" }, job.id), groupLink(job.queue, job.group), tagLinks(job.tags))),
    h("td", null, queueLink(job.queue)),
    h("td", null, state ? badge(state) : h("span", { class: "badge" }, "moved on"), job.cancel_requested_at && state === "running" ? h("small", { class: "faint" }, "cancel asked") : null),
    h("td", { class: "number" }, job.attempt ? `${job.max_attempts - job.tries_left} of ${job.max_attempts}` : h("span", { class: "faint" }, `– of ${job.max_attempts}`)),
    h("td", { class: "when" }, whenOf(job, seen), job.state === "scheduled" && job.due_at && dueLabel(job) !== "Due" ? h("small", { class: "faint block" }, dueLabel(job).toLowerCase()) : mixed ? h("small", { class: "faint block" }, MOMENTS[/** @type {keyof MOMENTS} */ (job.state)] ?? "ended") : null, job.worker && !hasWorkers ? h("small", { class: "cut", title: job.worker }, h("a", { href: moved(query, { worker: job.worker }) }, job.worker)) : null),
    hasWorkers ? workerOf(job, query) : null,
    h("td", { class: "cut wide" }, noteOf(job, query)));
}

/**
 * The worker that has the job; or had it last, which a list knows only from its filter.
 * @param {Job} job
 * @param {URLSearchParams} query
 */
function workerOf(job, query) {
  const worker = job.worker ?? query.get("worker");
  return h("td", { class: "cut", title: worker }, worker ? h("a", { href: moved(query, { worker }) }, worker) : h("span", { class: "faint" }, "–"));
}

/**
 * @param {Job} job
 * @param {number} seen
 */
function whenOf(job, seen) {
  if (job.state === "running") return countdown(job.lease_expires_at, seen);
  if (job.state === "scheduled") return moment(job.due_at);
  if (job.state === "queued") return moment(job.due_at ?? job.submitted_at);
  return moment(job.finished_at);
}

/**
 * @param {Job} job
 * @param {URLSearchParams} query
 */
function noteOf(job, query) {
  if (job.state === "running" && job.progress !== null) return progress(job.progress);
  if (job.state === "queued" && job.waits_for && !job.left) return waitsFor(job);
  if (job.state === "scheduled" && (job.awaits || job.after) && !job.left) return waitOf(job);
  if (job.last_error) return h("span", { title: job.last_error.message }, h("a", { href: moved(query, { code: job.last_error.code }), title: `Jobs with the error code ${job.last_error.code}` }, h("code", { class: "code" }, job.last_error.code)), " ", job.last_error.message);
  if (job.state === "running") return h("span", { class: "faint" }, `for ${duration((now() - ms(job.claimed_at)) / 1000)}`);
  return h("span", { class: "faint" }, "–");
}

/**
 * What a scheduled job waits for, and the job that it is, if it is one.
 * @param {Job} job
 */
function waitOf(job) {
  const [, other] = job.awaits?.startsWith("retry ") ? awaits(job) : ["", job.awaits ? "" : job.after];
  const text = waiting(job);
  return h("span", { title: other ? `${text}: ${other}` : text }, other ? h("a", { href: link("jobs", other) }, text) : text);
}

/** @param {any} value a fraction, or an object with one; any other JSON is text */
export function progress(value) {
  const fraction = typeof value === "number" ? value : value?.fraction;
  if (typeof fraction === "number" && fraction >= 0 && fraction <= 1) {
    const percent = Math.round(fraction * 100);
    const text = value?.message ?? value?.text;
    return h("span", { class: "progress" }, h("progress", { max: 100, value: percent, "aria-label": "Progress" }), `${percent} %`, text ? ` ${text}` : null);
  }
  return h("code", null, JSON.stringify(value));
}
