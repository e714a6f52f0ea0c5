/** The orders that people gave, newest first. */
import { call } from "./api.js";
import { h } from "./dom.js";
import { storedWords } from "./limits.js";
import { link } from "./router.js";
import { empty, moment, queueLink, table } from "./widgets.js";

/** @typedef {{at: string, by: string, verb: string, what: string, queue: string, outcome: string}} Entry */

const PAGE = 50;
/** Orders whose outcome is a list of settings. */
const SETTINGS = new Set(["configure", "group"]);
const QUEUES = new Set(["configure", "pause", "resume"]);
const JOB = new Set(["cancel", "retry", "promote", "reschedule", "erase", "signal"]);
/** Orders by the names that their buttons have, or their commands. */
const NAMES = new Map([["promote", "run now"], ["group", "change"], ["schedule-run", "run now"], ["schedule-put", "add or change"], ["pool-put", "set"]]);
/** Words of outcomes, by order. @type {Map<string, [string, string][]>} */
const WORDS = new Map([
  ["retry", [["queued", "queued again"], ["scheduled", "waiting again"], ["done", "queued again"]]],
  ["cancel", [["requested", "asked to stop"], ["done", "cancelled"]]],
  ["promote", [["done", "queued"]]],
  ["erase", [["done", "erased"]]],
  ["purge", []],
  ["drain", [["requested", "asked to drain"]]],
]);
/** @type {[string, string][]} */
const ANY = [["unchanged", "changed by others"], ["skipped", "changed by others"]];

/**
 * @param {import("./router.js").Place} place
 * @returns {import("./main.js").View}
 */
export function open(place) {
  /** @type {Entry[]} */
  let entries = [];
  let next = "";
  const cursor = place.query.get("cursor") ?? "";
  return {
    title: "Audit",
    load: async () => {
      const answer = await call("GET", "audit", { query: { limit: PAGE, cursor } });
      entries = answer.entries;
      next = answer.cursor ?? "";
    },
    render: () => [
      h("h1", { id: "title" }, "Audit"),
      h("p", { class: "subtitle" }, "Orders by people, with the name of their token, or user and host of a command. About 1,000 are kept."),
      entries.length ? h("div", { class: "panel" }, list(entries)) : empty("No orders on this page.", "Cancel, retry, pause, drain and other orders are listed here."),
      h("nav", { class: "row end", "aria-label": "Pages" }, cursor && h("a", { rel: "first", class: "button", href: link("audit") }, "First page"), next && h("a", { rel: "next", class: "button", href: link("audit", "", { cursor: next }) }, "Next page")),
    ],
    touched: (events) => events.some(({ code }) => JOB.has(code)),
    every: 15,
    everyLive: 15,
  };
}

/** @param {Entry[]} entries */
function list(entries) {
  const rows = entries.map((one, i) =>
    h("tr", { key: `${one.at} ${one.verb} ${one.what} ${i}` },
      h("td", { class: "when" }, moment(one.at)), h("th", { scope: "row" }, one.by), h("td", { class: "when", title: one.verb }, nameOf(one)), h("td", { class: "wrap" }, subject(one)),
      h("td", null, one.queue ? queueLink(one.queue) : null), outcome(one)));
  return table("Audit", ["When", "By", "Order", "What", "Queue", "Outcome"], rows);
}

/**
 * The name of an order, as on its button.
 * @param {Entry} one
 */
function nameOf({ verb, what, outcome: text }) {
  if (verb === "cancel" && /^state=queued queue=[^ ]+$/.test(what)) return "Purge";
  if (verb === "cancel" && / code=/.test(what) && !/\bstate=/.test(what)) return "Cancel waiting";
  if (verb === "group" && text === "no settings") return "Remove";
  const name = NAMES.get(verb) ?? verb.replace(/^(schedule|pool)-/, "");
  return name.slice(0, 1).toUpperCase() + name.slice(1);
}

/** @param {Entry} one */
function outcome({ verb, outcome: text }) {
  const own = WORDS.get(verb);
  const known = new Map([...ANY, ...(own ?? [])]);
  const words = SETTINGS.has(verb) ? storedWords(text) : own ? text.replace(/\b[a-z]+\b/g, (word) => known.get(word) ?? word) : text;
  return h("td", { class: "wrap", title: words === text ? null : text }, words);
}

/** @param {Entry} one */
function subject({ verb, what, queue }) {
  const named = (/** @type {string} */ kind, /** @type {string} */ url) => [`${kind} `, h("a", { href: url }, what)];
  if (verb === "group") return named("group", link("queues", queue, { group: what }));
  if (QUEUES.has(verb)) return named("queue", link("queues", what));
  if (verb === "drain") return named("worker", link("workers"));
  if (verb.startsWith("pool-")) return named("pool", link("workers"));
  if (verb.startsWith("schedule-")) return named("schedule", link("schedules", what));
  const [, flow] = /^workflow=([^ ]+)$/.exec(what) ?? [];
  if (flow) return ["workflow ", h("a", { class: "id", href: link("workflows", flow), title: flow }, flow)];
  const isJob = JOB.has(verb) && /^[0-9]+-[^= ]+$/.test(what);
  return isJob ? ["job ", h("a", { class: "id", href: link("jobs", what), title: what }, what)] : JOB.has(verb) ? `jobs: ${what}` : what;
}
