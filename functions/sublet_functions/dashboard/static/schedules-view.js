/** Schedules: in words, their next occurrences, run now, pause. */
import { call, can, enc, isLimited } from "./api.js";
import { h } from "./dom.js";
import { count, pretty, whole } from "./format.js";
import { go, link } from "./router.js";
import { badge, button, confirm, copy, data, empty, facts, icon, moment, ms, panel, perform, queueLink, table, toast } from "./widgets.js";

/** @typedef {any} Schedule */

/**
 * @param {import("./router.js").Place} place
 * @param {import("./main.js").Page} page
 * @returns {import("./main.js").View}
 */
export const open = (place, page) => (place.name ? one(place.name, page) : all(place, page));

/**
 * @param {import("./router.js").Place} place
 * @param {import("./main.js").Page} page
 * @returns {import("./main.js").View}
 */
function all(place, page) {
  /** @type {Schedule[]} */
  let schedules = [];
  let cursor = "";
  return {
    title: "Schedules",
    load: async () => {
      const answer = await call("GET", "schedules", { query: { limit: 200, cursor: place.query.get("cursor") } });
      schedules = answer.schedules;
      cursor = answer.cursor ?? "";
    },
    render: () => [
      h("h1", { id: "title" }, "Schedules"),
      schedules.length ? h("div", { class: "panel" }, list(schedules, page)) : isLimited() ? empty("No schedules in the queues of this token.", "Others are hidden from it.") : empty("No schedules yet.", "A schedule makes a job at each of its times.", h("pre", null, "sublet schedules add NAME TASK --cron '0 6 * * *'")),
      cursor && h("nav", { class: "row end", "aria-label": "Pages" }, h("a", { rel: "next", class: "button", href: link("schedules", "", { cursor }) }, "Next page")),
    ],
    touched: (events) => events.some(({ state }) => state === "queued"),
    every: 20,
    everyLive: 60,
    rest: 3,
  };
}

/**
 * @param {Schedule[]} schedules
 * @param {import("./main.js").Page} page
 */
function list(schedules, page) {
  const rows = schedules.map((schedule) => h("tr", { key: schedule.name },
    h("th", { scope: "row" }, h("a", { class: "open clamp", href: link("schedules", schedule.name), title: schedule.name }, schedule.name)),
    h("td", null, badge(schedule.state), schedule.held ? h("small", { class: "faint block" }, schedule.held) : null),
    h("td", null, schedule.description, schedule.cron ? h("small", { class: "faint block" }, h("code", null, schedule.cron), ` ${schedule.tz}`) : null),
    h("td", { class: "wrap" }, schedule.task, h("small", { class: "block" }, queueLink(schedule.queue))),
    h("td", { class: "when" }, next(schedule, schedule.next_at)),
    h("td", { class: "when" }, schedule.last_job ? h("a", { href: link("jobs", schedule.last_job) }, moment(schedule.last_at)) : h("span", { class: "faint" }, "never")),
    h("td", { class: "actions" }, orders(schedule, page))));
  return table("Schedules", ["Schedule", "State", "When", "Task and queue", "Next", "Last", { label: "Orders", class: "actions" }], rows);
}

/**
 * How soon an occurrence is: of a paused schedule, none comes.
 * @param {Schedule} schedule
 * @param {string | null} iso
 */
const next = ({ state }, iso) => (state === "paused" ? h("span", { class: "faint" }, "paused") : moment(iso));

/**
 * @param {Schedule} schedule
 * @param {import("./main.js").Page} page
 */
function orders(schedule, page) {
  const path = `schedules/${enc(schedule.name)}`;
  const isPaused = schedule.state === "paused";
  const run = async () => {
    if (!(await confirm(`Run ${schedule.name} now?`, `One extra job of ${schedule.task} is submitted to queue ${schedule.queue}.`, "Run now"))) return;
    const made = await perform(() => call("POST", `${path}/run`, { body: {} }), "");
    if (!made) return;
    toast("The job is submitted.");
    go(link("jobs", made.id));
  };
  const pause = async () => {
    await perform(() => call("POST", `${path}/${isPaused ? "resume" : "pause"}`), isPaused ? "The schedule is resumed." : "The schedule is paused.");
    page.reload();
  };
  const may = (/** @type {string} */ verb) => can("POST", `/schedules/{schedule}/${verb}`);
  return [
    may("run") ? button("Run now", () => void run(), { "aria-label": `Run now: ${schedule.name}` }) : null,
    may("pause") && schedule.state !== "ended" ? button(isPaused ? "Resume" : "Pause", () => void pause(), { "aria-label": `${isPaused ? "Resume" : "Pause"} ${schedule.name}` }) : null,
  ];
}

/**
 * @param {string} name
 * @param {import("./main.js").Page} page
 * @returns {import("./main.js").View}
 */
function one(name, page) {
  /** @type {Schedule} */
  let schedule = null;
  return {
    title: name,
    load: async () => {
      schedule = await call("GET", `schedules/${enc(name)}`);
    },
    render: () => render(schedule, page),
    touched: (events) => events.some(({ state }) => state === "queued"),
    every: 15,
    rest: 2,
  };
}

/**
 * @param {Schedule} schedule
 * @param {import("./main.js").Page} page
 */
function render(schedule, page) {
  return [
    h("p", { class: "crumbs" }, h("a", { href: link("schedules") }, "Schedules")),
    h("div", { class: "title" }, h("h1", { id: "title" }, schedule.name), badge(schedule.state)),
    h("p", { class: "subtitle" }, schedule.description),
    h("div", { class: "row orders" }, orders(schedule, page), button("Copy as JSON", () => void copy(pretty(schedule)), { class: "quiet" })),
    schedule.held ? h("div", { class: "note" }, icon("warning"), h("p", null, "Its next job waits: ", schedule.held)) : null,
    facts([
      ["Task", schedule.task],
      ["Queue", queueLink(schedule.queue)],
      ["Cron", schedule.cron && h("code", null, schedule.cron)],
      ["Time zone", schedule.tz],
      ["Fired", count(schedule.fired)],
      ["Missed", schedule.occurrences_missed ? count(schedule.occurrences_missed) : null],
      ["Skipped", schedule.occurrences_skipped ? count(schedule.occurrences_skipped) : null],
      ["If missed", schedule.missed],
      ["If the last one is unfinished", schedule.overlap],
      ["Last job", schedule.last_job && h("a", { href: link("jobs", schedule.last_job) }, moment(schedule.last_at))],
      ["Fired by", schedule.fired_by],
      ["Declared by", schedule.source || null],
      ["Changed", moment(schedule.changed_at)],
    ]),
    panel("Next occurrences", schedule.upcoming.length ? upcoming(schedule) : empty("No further occurrence.", "It has ended.")),
    panel("Last runs", schedule.last_runs.length ? lastRuns(schedule) : empty("No occurrence has had a job yet.", "The last ten are listed here.")),
    panel("Payload", data(schedule.payload, `schedule ${schedule.name}`, page.paint, "Payload")),
  ];
}

/** @param {string} iso */
const offset = (iso) => /(?:Z|[+-]\d\d:\d\d)$/.exec(iso)?.[0] ?? "";

/**
 * The time as its zone shows it: the server writes it with the zone's offset.
 * @param {string} iso
 */
const inZone = (iso) => iso.slice(0, 19).replace("T", " ");

/** @param {Schedule} schedule */
function upcoming(schedule) {
  const rows = schedule.upcoming.map((/** @type {string} */ iso, /** @type {number} */ i) => {
    const changes = i > 0 && offset(iso) !== offset(schedule.upcoming[i - 1]);
    return h("tr", { key: iso }, h("th", { scope: "row" }, h("time", { datetime: iso }, inZone(iso)), h("small", { class: "faint" }, ` ${offset(iso)}`)), h("td", null, whole(ms(iso))), h("td", { class: "when" }, next(schedule, iso)), h("td", null, changes ? h("span", { class: "badge warning" }, icon("warning"), "clocks change before it") : null));
  });
  return table("Next occurrences", [`In ${schedule.tz}`, "Local time", "Away", "Note"], rows);
}

/** @param {Schedule} schedule */
function lastRuns(schedule) {
  const rows = schedule.last_runs.map((/** @type {{occurrence: string, job: string, state: string | null}} */ run) => h("tr", { key: run.job },
    h("th", { scope: "row" }, run.state ? h("a", { class: "open id", href: link("jobs", run.job) }, run.job) : h("code", { class: "id" }, run.job)),
    h("td", null, run.state ? badge(run.state) : h("span", { class: "faint" }, "no longer kept")),
    h("td", null, whole(ms(run.occurrence))),
    h("td", { class: "when" }, moment(run.occurrence))));
  return table("Last runs", ["Job", "State", "Occurrence, local time", "When"], rows);
}
