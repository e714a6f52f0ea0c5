/** The jobs of a workflow by what they do or wait for: in its title, a note, and a bar with a legend. */
import { h } from "./dom.js";
import { count, plural } from "./format.js";
import { link } from "./router.js";
import { awaits, badge, icon } from "./widgets.js";

/** @typedef {import("./graph.js").Member} Member */
/** @typedef {import("./dom.js").Child} Child */
/** @typedef {any} Workflow */

/** States of unfinished jobs, in the order in which the bar has them. */
const LIVE = ["running", "queued", "scheduled", "held"];
const FAILED = ["dead", "cancelled"];
/** Most jobs that the note names. */
const NAMED = 5;

/**
 * The state of a job; `held` if it waits for the retry of one that failed.
 * @param {Member} job
 */
export const stateOf = (job) => (job.state === "scheduled" && awaits(job)[0] === "retry" ? "held" : job.state);

/**
 * The state by which a list finds these jobs.
 * @param {string} state
 */
export const listed = (state) => (state === "held" ? "scheduled" : state);

/**
 * The unfinished jobs by state; null while not all of them are known.
 * @param {Workflow} flow
 * @param {Map<string, Member>} members
 */
function liveOf(flow, members) {
  /** @type {Map<string, Member[]>} */
  const live = new Map(LIVE.map((state) => [state, []]));
  let n = 0;
  for (const job of members.values()) {
    const found = live.get(stateOf(job));
    found?.push(job);
    if (found) n += 1;
  }
  return n === flow.unfinished ? live : null;
}

/**
 * What an unfinished workflow does: runs, is held, or waits.
 * @param {Workflow} flow
 * @param {Map<string, Member>} members
 * @returns {Child}
 */
export function standing(flow, members) {
  const live = liveOf(flow, members);
  const of = (/** @type {string} */ state) => live?.get(state) ?? [];
  const held = of("held").length;
  const also = held ? badge("held", `${count(held)} held`) : null;
  if (!live || of("running").length) return [badge("active", "runs"), also];
  if (of("queued").length) return [badge("queued", "waits for a worker"), also];
  const kinds = of("scheduled").map((job) => awaits(job)[0]);
  if (kinds.includes("signal")) return [badge("scheduled", "waits for a signal"), also];
  if (kinds.some((kind) => kind !== "upstream")) return [badge("scheduled", "waits for a time"), also];
  return held ? badge("held", "held") : badge("scheduled", "waits");
}

/** @param {string[]} ids */
const links = (ids) => [ids.slice(0, NAMED).map((id, i) => [i ? ", " : "", h("a", { href: link("jobs", id) }, h("code", null, id))]), ids.length > NAMED ? ` and ${count(ids.length - NAMED)} more` : ""];

/**
 * What a person must do before the workflow can end: retry jobs, or send signals.
 * @param {Map<string, Member>} members
 */
export function todo(members) {
  const held = [...members.values()].filter((job) => stateOf(job) === "held");
  const signals = [...members.values()].filter((job) => job.state === "scheduled" && awaits(job)[0] === "signal");
  const names = [...new Set(signals.map((job) => awaits(job)[1]))];
  const failed = held.flatMap((job) => [awaits(job)[1], ...job.after.filter((id) => FAILED.includes(members.get(id)?.state ?? ""))]);
  const others = held.some(({ after, after_count }) => after_count > after.length) ? " and perhaps others" : "";
  const wait = (/** @type {number} */ n) => `${plural(n, "job")} ${n === 1 ? "waits" : "wait"} for`;
  return [
    held.length ? h("div", { class: "note" }, icon("held"), h("p", null, `Held: ${wait(held.length)} the retry of `, links([...new Set(failed)]), others, ".")) : null,
    signals.length ? h("div", { class: "note" }, icon("held"), h("p", null, `${wait(signals.length)} ${names.length === 1 ? `signal ${names[0]}` : "signals"}: `, links(signals.map(({ id }) => id)), ".")) : null,
  ];
}

/**
 * A bar with a part for each state, and its legend: the jobs of each.
 * @param {Workflow} flow
 * @param {Map<string, Member>} members
 */
export function parts(flow, members) {
  const live = liveOf(flow, members);
  /** @type {[string, number][]} */
  const unfinished = live ? [...live].map(([state, jobs]) => [state, jobs.length]) : [["unfinished", flow.unfinished]];
  const all = /** @type {[string, number][]} */ ([["completed", flow.completed], ...unfinished, ["cancelled", flow.cancelled], ["dead", flow.dead]]).filter(([, n]) => n);
  const bar = h("div", { class: "parts full", "aria-hidden": "true" }, all.map(([state, n]) => h("i", { class: state, style: { "flex-grow": n } })));
  const legend = all.map(([state, n]) => {
    const states = state === "unfinished" ? LIVE.slice(0, 3) : [listed(state)];
    const filter = new URLSearchParams([["workflow", flow.id], ...states.map((one) => ["state", one])]);
    return h("li", null, h("a", { href: link("jobs", "", filter) }, badge(state, `${count(n)} ${state}`)));
  });
  return [bar, h("ul", { class: "legend told", "aria-label": "Jobs by state" }, legend)];
}
