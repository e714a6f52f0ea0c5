/** One queue: its limits and what they hold back, and its groups. */
import { call, can, enc, now } from "./api.js";
import { h } from "./dom.js";
import { form, refusal } from "./forms.js";
import { bytes, coarse, count, plural } from "./format.js";
import { flowFields, flowNumbers, groupWords, numbers, ofEachGroup, settingWords } from "./limits.js";
import { follower, rates } from "./metrics.js";
import { orders } from "./queues-view.js";
import { go, link } from "./router.js";
import { badge, button, confirm, empty, facts, field, moment, ms, perform, table, toast } from "./widgets.js";

/** @typedef {any} Group */
/** @typedef {{groups: Group[], waiting: number, more: boolean, running: number | null, blocked: string | null, next_at: string | null}} Flow */

/** Groups shown at first, and at most: as many as the server lists. */
const FEW = 100;
const MOST = 1000;
/** Up to so many are read often. */
const SOME = 20;
const PATH = "/queues/{queue}/groups/{group}";
/** Browsers remove these from paths. */
const isAddressable = (/** @type {string} */ name) => name !== "." && name !== "..";

/**
 * @param {import("./router.js").Place} place
 * @param {import("./main.js").Page} page
 * @returns {import("./main.js").View}
 */
export function open(place, page) {
  const { name } = place;
  const group = place.query.get("group") ?? "";
  const limit = place.query.has("all") ? MOST : FEW;
  /** @type {any} */
  let queue = null;
  /** @type {Flow} */
  let flow;
  const figures = follower(page.paint);
  return {
    title: name,
    load: async () => {
      const path = `queues/${enc(name)}`;
      [queue, flow] = await Promise.all([call("GET", path), call("GET", `${path}/groups`, { query: { limit, group } })]);
      figures.follow();
    },
    render: () => queue.exists ? [
      h("p", { class: "crumbs" }, h("a", { href: link("queues") }, "Queues")),
      h("div", { class: "title" }, h("h1", { id: "title" }, name), queue.paused_at ? badge("paused") : badge("active"), heldBack(queue, flow)),
      h("div", { class: "row orders" }, orders(queue, page).reverse()),
      about(queue, flow, figures.found),
      groupsPanel(queue, flow, { group, limit }, page),
    ] : unused(name),
    ticks: () => [flow, ...flow.groups].some(({ next_at }) => next_at),
    every: 10,
    get everyLive() {
      return flow?.groups.length > SOME ? 30 : 10; // tokens come without an event
    },
    rest: 2,
  };
}

/** @param {string} name */
const unused = (name) => [
  h("p", { class: "crumbs" }, h("a", { href: link("queues") }, "Queues")),
  h("h1", { id: "title" }, name),
  empty("There is no queue of this name.", "It has no jobs and no settings: check the name. A queue appears with its first job.", h("a", { class: "button", href: link("queues") }, "All queues")),
];

/**
 * What holds all jobs of the queue back.
 * @param {any} queue
 * @param {Flow} flow
 */
function heldBack({ limits, queued }, { blocked, running, next_at }) {
  if (!blocked || !queued) return null;
  return blocked === "concurrency" ? badge("limit", `${count(running ?? 0)} of ${count(limits.concurrency ?? 0)} running`) : badge("limit", `next token ${token(next_at)}`);
}

/** @param {string | null} iso */
function token(iso) {
  const away = (ms(iso) - now()) / 1000;
  return away >= 1 ? `in ${coarse(away)}` : "now";
}

/**
 * @param {any} queue
 * @param {Flow} flow
 * @param {import("./metrics.js").Figures | null} figures
 */
function about(queue, flow, figures) {
  const { name, limits } = queue;
  const rate = rates(name);
  const each = (/** @type {number} */ value) => count(Math.round(value * 10) / 10);
  const oldest = figures?.oldest.get(name);
  const words = settingWords(queue);
  return facts([
    ["Queued", h("a", { href: link("jobs", "", { queue: name, state: "queued" }) }, count(queue.queued))],
    ["Running", flow.running !== null && h("a", { href: link("jobs", "", { queue: name, state: "running" }) }, limits.concurrency ? `${count(flow.running)} of ${count(limits.concurrency)}` : count(flow.running))],
    ["Unfinished", count(queue.jobs)],
    ["Oldest waits", oldest ? coarse(oldest) : h("span", { class: "faint" }, "–")],
    ["Completed a minute", rate && each(rate.completed)],
    ["Failed a minute", rate && each(rate.failed)],
    ["Payloads", bytes(queue.bytes)],
    ["Paused", queue.paused_at && moment(queue.paused_at)],
    ["Settings", words.length ? words.map((text) => h("span", { class: "tag", title: text }, text)) : h("span", { class: "faint" }, "none")],
  ]);
}

/**
 * @param {any} queue
 * @param {Flow} flow
 * @param {{group: string, limit: number}} shown
 * @param {import("./main.js").Page} page
 */
function groupsPanel(queue, flow, { group, limit }, page) {
  const may = can("PUT", PATH);
  const find = (/** @type {Event} */ event) => {
    event.preventDefault();
    const text = String(new FormData(/** @type {HTMLFormElement} */ (event.currentTarget)).get("group")).trim();
    go(link("queues", queue.name, { group: text }));
  };
  const search = h("form", { class: "row find", role: "search", "aria-label": "One group", onSubmit: find }, h("input", { name: "group", "aria-label": "Find a group", placeholder: "Find a group", maxlength: 128, autocomplete: "off", spellcheck: "false", value: group, key: `find-${group}` }), group ? h("a", { class: "button quiet", href: link("queues", queue.name) }, "All groups") : null, may ? button("Limit a group", () => void change(queue, null, page)) : null);
  const others = flow.more && !group;
  const more = !others ? null : limit < MOST ? h("a", { rel: "next", class: "button", href: link("queues", queue.name, { all: "1" }) }, "Show more") : h("p", { class: "faint" }, `The first ${count(MOST)}. Find others by their name.`);
  const body = flow.groups.length ? [list(queue, flow.groups, page), h("div", { class: "row end" }, more)] : empty("No groups.", "A group is a key of a job, such as its tenant. Groups take turns, and each can have limits.", h("pre", null, `sublet submit TASK --queue ${queue.name} --group acme`));
  const waits = flow.waiting ? `${plural(flow.waiting, "group")} with queued jobs` : "no group has queued jobs";
  return h("section", { class: "panel", key: "groups" }, h("div", { class: "title" }, h("h2", null, "Groups"), h("span", { class: "faint" }, waits), search), body);
}

/**
 * @param {any} queue
 * @param {Group[]} groups
 * @param {import("./main.js").Page} page
 */
function list(queue, groups, page) {
  const number = (/** @type {string} */ label) => ({ label, class: "number" });
  const may = can("PUT", PATH) || can("DELETE", PATH);
  const rows = groups.map((group) => {
    const { name, waiting, running, limits, blocked, share } = group;
    const words = groupWords(group);
    const held = blocked === "rate" ? `next token ${token(group.next_at)}` : blocked;
    return h("tr", { key: name },
      h("th", { scope: "row" }, h("a", { class: "open clamp", href: link("jobs", "", { queue: queue.name, group: name }), title: name }, name)),
      h("td", { class: "number" }, count(waiting)),
      h("td", { class: "number" }, limits.concurrency ? `${count(running)} of ${count(limits.concurrency)}` : count(running)),
      h("td", { class: "number" }, count(share)),
      h("td", { class: "when" }, held ? badge("limit", held) : h("span", { class: "faint" }, "–")),
      h("td", { class: "wrap" }, words.own.map((text) => h("span", { class: "tag", title: text }, text)), words.usual.map((text) => h("span", { class: "tag faint", title: `${text}: as each group of the queue` }, text)), words.own.length || words.usual.length ? null : h("span", { class: "faint" }, "none")),
      may ? h("td", { class: "actions" }, isAddressable(name) ? groupOrders(queue, group, page) : null) : null);
  });
  return table("Groups", ["Group", number("Waiting"), number("Running"), number("Share"), "Held back by", "Limits", ...(may ? [{ label: "Orders", class: "actions" }] : [])], rows);
}

/**
 * @param {any} queue
 * @param {Group} group
 * @param {import("./main.js").Page} page
 */
function groupOrders(queue, group, page) {
  const { name } = group;
  const remove = async () => {
    if (!(await confirm(`Remove the limits of group ${name}?`, "The limits that the queue sets for each group apply to it again, and its share is 1. Its jobs stay.", "Remove"))) return;
    await perform(() => call("DELETE", pathOf(queue.name, name)), "The group has no limits of its own.");
    page.reload(true);
  };
  return [
    group.own.length && can("DELETE", PATH) ? button("Remove", () => void remove(), { class: "quiet", "aria-label": `Remove the limits of group ${name}` }) : null,
    can("PUT", PATH) ? button("Change", () => void change(queue, group, page), { "aria-label": `Change the limits of group ${name}` }) : null,
  ];
}

/**
 * @param {string} queue
 * @param {string} group
 */
const pathOf = (queue, group) => `queues/${enc(queue)}/groups/${enc(group)}`;

/**
 * Refuse a name whose limits the form does not show: it would replace them.
 * @param {string} queue
 * @param {string} name
 */
async function check(queue, name) {
  const { groups } = await call("GET", `queues/${enc(queue)}/groups`, { query: { group: name } });
  if (groups[0]?.own.length) throw refusal("This group has limits of its own. Find it by its name, and change them there.", "group");
}

/**
 * Ask for a group's own limits.
 * @param {any} queue
 * @param {Group | null} group null: the user names it
 * @param {import("./main.js").Page} page
 */
function change(queue, group, page) {
  const give = async (/** @type {FormData} */ data) => {
    const name = group?.name ?? String(data.get("group")).trim();
    if (!/^[!-~]+$/.test(name)) throw refusal("Use visible ASCII characters, without blanks.", "group");
    if (!isAddressable(name)) throw refusal("Browsers cannot send this name. Use the command: sublet groups set", "group");
    const settings = { ...flowNumbers(data, [""]), ...numbers(data, ["share"]) };
    if (!group && Object.values(settings).every((value) => value === null)) throw refusal("Write at least one limit, or a share.", "concurrency");
    if (!group) await check(queue.name, name);
    await call("PUT", pathOf(queue.name, name), { body: settings });
    toast("The group's limits are changed.");
    page.reload(true);
  };
  const own = Object.fromEntries(Object.entries(group?.limits ?? {}).filter(([name]) => group?.own.includes(name)));
  return form(group ? `Limits of group ${group.name}` : `Limit a group of ${queue.name}`, "Change", give,
    h("p", null, "An empty field removes the group's own limit: that which the queue sets for each group applies."),
    group ? null : field("Group", "group", { required: true, maxlength: 128, autofocus: true }, "Its name, as its jobs have it"),
    flowFields("The group's own", "", own, ofEachGroup(queue.limits)),
    field("Share", "share", { type: "number", min: 1, max: 100, value: group?.own.includes("share") ? group.share : "", placeholder: 1 }, "Turns that it gets for each turn of another group"));
}
