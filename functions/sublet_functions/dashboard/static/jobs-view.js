/** Jobs by state, queue and task. The filter is the URL. */
import { ApiError, call, can, now, parameters } from "./api.js";
import { h } from "./dom.js";
import { count, duration, plural } from "./format.js";
import { go, link } from "./router.js";
import { badge, button, countdown, empty, errorNote, icon, moment, ms, queueLink, table } from "./widgets.js";

/** @typedef {import("./dom.js").Child} Child */
/** @typedef {any} Job */

export const STATES = ["scheduled", "queued", "running", "completed", "dead", "cancelled"];
const LIMIT = 50;
/** Pages read at most for one page of rows: the server may answer with short ones. */
const PAGES = 5;
const OWN = new Set(["state", "queue", "task", "limit", "cursor"]);

/**
 * @param {import("./router.js").Place} place
 * @param {import("./main.js").Page} page
 * @returns {import("./main.js").View}
 */
export function open(place, page) {
  const { query } = place;
  const state = query.get("state") ?? "";
  /** @type {Job[]} */
  let jobs = [];
  /** @type {Job[]} */
  let shown = [];
  let cursor = "";
  /** @type {any} */
  let stats = null;
  let statsAt = 0;
  /** @type {{queues: string[], tasks: string[]} | null} */
  let names = null;
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
    const filter = Object.fromEntries(query);
    const found = [];
    let next = query.get("cursor") ?? "";
    for (let i = 0; i < PAGES && (i === 0 || (next && found.length < LIMIT)); i += 1) {
      const answer = await call("GET", "jobs", { query: { ...filter, limit: LIMIT - found.length, cursor: next } });
      found.push(...answer.jobs);
      next = answer.cursor ?? "";
    }
    jobs = found;
    cursor = next;
    void readRest();
  }

  /** Read what the rows need not wait for: counts, and names for the filter. */
  async function readRest() {
    if (Date.now() - statsAt < 5000) return;
    statsAt = Date.now();
    stats = await call("GET", "stats", { query: { queue: query.get("queue") } }).catch(() => null);
    names ??= await readNames();
    page.paint();
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
    const more = withheld ? button(`${plural(withheld, "change")} above: show`, release, { class: "primary small" }) : null;
    return [
      h("div", { class: "title" }, h("h1", { id: "title" }, "Jobs"), more),
      tabs(query, stats),
      filters(query, names),
      errorNote(refusal),
      shown.length ? rows(shown, state) : refusal ? null : nothing(query),
      h("nav", { class: "row end", "aria-label": "Pages" }, query.get("cursor") && h("a", { rel: "first", class: "button", href: moved(query, { cursor: "" }) }, "First page"), cursor && h("a", { rel: "next", class: "button", href: moved(query, { cursor }) }, "Next page")),
    ];
  };

  return { title: "Jobs", load, render, every: 10, rest: 2, ticks: () => shown.some((job) => job.state === "running") };
}

async function readNames() {
  const [queues, tasks] = await Promise.all([
    call("GET", "queues", { query: { limit: 200 } }).catch(() => ({ queues: [] })),
    call("GET", "tasks", { query: { limit: 200 } }).catch(() => ({ tasks: [] })),
  ]);
  return { queues: queues.queues.map((/** @type {any} */ one) => one.name), tasks: tasks.tasks.map((/** @type {any} */ one) => one.name) };
}

/**
 * The URL with another filter, at its first page.
 * @param {URLSearchParams} query
 * @param {Record<string, string>} changes
 */
function moved(query, changes) {
  return link("jobs", "", { ...Object.fromEntries(query), cursor: "", ...changes });
}

/**
 * @param {URLSearchParams} query
 * @param {any} stats
 */
function tabs(query, stats) {
  const state = query.get("state") ?? "";
  const items = ["", ...STATES].map((name) => {
    const n = name && stats ? stats[name] : null;
    const href = moved(query, { state: name });
    return h("li", null, h("a", { href, "aria-current": name === state ? "true" : null }, name ? [icon(name), name] : "all", n === null || n === undefined ? null : h("b", null, count(n))));
  });
  return h("nav", { class: "tabs", "aria-label": "States" }, h("ul", null, items));
}

/**
 * @param {URLSearchParams} query
 * @param {{queues: string[], tasks: string[]} | null} names
 */
function filters(query, names) {
  const others = can("GET", "/jobs") ? parameters("GET", "/jobs").filter(({ name }) => !OWN.has(name)) : [];
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const data = new FormData(/** @type {HTMLFormElement} */ (event.currentTarget));
    go(moved(query, Object.fromEntries([...data].map(([name, value]) => [name, String(value).trim()]))));
  };
  const active = [...query.keys()].some((name) => name !== "state" && name !== "cursor");
  const list = (/** @type {string} */ id, /** @type {string[]} */ all) => h("datalist", { id }, all.map((value) => h("option", { value, key: value })));
  const one = (/** @type {string} */ name, /** @type {string | null} */ id, /** @type {string} */ hint) =>
    h("label", { key: `filter-${name}-${query.get(name) ?? ""}` }, h("span", null, name), h("input", { name, list: id, value: query.get(name) ?? "", title: hint, autocomplete: "off", spellcheck: "false", placeholder: "any" }));
  return h("form", { class: "filters", role: "search", "aria-label": "Filter", onSubmit: submit },
    one("queue", "queues", "Only jobs of this queue"), list("queues", names?.queues ?? []),
    one("task", "tasks", "Only jobs of this task"), list("tasks", names?.tasks ?? []),
    others.map(({ name, description }) => one(name, null, description)),
    h("button", null, "Filter"),
    active ? h("a", { class: "button quiet", href: link("jobs", "", { state: query.get("state") }) }, "Clear") : null);
}

/** @param {URLSearchParams} query */
function nothing(query) {
  const state = query.get("state");
  const isFiltered = query.has("queue") || query.has("task");
  const words = `${state ? `${state} ` : ""}jobs`;
  if (query.has("cursor")) return empty("No more jobs.", "The last page is empty: its jobs have moved on.");
  if (isFiltered) return empty(`No ${words} match the filter.`, "Names must match as a whole.", h("a", { href: link("jobs", "", { state }) }, `All ${words}`));
  if (state) return empty(`No ${words}.`, state === "dead" ? "No job has failed for good." : `Nothing is ${state} at the moment.`);
  return empty("No jobs yet.", "Submit one: the page shows it at once.", h("pre", null, "sublet submit TASK key=value"));
}

/**
 * @param {Job[]} jobs
 * @param {string} state
 */
function rows(jobs, state) {
  const when = { scheduled: "Due", queued: "Waiting since", running: "Lease" }[state] ?? (state ? "Ended" : "When");
  const columns = ["Job", "Queue", "State", { label: "Attempt", class: "number" }, when, "Worker", "Last error or progress"];
  return table("Jobs", columns, jobs.map(row), { id: "jobs" });
}

/** @param {Job} job */
function row(job) {
  const state = job.left ? null : job.state;
  return h("tr", { key: job.id, class: job.left ? "left" : null },
    h("th", { scope: "row" }, h("a", { class: "open", href: link("jobs", job.id) }, job.task), h("code", { class: "id" }, job.id)),
    h("td", null, queueLink(job.queue)),
    h("td", null, state ? badge(state) : h("span", { class: "badge" }, "moved on"), job.cancel_requested_at && state === "running" ? h("small", { class: "faint" }, "cancel asked") : null),
    h("td", { class: "number" }, job.attempt ? `${job.attempt} of ${job.max_attempts}` : h("span", { class: "faint" }, `– of ${job.max_attempts}`)),
    h("td", { class: "when" }, whenOf(job)),
    h("td", { class: "cut", title: job.worker }, job.worker ?? h("span", { class: "faint" }, "–")),
    h("td", { class: "cut wide" }, noteOf(job)));
}

/** @param {Job} job */
function whenOf(job) {
  if (job.state === "running") return countdown(job.lease_expires_at);
  if (job.state === "scheduled") return moment(job.due_at);
  if (job.state === "queued") return moment(job.due_at ?? job.submitted_at);
  return moment(job.finished_at);
}

/** @param {Job} job */
function noteOf(job) {
  if (job.state === "running" && job.progress !== null) return progress(job.progress);
  if (job.last_error) return h("span", { title: job.last_error.message }, h("code", { class: "code" }, job.last_error.code), " ", job.last_error.message);
  if (job.state === "running") return h("span", { class: "faint" }, `for ${duration((now() - ms(job.claimed_at)) / 1000)}`);
  return h("span", { class: "faint" }, "–");
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
