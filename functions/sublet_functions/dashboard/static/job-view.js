/** One job: its life as a waterfall, each attempt, and its data. */
import { call, enc, now, seenAt, seesPayloads } from "./api.js";
import { h } from "./dom.js";
import { bytes, clock, count, duration, plural } from "./format.js";
import { progress } from "./jobs-view.js";
import { jobOrders } from "./orders.js";
import { link } from "./router.js";
import { Stream } from "./stream.js";
import { Upstream } from "./upstream.js";
import { awaits, badge, countdown, data, dueLabel, empty, facts, groupLink, icon, isOutdated, isOver, longText, moment, ms, panel, queueLink, table, tagLinks, waiting, waitsFor } from "./widgets.js";

/** @typedef {any} Job */
/** @typedef {{name: string, kind: string, from: number, to: number, worker: string, note: string}} Span */

/** Codes of attempts that ended without a failure, and the state that the job then had. */
const NEUTRAL = new Map([["released", "queued"], ["suspended", "scheduled"]]);
/** Most kept steps that are shown. */
const STEPS = 100;
/** Most failed jobs that the note of a held job names. */
const NAMED = 5;

/**
 * @param {import("./router.js").Place} place
 * @param {import("./main.js").Page} page
 * @returns {import("./main.js").View}
 */
export function open(place, page) {
  /** @type {Job} */
  let job = null;
  let seen = 0;
  const upstream = new Upstream(page);
  const stream = new Stream(page);
  return {
    title: place.name,
    load: async () => {
      job = await call("GET", `jobs/${enc(place.name)}`);
      seen = seenAt(job);
      stream.load(job);
      await upstream.load(job);
    },
    render: () => {
      if (isOutdated(job.lease_expires_at, seen)) page.reload();
      return render(job, page, seen, upstream, stream);
    },
    touched: (events) => events.some((event) => !job || event.jobs.includes(job.id) || upstream.has(event)),
    every: 5,
    get everyLive() {
      return job?.state === "running" || job?.waits_for ? 5 : 20; // heartbeats, progress, an erase, and the end of another job of its group are not its events
    },
    ticks: () => job?.state === "running" || job?.state === "scheduled",
    rest: 0.5,
  };
}

/**
 * @param {Job} job
 * @param {import("./main.js").Page} page
 * @param {number} seen when the server read it, in ms of its clock
 * @param {Upstream} upstream
 * @param {Stream} stream
 */
function render(job, page, seen, upstream, stream) {
  const { paint } = page;
  const isLost = job.state === "running" && isOver(job.lease_expires_at, seen);
  const result = job.state === "completed" ? panel(`Result${job.result_bytes ? ` · ${bytes(job.result_bytes)}` : ""}`, data(job.result, `${job.id} result`, paint, "Result")) : null;
  return [
    h("p", { class: "crumbs" }, h("a", { href: link("jobs") }, "Jobs"), " / ", queueLink(job.queue)),
    h("div", { class: "title" }, h("h1", { id: "title" }, job.task), badge(job.state), awaits(job)[0] === "retry" ? badge("held") : null, isLost ? badge("warning", "lease ended") : null, job.cancel_requested_at && job.state === "running" ? badge("cancelled", "cancel asked") : null),
    h("p", { class: "subtitle" }, h("code", null, job.id)),
    h("div", { class: "row orders" }, jobOrders(job, page)),
    ["dead", "cancelled"].includes(job.state) && job.last_error ? h("div", { class: "note error" }, icon(job.state), h("p", null, h("code", { class: "code" }, job.last_error.code), " ", wholeError(job))) : null,
    isLost ? h("div", { class: "note" }, icon("warning"), h("p", null, "No heartbeat arrived before the lease ended: the worker has died, or cannot be reached. The next claim of this queue, or a tick, gives the job to another worker.")) : null,
    job.waits_for ? h("div", { class: "note" }, icon("held"), h("p", null, "It waits: ", waitsFor(job), ".")) : null,
    job.awaits ? h("div", { class: "note" }, icon("held"), h("p", null, awaited(job, upstream))) : null,
    panel("Facts", about(job, seen)),
    panel("Life", waterfall(job, isLost, upstream)),
    panel("Attempts", attempts(job, page)),
    stream.render(),
    upstream.render(job),
    job.steps.length ? panel("Kept steps", steps(job)) : null,
    h("div", { class: "columns" }, panel("Payload", job.payload === null && seesPayloads() ? h("p", { class: "faint" }, "Deleted after completion.") : data(job.payload, `${job.id} payload`, paint, "Payload")), result, job.checkpoint === null ? null : panel("Checkpoint", data(job.checkpoint, `${job.id} checkpoint`, paint, "Checkpoint"))),
  ];
}

/**
 * The message of the last error, of which a job keeps the beginning, and its attempt more.
 * @param {Job} job
 * @returns {string}
 */
function wholeError({ last_error: { message }, attempts: all }) {
  const more = all.at(-1)?.message ?? "";
  return more.startsWith(message) ? more : message;
}

/**
 * @param {Job} job
 * @param {Upstream} upstream the jobs that it waits for, with those that have ended
 */
function awaited(job, upstream) {
  const [kind, what] = awaits(job);
  const until = job.due_at ? [" until ", moment(job.due_at, { exact: true })] : null;
  if (kind === "retry") return ["It is held: waits for the retry of ", failedOnes(what, upstream), until, "."];
  const some = kind === "upstream" && Number(what) < upstream.count;
  return [`It ${some ? `waits for ${count(Number(what))} of ${plural(upstream.count, "job")}` : waiting(job)}`, until, "."];
}

/**
 * The jobs whose retry a held job waits for.
 * @param {string} cause one of them
 * @param {Upstream} upstream
 */
function failedOnes(cause, { failed, isWhole }) {
  const ids = failed.length ? failed.map(({ id }) => id) : [cause];
  const links = ids.slice(0, NAMED).map((id, i) => [i ? ", " : "", h("a", { href: link("jobs", id) }, h("code", null, id))]);
  const more = ids.length - NAMED;
  return [links, more > 0 ? ` and ${isWhole ? "" : "at least "}${count(more)} more` : isWhole ? "" : " and perhaps others"];
}

/** @param {Job} job */
function steps({ steps: all }) {
  const last = all.slice(-STEPS);
  const rows = last.map((/** @type {any} */ one) => h("tr", { key: one.name }, h("th", { scope: "row" }, one.name), h("td", null, one.kind), h("td", { class: "number" }, bytes(one.bytes)), h("td", { class: "when" }, moment(one.kept_at, { exact: true }))));
  const more = all.length > STEPS ? h("p", { class: "faint" }, `The last ${STEPS} of ${count(all.length)}.`) : null;
  return [table("Kept steps", ["Step", "Kind", { label: "Size", class: "number" }, "Kept"], rows), more];
}

/**
 * The worker that has the job, or had it last.
 * @param {Job} job
 * @returns {string | null}
 */
const lastWorker = (job) => job.worker ?? job.attempts.at(-1)?.worker ?? null;

/**
 * @param {Job} job
 * @param {number} seen
 */
function about(job, seen) {
  return facts([
    ["Queue", queueLink(job.queue)],
    ["Tries", `${job.max_attempts - job.tries_left} of ${job.max_attempts} used, ${job.attempt ? `claimed ${job.attempt === 1 ? "once" : `${count(job.attempt)} times`}` : "not yet claimed"}`],
    ["Submitted", moment(job.submitted_at, { exact: true })],
    [dueLabel(job), job.due_at && moment(job.due_at, { exact: true })],
    ["Ended", job.finished_at && moment(job.finished_at, { exact: true })],
    ["Worker", lastWorker(job) && h("a", { href: job.worker ? link("workers") : link("jobs", "", { worker: lastWorker(job) }) }, lastWorker(job))],
    ["Lease", job.lease_expires_at && countdown(job.lease_expires_at, seen)],
    ["Heartbeat", job.heartbeat_at && moment(job.heartbeat_at)],
    ["Progress", job.progress !== null && progress(job.progress)],
    ["Priority", job.priority || null],
    ["Workflow", job.workflow && h("a", { class: "id", href: link("workflows", job.workflow, { job: job.id }), title: job.workflow }, job.workflow)],
    ["Group", groupLink(job.queue, job.group)],
    ["Cost", job.cost > 1 && count(job.cost)],
    ["Tags", job.tags.length ? tagLinks(job.tags) : null],
    ["Key", job.key && h("code", null, job.key)],
    ["Schedule", job.schedule && h("a", { href: link("schedules", job.schedule) }, job.schedule)],
    [job.schedule ? "Occurrence" : "Time asked for", job.run_at && moment(job.run_at, { exact: true })],
    ["Trace", job.trace && h("code", null, job.trace)],
    ["Revision", job.revision],
  ]);
}

/**
 * What the job did between an attempt and the next one.
 * @param {any} before the attempt; null before the first one
 */
function waited(before) {
  if (!before) return "waited";
  const [kind, step] = before.code === "suspended" ? (before.message ?? "").split(" ", 2) : [];
  if (kind === "signal") return `waited for signal ${step}`;
  if (kind === "call") return `waited for the job of step ${step}`;
  return kind === "sleep" ? `slept: ${step}` : "waited again";
}

/**
 * The spans of a job's life, in order.
 * @param {Job} job
 * @param {boolean} isLost
 * @param {number} heldSince ms; NaN: not known
 * @returns {Span[]}
 */
export function spans(job, isLost, heldSince) {
  const out = /** @type {Span[]} */ ([]);
  let at = ms(job.submitted_at);
  /** @type {any} */
  let before = null;
  const wait = (/** @type {number} */ to, /** @type {string} */ name) => {
    if (to - at > 0) out.push({ name, kind: "wait", from: at, to, worker: "", note: "" });
    at = Math.max(at, to || at);
  };
  for (const one of job.attempts) {
    wait(ms(one.claimed_at), waited(before));
    out.push({ name: `attempt ${one.number}`, kind: one.code === "completed" ? "good" : NEUTRAL.has(one.code) ? "wait" : "bad", from: ms(one.claimed_at), to: ms(one.ended_at), worker: one.worker, note: one.code });
    at = ms(one.ended_at);
    before = one;
  }
  const end = job.finished_at ? ms(job.finished_at) : now();
  if (job.state === "running") {
    wait(ms(job.claimed_at), waited(before));
    out.push({ name: `attempt ${job.attempt}`, kind: isLost ? "late" : "running", from: ms(job.claimed_at), to: end, worker: job.worker ?? "", note: "running" });
  } else if (awaits(job)[0] === "retry") {
    wait(heldSince, "waited for jobs");
    wait(end, Number.isNaN(heldSince) ? "waited for jobs, then held" : waiting(job));
  } else if (!job.finished_at) {
    wait(end, job.state === "scheduled" ? waiting(job) : job.waits_for ? "waits for a limit" : "waits for a worker");
  } else if (!job.attempts.length) {
    wait(end, job.state);
  }
  return out;
}

/** @param {Span} span */
function outcome({ kind, note }) {
  if (!note) return null;
  if (kind === "running") return badge("running");
  if (kind === "late") return badge("warning", "lease ended");
  if (kind === "good") return badge("completed");
  return kind === "wait" ? badge(NEUTRAL.get(note) ?? "queued", note) : h("code", { class: "code" }, note);
}

/**
 * @param {Job} job
 * @param {boolean} isLost
 * @param {Upstream} upstream
 */
function waterfall(job, isLost, { heldSince }) {
  const all = spans(job, isLost, heldSince);
  if (!all.length) return empty("Nothing has happened yet.", "The job was submitted a moment ago.");
  const begin = all[0]?.from ?? 0;
  const length = Math.max(1, (all.at(-1)?.to ?? 0) - begin);
  const rows = all.map((one, i) => {
    const bar = h("span", { class: `bar ${one.kind}`, style: { left: `${(100 * (one.from - begin)) / length}%`, width: `${(100 * (one.to - one.from)) / length}%` } });
    return h("tr", { key: `span-${i}` }, h("th", { scope: "row" }, one.name), h("td", { class: "number" }, duration((one.to - one.from) / 1000)), h("td", { class: "track", "aria-hidden": "true" }, bar), h("td", null, clock(one.from)), h("td", { class: "cut", title: one.worker }, one.worker || null), h("td", null, outcome(one)));
  });
  return table("Life of the job", ["Span", { label: "Took", class: "number" }, { label: "From submit to now or its end", class: "track" }, "Began", "Worker", "Outcome"], rows, { class: "scroll" });
}

/**
 * @param {Job} job
 * @param {import("./main.js").Page} page
 */
function attempts(job, page) {
  const running = job.state === "running" ? [runningAttempt(job, page)] : [];
  const ended = [...job.attempts].reverse().map((one, i) => attempt(job, one, page, i === 0 && !running.length));
  const skipped = job.attempts.length >= 10 && job.attempt > job.attempts.length;
  if (!running.length && !ended.length) return empty("No attempt yet.", job.state === "queued" ? job.waits_for ? "The job is held back." : "The job waits for a worker of its queue." : "The job has not been claimed.");
  return h("div", { class: "attempts" }, running, ended, skipped ? h("p", { class: "faint" }, "The first five and the last five attempts are kept.") : null);
}

/**
 * @param {Job} job
 * @param {import("./main.js").Page} page
 */
function runningAttempt(job, page) {
  return h("details", { key: `attempt-${job.attempt}`, open: true }, h("summary", null, h("b", null, `Attempt ${job.attempt}`), badge("running"), h("span", { class: "faint" }, job.worker)), logOf(job.log, `${job.id} log`, page) ?? h("p", { class: "faint" }, "No log lines yet."));
}

/**
 * @param {Job} job
 * @param {any} one
 * @param {import("./main.js").Page} page
 * @param {boolean} isOpen
 */
function attempt(job, one, page, isOpen) {
  const key = `${job.id} ${one.number}`;
  const took = duration((ms(one.ended_at) - ms(one.claimed_at)) / 1000);
  const isGood = one.code === "completed";
  const head = h("summary", null, h("b", null, `Attempt ${one.number}`), isGood ? badge("completed") : badge(NEUTRAL.get(one.code) ?? "dead", one.code), h("span", null, `after ${took}`), h("span", { class: "faint" }, one.worker), moment(one.ended_at));
  const parts = [
    one.message ? h("p", { class: "message" }, one.message.slice(0, 4096)) : null,
    one.detail ? longText(one.detail, `${key} detail`, page.paint, `Detail of attempt ${one.number}`) : null,
    logOf(one.log, `${key} log`, page),
  ].filter(Boolean);
  return h("details", { key: `attempt-${one.number}-${one.claimed_at}`, open: isOpen && !isGood }, head, parts.length ? parts : h("p", { class: "faint" }, "It left no message and no log."));
}

/**
 * @param {string[]} lines
 * @param {string} key
 * @param {import("./main.js").Page} page
 */
const logOf = (lines, key, page) => (lines.length ? h("div", { class: "log" }, h("h3", null, "Log"), longText(lines.join("\n"), key, page.paint, "Log")) : null);
