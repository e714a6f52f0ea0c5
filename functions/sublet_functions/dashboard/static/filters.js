/** The filter of a list of jobs: it is the query of the URL. */
import { can, parameters } from "./api.js";
import { h } from "./dom.js";
import { go, link } from "./router.js";

/** @typedef {import("./dom.js").Child} Child */
/** @typedef {Record<string, string[]>} Names suggestions by the name of a filter */

/** Filters with a field of their own: name, label, hint. @type {[string, string, string][]} */
const NAMED = [
  ["queue", "queue", "Only jobs of this queue"],
  ["task", "task", "Only jobs of this task"],
  ["tag", "tag", "Only jobs with this tag"],
  ["group", "group", "Only jobs of this group"],
  ["code", "error code", "Only jobs whose last error has this code"],
  ["worker", "worker", "Only jobs whose last attempt this worker has or had"],
];
/** Filters by the time of the submission, in local time here, in UTC in the URL. @type {[string, string, string][]} */
const TIMES = [
  ["since", "submitted since", "Only jobs submitted then or later"],
  ["until", "submitted before", "Only jobs submitted before"],
];
/** Parameters that are not filters beside the state. */
const OTHER = new Set(["state", "limit", "cursor"]);
const OWN = new Set([...NAMED, ...TIMES].map(([name]) => name));

/**
 * Whether the URL has a filter besides states.
 * @param {URLSearchParams} query
 */
export const isFiltered = (query) => [...query.keys()].some((name) => !OTHER.has(name));

/**
 * The URL with another filter, at its first page.
 * @param {URLSearchParams} query
 * @param {Record<string, string>} changes "" removes a filter
 */
export function moved(query, changes) {
  const next = new URLSearchParams(query);
  for (const [name, value] of Object.entries({ cursor: "", ...changes })) {
    next.delete(name);
    if (value) next.set(name, value);
  }
  return link("jobs", "", next);
}

/**
 * The local time of a moment, as its field has it; "" if it is not a time.
 * @param {string | null} iso
 */
export function localTime(iso) {
  const at = new Date(iso ?? NaN);
  return Number.isNaN(at.getTime()) ? "" : new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/** @param {string} local with or without seconds */
const utc = (local) => new Date(local).toISOString().replace(".000Z", "Z");

/**
 * The fields' values as changes of the URL. A time that is as it was is left as the URL has it.
 * @param {URLSearchParams} query
 * @param {FormData} data
 */
function changes(query, data) {
  const found = /** @type {Record<string, string>} */ ({});
  for (const [name, value] of data) {
    const text = String(value).trim();
    const isTime = TIMES.some(([one]) => one === name);
    if (!isTime || !text) found[name] = text;
    else if (text.padEnd(19, ":00") !== localTime(query.get(name))) found[name] = utc(text);
  }
  return found;
}

/**
 * @param {URLSearchParams} query
 * @param {Names} names
 */
export function filters(query, names) {
  const others = can("GET", "/jobs") ? parameters("GET", "/jobs").filter(({ name }) => !OTHER.has(name) && !OWN.has(name)) : [];
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    go(moved(query, changes(query, new FormData(/** @type {HTMLFormElement} */ (event.currentTarget)))));
  };
  const one = (/** @type {string} */ name, /** @type {string} */ label, /** @type {Record<string, any>} */ props) =>
    h("label", { key: `filter-${name}-${query.get(name) ?? ""}` }, h("span", null, label), h("input", { name, value: query.get(name) ?? "", autocomplete: "off", spellcheck: "false", placeholder: "any", ...props }));
  const list = (/** @type {string} */ name) => h("datalist", { id: `known-${name}`, key: `known-${name}` }, (names[name] ?? []).map((value) => h("option", { value, key: value })));
  return h("form", { class: "filters", role: "search", "aria-label": "Filter", novalidate: true, onSubmit: submit },
    NAMED.filter(([name]) => name !== "group" || query.has(name) || names.group?.length).map(([name, label, title]) => [one(name, label, { title, list: `known-${name}` }), list(name)]),
    TIMES.map(([name, label, title]) => one(name, label, { title, type: "datetime-local", value: localTime(query.get(name)), placeholder: null })),
    others.map(({ name, description }) => one(name, name, { title: description })),
    h("button", null, "Filter"),
    isFiltered(query) ? h("a", { class: "button quiet", href: link("jobs", "", new URLSearchParams(query.getAll("state").map((state) => ["state", state]))) }, "Clear") : null);
}
