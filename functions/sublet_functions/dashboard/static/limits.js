/** Limits of running jobs, of a queue and of its groups: as words, and as fields of a form. */
import { h } from "./dom.js";
import { refusal } from "./forms.js";
import { bytes, count, duration } from "./format.js";
import { field } from "./widgets.js";

/** @typedef {Record<string, number>} Limits */

/** What stands before the names of limits that a queue sets for each of its groups. */
const EACH = "group_";
/** Name, label and properties of the fields. @type {[string, string, Record<string, any>][]} */
const FIELDS = [
  ["concurrency", "Jobs at once", { min: 1 }],
  ["rate", "Tokens", { min: 1 }],
  ["per", "in seconds", { min: 0.001, step: "any" }],
  ["burst", "Saved up at most", { min: 1 }],
];

/**
 * What runs at most: `5 at once`, `60 per min`.
 * @param {Limits} limits
 */
function flowWords({ concurrency, rate, per, burst }) {
  const found = [];
  const time = (Number(per) < 10 ? `${per} s` : duration(Number(per))).replace(/^1 (?=\w+$)/, "");
  if (concurrency) found.push(`${count(Number(concurrency))} at once`);
  if (rate && per) found.push(`${count(Number(rate))} per ${time}${burst ? `, burst ${count(Number(burst))}` : ""}`);
  return found;
}

/**
 * What a queue sets for each of its groups.
 * @param {Limits} limits
 */
export const ofEachGroup = (limits) => Object.fromEntries(Object.entries(limits).flatMap(([name, value]) => (name.startsWith(EACH) ? [[name.slice(EACH.length), value]] : [])));

/**
 * A queue's limits and settings as words.
 * @param {{limits: Limits, on_dead?: string | null}} queue
 */
export function settingWords({ limits, on_dead }) {
  const plain = Object.entries(limits).filter(([name]) => !FIELDS.some(([flow]) => name === flow || name === EACH + flow));
  return [
    ...plain.map(([name, value]) => `${name} ${name === "bytes" ? bytes(Number(value)) : count(Number(value))}`),
    ...flowWords(limits),
    ...flowWords(ofEachGroup(limits)).map((text) => `each group: ${text}`),
    ...(on_dead ? [`dead → ${on_dead}`] : []),
  ];
}

/**
 * A group's limits as words: its own, and those that it has as each group of the queue.
 * @param {{limits: Limits, own: string[]}} group
 */
export function groupWords({ limits, own }) {
  const of = (/** @type {boolean} */ isOwn) => flowWords(Object.fromEntries(Object.entries(limits).filter(([name]) => own.includes(name) === isOwn)));
  return { own: of(true), usual: of(false) };
}

/**
 * Settings as scripts store them, `concurrency=5 per=500`, as words; the text itself if it is something else.
 * @param {string} text
 */
export function storedWords(text) {
  const pairs = text.split(" ").map((word) => /^(\w+)=(\S+)$/.exec(word));
  if (!text || pairs.some((pair) => !pair)) return text;
  /** @type {Record<string, any>} */
  const found = Object.fromEntries(pairs.map((pair) => [pair?.[1], pair?.[2]]));
  const { on_dead, share, ...limits } = found;
  for (const name of ["per", `${EACH}per`]) if (name in limits) limits[name] /= 1000;
  if (Object.values(limits).some((value) => !(Number(value) >= 0))) return text;
  return [...settingWords({ limits, on_dead }), ...(share ? [`share ${share}`] : [])].join(" · ");
}

/**
 * @param {string} title
 * @param {string} kind "" for the queue's or a group's own limits, `group_` for those of each group
 * @param {Limits} limits
 * @param {Limits} [usual] what applies where a field is empty
 */
export const flowFields = (title, kind, limits, usual = {}) =>
  h("fieldset", null, h("legend", null, title), h("div", { class: "row fields" }, FIELDS.map(([name, label, props]) => field(label, kind + name, { type: "number", ...props, value: limits[kind + name] ?? "", placeholder: usual[name] ?? "none" }))));

/** The same for the limits that apply to each group. @param {Limits} limits */
export const eachGroupFields = (limits) => flowFields("Each group", EACH, limits);

/**
 * The numbers that a user wrote; null for an empty field.
 * @param {FormData} data
 * @param {string[]} names
 * @returns {Record<string, number | null>}
 */
export const numbers = (data, names) => Object.fromEntries(names.map((name) => [name, data.get(name) === "" ? null : Number(data.get(name))]));

/**
 * The same, of the fields that `flowFields` makes.
 * @param {FormData} data
 * @param {string[]} kinds
 */
export function flowNumbers(data, kinds) {
  const found = numbers(data, kinds.flatMap((kind) => FIELDS.map(([name]) => kind + name)));
  for (const kind of kinds) if (found[`${kind}rate`] && !found[`${kind}per`]) throw refusal("Write in how many seconds these tokens come.", `${kind}per`);
  return found;
}

/** The numbers of a queue's fields. @param {FormData} data */
export const queueNumbers = (data) => ({ ...numbers(data, ["jobs", "bytes"]), ...flowNumbers(data, ["", EACH]) });
