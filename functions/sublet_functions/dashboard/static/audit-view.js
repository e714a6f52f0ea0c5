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
const JOB = new Set(["cancel", "retry", "promote", "reschedule", "signal"]);

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
      h("td", { class: "when" }, moment(one.at)), h("th", { scope: "row" }, one.by), h("td", { class: "when" }, one.verb), h("td", { class: "wrap" }, subject(one)),
      h("td", null, one.queue ? queueLink(one.queue) : null), outcome(one)));
  return table("Audit", ["When", "By", "Order", "What", "Queue", "Outcome"], rows);
}

/** @param {Entry} one */
function outcome({ verb, outcome: text }) {
  const words = SETTINGS.has(verb) ? storedWords(text) : text;
  return h("td", { class: "wrap", title: words === text ? null : text }, words);
}

/** @param {Entry} one */
function subject({ verb, what, queue }) {
  if (verb === "group") return ["group ", h("a", { href: link("queues", queue, { group: what }) }, what)];
  if (QUEUES.has(verb)) return h("a", { href: link("queues", what) }, what);
  if (verb === "drain" || verb.startsWith("pool-")) return h("a", { href: link("workers") }, what);
  if (verb.startsWith("schedule-")) return h("a", { href: link("schedules", what) }, what);
  const isJob = JOB.has(verb) && /^[0-9]+-[^= ]+$/.test(what);
  return isJob ? h("a", { class: "id", href: link("jobs", what), title: what }, what) : what;
}
