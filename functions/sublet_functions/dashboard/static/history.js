/** Reads the history, and draws its charts. */
import { ApiError, call, lacks } from "./api.js";
import { chart } from "./chart.js";
import { h } from "./dom.js";
import { link } from "./router.js";
import { empty } from "./widgets.js";

/** @typedef {{at: number, [name: string]: number | null}} Point */
/** @typedef {{span: string, step: number, points: Point[]}} History */

/** Spans, by their name in URLs. @type {Record<string, [string, string]>} */
const SPANS = { hour: ["Hour", "The last hour"], day: ["Day", "The last day"], month: ["30 days", "The last 30 days"] };

/** @param {URLSearchParams} query */
export const spanOf = (query) => (Object.hasOwn(SPANS, query.get("span") ?? "") ? (query.get("span") ?? "") : "hour");

/**
 * Turn the lists of an answer into points.
 * @param {any} body
 * @returns {History}
 */
export function parse(body) {
  const begin = Date.parse(body.start);
  const step = 1000 * body.step_seconds;
  const names = Object.keys(body).filter((name) => Array.isArray(body[name]));
  const points = body.queued.map((/** @type {unknown} */ _, /** @type {number} */ i) => Object.fromEntries([["at", begin + i * step], ...names.map((name) => [name, body[name][i]])]));
  return { span: body.span, step, points };
}

/**
 * @param {string} span
 * @returns {Promise<History | null | undefined>} null where the server or the token gives none; undefined after a failure
 */
export const readHistory = async (span) =>
  lacks("GET", "/history") ? null : call("GET", "history", { query: { span } }).then(parse, (error) => (error instanceof ApiError && [403, 404].includes(error.status) ? null : undefined));

/** Minutes after which a sample is too old for a present rate. */
const RECENT = 5;

/**
 * Jobs completed a minute, by the latest of the last minutes that has a sample.
 * @param {History | null | undefined} history of minutes
 * @returns {number | null}
 */
export const latest = (history) => history?.points.slice(-RECENT).findLast((one) => one.completed_per_minute !== null)?.completed_per_minute ?? null;

/**
 * @param {string} span
 * @param {History | null} history null until it is read
 * @param {Point} present what the page shows as of now: the lines end with it
 */
export function historyPanel(span, history, present) {
  const items = Object.entries(SPANS).map(([name, [label]]) => h("li", null, h("a", { href: link("", "", { span: name === "hour" ? null : name }), "aria-current": name === span ? "true" : null }, label)));
  const head = h("div", { class: "title" }, h("h2", null, SPANS[span]?.[1]), h("nav", { class: "spans", "aria-label": "Span of the charts" }, h("ul", null, items)));
  return h("section", { class: "panel", key: "history" }, head, history?.span === span ? charts(history, present) : h("p", { class: "loading", role: "status" }, "Reading…"));
}

/**
 * @param {History} history
 * @param {Point} present
 */
function charts({ points, step }, present) {
  if (points.every((one) => one.running === null)) return empty("No samples yet.", "A worker or a tick takes one a minute. Where none runs, there is a gap.");
  const isGap = (/** @type {Point} */ one) => one.running === null;
  const line = (/** @type {string} */ name, /** @type {string} */ kind, /** @type {string} */ of) => ({ name, kind, of: (/** @type {Point} */ one) => one[of] ?? null });
  const drawn = [
    chart("Throughput a minute", points, [line("submitted", "queued", "submitted_per_minute"), line("completed", "completed", "completed_per_minute")], step, isGap, present),
    chart("Failures a minute", points, [line("failed attempts", "warning", "failed_per_minute"), line("dead jobs", "dead", "dead_per_minute")], step, isGap, present),
    chart("Backlog", points, [line("queued", "queued", "queued"), line("running", "running", "running"), line("scheduled", "scheduled", "scheduled")], step, isGap, present),
  ];
  return [h("div", { class: "columns three" }, drawn), points.slice(0, -2).some(isGap) ? h("p", { class: "faint" }, "Grey: no samples, as no worker or tick ran.") : null];
}
