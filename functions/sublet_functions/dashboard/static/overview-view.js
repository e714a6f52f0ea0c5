/** The state of everything at a glance. */
import { call, readAt, seenAt } from "./api.js";
import { chart } from "./chart.js";
import { h } from "./dom.js";
import { coarse, count, duration, plural } from "./format.js";
import { historyPanel, latest, readHistory, spanOf } from "./history.js";
import { percentile, readFigures } from "./metrics.js";
import { link } from "./router.js";
import { readServer, serverLine } from "./server.js";
import { empty, icon, panel, queueLink, table } from "./widgets.js";

/** @typedef {any} Stats */
/** @typedef {{at: number, stats: Stats}} Reading */
/** @typedef {{at: number, ready: number, running: number, scheduled: number, submitted: number | null, completed: number | null, failed: number | null, dead: number | null}} Sample */

const EVERY = 5;
/** The same while nothing changes. */
const IDLE = 20;
/** Samples kept while the page is open: half an hour. */
const KEPT = 360;
const FIGURES_EVERY = 30_000;
const HISTORY_EVERY = 60_000;
const SERVER_EVERY = 30_000;
/** Milliseconds for which the first paint waits for the history. */
const PATIENCE = 1000;
/** Queues of the table of times. */
const QUEUES = 20;
/** Seconds after which waiting jobs without a worker have waited too long for a tick. */
const LATE = 90;
/** Seconds for which a ready job waits too long, whoever works. */
const LONG = 3600;
/** Of what belongs to no queue, to a token that is limited to queues. */
const HIDDEN = "hidden from a token that is limited to queues";

/** @type {Sample[]} */
const samples = [];
/** The readings of the last minute, and the one before. @type {Reading[]} */
const recent = [];
/** Rates are those of this time, in ms: a shorter one would turn a burst of seconds into a rate that never was. */
const MINUTE = 60_000;
/** Whether the token, or the server, gives no history. */
let isWithoutHistory = false;

/** @param {Stats} stats */
function sample(stats) {
  const at = readAt(stats);
  while (recent[1] && at - recent[1].at >= MINUTE) recent.shift();
  const first = recent[0];
  const isWhole = first && at - first.at >= MINUTE && at - first.at < 2 * MINUTE;
  const rate = (/** @type {string} */ name) => (isWhole && stats[name] !== null ? Math.max(0, (MINUTE * (stats[name] - first.stats[name])) / (at - first.at)) : null);
  const last = recent.at(-1);
  if (!last || at - last.at >= EVERY * 900) {
    samples.push({ at, ready: stats.ready, running: stats.running, scheduled: stats.scheduled, submitted: rate("submitted_total"), completed: rate("completed_total"), failed: rate("failed_total"), dead: rate("dead_total") });
    if (samples.length > KEPT) samples.shift();
    recent.push({ at, stats });
  }
}

/**
 * @param {import("./router.js").Place} place
 * @param {import("./main.js").Page} page
 * @returns {import("./main.js").View}
 */
export function open(place, page) {
  const span = spanOf(place.query);
  /** @type {import("./history.js").History | null} */
  let history = null;
  let historyAt = 0;
  /** Jobs completed a minute, by the history. @type {number | null} */
  let rate = null;
  /** @type {Stats} */
  let stats = null;
  /** @type {import("./metrics.js").Figures | null} */
  let figures = null;
  let figuresAt = 0;
  /** @type {import("./server.js").Report | null} */
  let server = null;
  let serverAt = 0;

  async function readCourse() {
    historyAt = Date.now();
    const [found, hour] = await Promise.all([readHistory(span), span === "month" ? readHistory("hour") : undefined]);
    isWithoutHistory = found === null;
    history = found ?? history;
    rate = latest(span === "month" ? hour : found);
    if (found === undefined) historyAt = 0;
    if (stats) page.paint();
  }

  return {
    title: "Overview",
    load: async () => {
      const reading = Date.now() - historyAt >= HISTORY_EVERY ? readCourse() : null;
      const isFirst = !stats;
      stats = await call("GET", "stats");
      sample(stats);
      if (isFirst) await Promise.race([reading, new Promise((done) => setTimeout(done, PATIENCE))]); // the first paint has its rate
      if (Date.now() - serverAt >= SERVER_EVERY) {
        serverAt = Date.now();
        void readServer().then((found) => {
          server = found ?? server;
          page.paint();
        });
      }
      if (Date.now() - figuresAt < FIGURES_EVERY) return;
      void readFigures().then((found) => {
        if (!found) return;
        figures = found;
        figuresAt = Date.now();
        page.paint();
      });
    },
    render: () => [h("h1", { id: "title" }, "Overview"), h("div", { class: "tiles" }, tiles(stats, rate)), health(stats, server), isWithoutHistory ? charts() : historyPanel(span, history, present(stats, rate)), figures && times(figures)],
    every: EVERY,
    get everyLive() {
      return samples.length < 3 ? EVERY : IDLE;
    },
    rest: 2,
  };
}

/**
 * Jobs completed in the last minute.
 * @param {number | null} rate of the history, until this page has readings of a minute
 */
const perMinute = (rate) => samples.at(-1)?.completed ?? rate;

/**
 * What the tiles show, as the last point of the charts: these would else contradict them for a minute.
 * @param {Stats} stats
 * @param {number | null} rate
 * @returns {import("./history.js").Point}
 */
function present(stats, rate) {
  const { submitted = null, failed = null, dead = null } = samples.at(-1) ?? {};
  return { at: seenAt(stats), queued: stats.queued, running: stats.running, scheduled: stats.scheduled, submitted_per_minute: submitted, completed_per_minute: perMinute(rate), failed_per_minute: failed, dead_per_minute: dead };
}

/**
 * @param {string} label
 * @param {number | string | null} value
 * @param {string} kind
 * @param {string} note
 * @param {string} href
 */
function tile(label, value, kind, note, href) {
  const isQuiet = value === 0 || value === null;
  return h("a", { class: `tile ${kind}${isQuiet ? " quiet" : ""}`, href }, h("span", { class: "label" }, icon(kind), label), h("b", null, typeof value === "number" ? count(value) : (value ?? "–")), h("small", null, note));
}

/**
 * @param {Stats} stats
 * @param {number | null} rate of the history, until this page has two readings
 */
function tiles(stats, rate) {
  const completed = perMinute(rate);
  const done = completed === null ? null : completed < 10 ? Math.round(completed * 10) / 10 : Math.round(completed);
  const jobs = (/** @type {string} */ state) => link("jobs", "", { state });
  return [
    tile("ready", stats.ready, "queued", stats.queued > stats.ready ? `and ${count(stats.queued - stats.ready)} paused or held back` : stats.ready ? `the oldest waits ${coarse(stats.oldest_queued_seconds)}` : "no job waits", jobs("queued")),
    tile("running", stats.running, "running", stats.workers === null ? "under a lease" : `${plural(stats.workers, "worker")} heard from in a minute`, jobs("running")),
    tile("scheduled", stats.scheduled, "scheduled", "wait for a time, signal or job", jobs("scheduled")),
    tile("done a minute", done, "completed", `${count(stats.completed_total)} in all`, jobs("completed")),
    stats.dead === null ? tile("died", stats.dead_total, "dead", "in all; Failures lists those that are kept", link("failures")) : tile("dead", stats.dead, "dead", `${count(stats.failed_total)} failed attempts in all`, link("failures")),
  ];
}

/**
 * @param {Stats} stats
 * @param {import("./server.js").Report | null} server
 */
function health(stats, server) {
  const age = stats.maintenance_age_seconds;
  const isLate = stats.backlog > 0 && stats.workers === 0 && (age === null || age > LATE);
  /** A line is bad, good, or (null) only a fact. @type {[string, boolean | null, import("./dom.js").Child][]} */
  const lines = [
    ["Oldest ready job", stats.oldest_queued_seconds > LONG || (stats.oldest_queued_seconds > LATE ? null : false), stats.ready ? `waits ${duration(stats.oldest_queued_seconds)}` : "none waits"],
    ["Maintenance", isLate, age === null ? "nothing was due yet" : `last needed ${coarse(age)} ago, ${stats.maintenance_by === null ? "by a hidden worker or tick" : `done by ${stats.maintenance_by}`}`],
    stats.workers === null ? ["Workers", null, HIDDEN] : ["Workers", stats.workers ? false : stats.ready > 0 || null, h("a", { href: link("workers") }, stats.workers ? `${count(stats.workers)} heard from in the last minute` : "none heard from in the last minute")],
    ["Without a worker", stats.unserved_jobs > 0, stats.unserved_jobs ? [`${plural(stats.unserved_jobs, "job")} in ${plural(stats.unserved_queues, "queue")}, for example `, queueLink(stats.unserved_example)] : "every queue is served"],
  ];
  if (stats.expired_total) lines.push(["Leases expired", null, `${count(stats.expired_total)} in all: their workers had died or lost the network`]);
  if (stats.missing_total) lines.push(["Data deleted by others", true, `${plural(stats.missing_total, "job")}: check maxmemory-policy with sublet doctor`]);
  if (stats.queues_left_out) lines.push(["Not counted", null, `${plural(stats.queues_left_out, "queue")}: only the thousand busiest are read`]);
  const rows = lines.map(([name, isBad, text]) => h("li", { key: name, class: isBad ? "bad" : null }, isBad === null ? h("span") : h("span", { class: isBad ? "badge warning" : "badge completed" }, icon(isBad ? "warning" : "completed"), h("span", { class: "hidden" }, isBad ? "Look at this:" : "Good:")), h("b", null, name), h("span", null, text)));
  return panel("Health", h("ul", { class: "health" }, rows, server && serverLine(server)));
}

function charts() {
  if (samples.length < 2) return panel("Since this page was opened", empty("Two readings make a line.", "The next one follows in a few seconds."));
  const step = IDLE * 1000;
  return panel("Since this page was opened", h("div", { class: "columns" },
    chart("Attempts a minute", samples, [{ name: "completed", kind: "completed", of: (one) => one.completed }, { name: "failed", kind: "dead", of: (one) => one.failed }], step),
    chart("Backlog", samples, [{ name: "ready", kind: "queued", of: (one) => one.ready }, { name: "running", kind: "running", of: (one) => one.running }, { name: "scheduled", kind: "scheduled", of: (one) => one.scheduled }], step)));
}

/** @param {import("./metrics.js").Figures} figures */
function times(figures) {
  const { wait, run } = figures;
  const names = [...new Set([...wait.keys(), ...run.keys()])].sort((a, b) => (run.get(b)?.count ?? 0) - (run.get(a)?.count ?? 0));
  if (!names.length) return null;
  const cell = (/** @type {import("./metrics.js").Histogram | undefined} */ one, /** @type {number} */ share) => {
    const value = one?.count ? percentile(one, share) : null;
    return h("td", { class: "number" }, value === null ? "–" : value === Infinity ? "> 1 h" : `≤ ${duration(value)}`);
  };
  const rows = names.slice(0, QUEUES).map((name) => h("tr", { key: name }, h("th", { scope: "row" }, name === "*" ? "other queues" : queueLink(name)), h("td", { class: "number" }, count(run.get(name)?.count ?? 0)), [0.5, 0.95, 0.99].map((share) => cell(wait.get(name), share)), [0.5, 0.95, 0.99].map((share) => cell(run.get(name), share))));
  const number = (/** @type {string} */ label) => ({ label, class: "number" });
  const heads = ["Queue", number("Ended attempts"), ...["Wait p50", "Wait p95", "Wait p99", "Run p50", "Run p95", "Run p99"].map(number)];
  const more = names.length > QUEUES ? h("p", { class: "faint" }, `${plural(names.length - QUEUES, "queue")} with fewer ended attempts: see Queues.`) : null;
  return panel("Waiting and running by queue, since its first job", table("Times by queue", heads, rows, { class: "scroll" }), more);
}
