/** Reads figures by queue from `/metrics`, the text that Prometheus reads. */
import { call, can, whenDescribed } from "./api.js";

/** @typedef {{count: number, sum: number, buckets: [number, number][]}} Histogram */
/** @typedef {{oldest: Map<string, number>, wait: Map<string, Histogram>, run: Map<string, Histogram>}} Figures */

const LINE = /^(\w+)\{([^}]*)\} (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/**
 * @param {string} text
 * @returns {Figures}
 */
export function parse(text) {
  const figures = { oldest: new Map(), wait: new Map(), run: new Map() };
  for (const line of text.split("\n")) {
    const found = LINE.exec(line);
    if (!found) continue;
    const [, name = "", labels = "", value = ""] = found;
    const by = Object.fromEntries([...labels.matchAll(LABEL)].map(([, key, one]) => [key, one]));
    const queue = by.queue ?? "";
    if (name === "sublet_oldest_queued_seconds") figures.oldest.set(queue, Number(value));
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

/**
 * An upper bound of a percentile: the bound of its class; Infinity beyond the last one.
 * @param {Histogram} one
 * @param {number} share
 */
export const percentile = (one, share) => one.buckets.find(([, n]) => n >= share * one.count)?.[0] ?? Infinity;

/**
 * @returns {Promise<Figures | null>} null where the server or the token gives none
 */
export async function readFigures() {
  await whenDescribed();
  if (!can("GET", "/metrics")) return null;
  return call("GET", "metrics", { text: true }).then(parse, () => null);
}
