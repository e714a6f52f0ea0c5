/** Reads figures by queue from `/metrics`, the text that Prometheus reads. */
import { call, can, readAt, whenDescribed } from "./api.js";

/** @typedef {{count: number, sum: number, buckets: [number, number][]}} Histogram */
/** @typedef {{at: number, oldest: Map<string, number>, done: Map<string, number>, wait: Map<string, Histogram>, run: Map<string, Histogram>}} Figures */

const LINE = /^(\w+)\{([^}]*)\} (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/** Rates are those of this time. */
const SPAN = 180_000;
/** Rates are of at least this time, in ms: in a shorter one a burst would become a rate that never was. */
const MINUTE = 60_000;
/** Two readings that are closer give no rate. */
const APART = 8_000;
/** The readings of that time, the oldest first. @type {Figures[]} */
const readings = [];

/**
 * @param {string} text
 * @param {number} at when it was read, in ms
 * @returns {Figures}
 */
export function parse(text, at = 0) {
  const figures = { at, oldest: new Map(), done: new Map(), wait: new Map(), run: new Map() };
  for (const line of text.split("\n")) {
    const found = LINE.exec(line);
    if (!found) continue;
    const [, name = "", labels = "", value = ""] = found;
    const by = Object.fromEntries([...labels.matchAll(LABEL)].map(([, key, one]) => [key, one]));
    const queue = by.queue ?? "";
    if (name === "sublet_oldest_queued_seconds") figures.oldest.set(queue, Number(value));
    if (name === "sublet_jobs_finished_total" && by.outcome === "completed") figures.done.set(queue, Number(value));
    const part = /^sublet_job_(wait|run)_seconds_(bucket|sum|count)$/.exec(name);
    if (part) add(figures[/** @type {"wait" | "run"} */ (part[1])], queue, part[2] ?? "", by.le ?? "", Number(value));
  }
  return figures;
}

/**
 * @param {Map<string, Histogram>} all
 * @param {string} queue
 * @param {string} part
 * @param {string} le
 * @param {number} value
 */
function add(all, queue, part, le, value) {
  const one = all.get(queue) ?? { count: 0, sum: 0, buckets: [] };
  if (part === "bucket") one.buckets.push([le === "+Inf" ? Infinity : Number(le), value]);
  else one[/** @type {"sum" | "count"} */ (part)] = value;
  all.set(queue, one);
}

/** Whether there are two readings, which make a rate. */
const hasRates = () => readings.length > 1;

/**
 * An upper bound of a percentile: the bound of its class; Infinity beyond the last one.
 * @param {Histogram} one
 * @param {number} share
 */
export const percentile = (one, share) => one.buckets.find(([, n]) => n >= share * one.count)?.[0] ?? Infinity;

/**
 * Jobs completed and attempts failed per minute, by the readings of the last minutes; null where there are too few.
 * @param {string} queue
 * @param {Figures[]} [of]
 * @returns {{completed: number, failed: number} | null}
 */
export function rates(queue, of = readings) {
  const last = of.at(-1);
  const first = of.find(({ at }) => last && last.at - at >= APART);
  if (!last || !first || !last.done.has(queue)) return null;
  const since = (/** @type {(one: Figures) => number | undefined} */ value) => (MINUTE * ((value(last) ?? 0) - (value(first) ?? 0))) / Math.max(MINUTE, last.at - first.at);
  const completed = since(({ done }) => done.get(queue));
  const ended = since(({ run }) => run.get(queue)?.count);
  return completed < 0 || ended < completed ? null : { completed, failed: ended - completed };
}

/** @param {Figures} figures */
function keep(figures) {
  if (figures.at - (readings.at(-1)?.at ?? 0) >= APART) readings.push(figures);
  while (readings[0] && figures.at - readings[0].at > SPAN) readings.shift();
  return figures;
}

/** Milliseconds between two readings beside a view; and until there are rates: the server keeps totals, and two readings make a rate. */
const EVERY = 15_000;
const FIRST = 8500;

/**
 * Reads the figures beside a view.
 * @param {() => void} paint
 */
export function follower(paint) {
  let at = 0;
  const own = {
    /** @type {Figures | null} */
    found: null,
    follow: () => Date.now() - at > EVERY && read(),
  };
  function read() {
    at = Date.now();
    void readFigures().then((found) => {
      own.found = found ?? own.found;
      paint();
      if (found && !hasRates()) setTimeout(() => document.hidden || read(), FIRST);
    });
  }
  return own;
}

/**
 * @returns {Promise<Figures | null>} null where the server or the token gives none
 */
export async function readFigures() {
  await whenDescribed();
  if (!can("GET", "/metrics")) return null;
  return call("GET", "metrics", { text: true }).then((answer) => keep(parse(answer.text, readAt(answer))), () => null);
}
