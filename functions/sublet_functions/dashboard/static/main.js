/** The page: the current view, when it is read again, and when it is painted. */
import { ApiError, can, check, describe, hooks, lacks, token, whenDescribed, whenIdentified } from "./api.js";
import * as auditView from "./audit-view.js";
import { h, morph } from "./dom.js";
import { clock } from "./format.js";
import * as failuresView from "./failures-view.js";
import * as jobView from "./job-view.js";
import * as jobsView from "./jobs-view.js";
import { bindKeys, showKeys } from "./keys.js";
import { Live } from "./live.js";
import * as overviewView from "./overview-view.js";
import * as queueView from "./queue-view.js";
import * as queuesView from "./queues-view.js";
import { go, here, link, start } from "./router.js";
import * as schedulesView from "./schedules-view.js";
import { find } from "./search.js";
import { announce, button, dialog, empty, errorNote, field, toast } from "./widgets.js";
import * as workersView from "./workers-view.js";
import * as workflowView from "./workflow-view.js";

/** @typedef {import("./live.js").JobEvent} JobEvent */
/** @typedef {import("./router.js").Place} Place */
/** @typedef {{paint: () => void, reload: (isAsked?: boolean) => void}} Page */
/**
 * @typedef {object} View
 * @property {string} title
 * @property {() => Promise<void>} load reads what the view shows
 * @property {() => import("./dom.js").Child} render
 * @property {(events: JobEvent[]) => boolean} [touched] whether events change what it shows; default: yes
 * @property {number} every seconds after which it is read where no events arrive
 * @property {number} [everyLive] the same while events arrive: for changes without an event; default: 120
 * @property {() => boolean} [ticks] whether it shows seconds that pass
 * @property {number} [rest] seconds between two reads at the least
 */
/** @typedef {{open: (place: Place, page: Page) => View}} ViewModule */

/** `route`: only tokens that may GET it have the view in their menu. @type {{name: string, label: string, key: string, module: ViewModule, route: string}[]} */
const VIEWS = [
  { name: "", label: "Overview", key: "o", module: overviewView, route: "/stats" },
  { name: "jobs", label: "Jobs", key: "j", module: jobsView, route: "/jobs" },
  { name: "failures", label: "Failures", key: "f", module: failuresView, route: "/jobs" },
  { name: "queues", label: "Queues", key: "q", module: queuesView, route: "/queues" },
  { name: "schedules", label: "Schedules", key: "s", module: schedulesView, route: "/schedules" },
  { name: "workers", label: "Workers", key: "w", module: workersView, route: "/workers" },
  { name: "audit", label: "Audit", key: "a", module: auditView, route: "/audit" },
];

const REPAINT = 250;
/** Seconds after which a failed read is repeated. */
const RETRY = 5;
const main = /** @type {HTMLElement} */ (document.getElementById("main"));
/** @type {View} */
let view;
/** @type {unknown} */
let failure = null;
let isRead = false;
/** When a view was read last, by this machine's clock. */
let answeredAt = 0;
let opening = 0;
let paintedAt = 0;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let painting;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let rereading;
let readAt = 0;
let isReading = false;
let isTouched = false;

function paint() {
  if (painting !== undefined) return;
  const wait = Math.max(0, paintedAt + REPAINT - performance.now());
  painting = setTimeout(() => {
    painting = undefined;
    paintNow();
  }, wait);
}

function paintNow() {
  paintedAt = performance.now();
  const loading = h("p", { class: "loading", role: "status" }, "Reading…");
  const content = isRead ? view.render() : isBarred() ? noRights() : failure ? null : loading;
  const title = h("h1", { id: "title" }, view.title);
  morph(main, h("main", { id: "main", tabindex: "-1", class: live.mark === "stale" || lacksRedis() ? "stale" : null, "aria-busy": isRead || failure ? null : "true" }, isRead ? null : title, isBarred() ? null : errorNote(failure ?? (isRead && live.isOut ? new ApiError(503, "unavailable", "") : null)), failure instanceof ApiError && failure.status === 401 ? button("Use a token", () => void useToken(), { class: "primary" }) : null, content));
  document.title = `${view.title} · Sublet`;
  revealTab();
}

/** @param {Place} place */
const routeOf = (place) => VIEWS.find(({ name }) => name === place.view)?.route ?? "/whoami";

/** Whether the token may not read the view at all. */
const isBarred = () => !isRead && failure instanceof ApiError && failure.status === 403 && lacks("GET", routeOf(here()));

/** What a token sees that may not read the view. */
function noRights() {
  const note = empty("This token may not read this page.", failure instanceof ApiError ? failure.message : "", h("div", null, button("Use another token", () => void useToken(), { class: "primary" })));
  note.setAttribute("role", "alert");
  return note;
}

/** The tabs whose current one was brought into view: a user may scroll them then. */
let revealed = "";

function revealTab() {
  const tab = main.querySelector(".tabs [aria-current]");
  const bar = tab?.closest(".tabs");
  const now = `${location.href} ${bar?.scrollWidth}`;
  if (!tab || !bar || now === revealed) return;
  revealed = now;
  const [inner, outer] = [tab.getBoundingClientRect(), bar.getBoundingClientRect()];
  if (inner.left < outer.left || inner.right > outer.right) bar.scrollLeft += inner.left - outer.left - (outer.width - inner.width) / 2;
}

/** Read the view again, not more often than its `rest`, but at once if a user asked for it. */
function reload(isAsked = false) {
  isTouched = true;
  if (isAsked) {
    clearTimeout(rereading);
    rereading = undefined;
  }
  if (isReading || rereading !== undefined) return;
  const wait = isAsked ? 0 : Math.max(0, readAt + (view.rest ?? 1) * 1000 - performance.now());
  rereading = setTimeout(() => {
    rereading = undefined;
    if (!document.hidden) void read();
  }, wait);
}

async function read() {
  const mine = opening;
  isReading = true;
  isTouched = false;
  readAt = performance.now();
  try {
    await whenIdentified();
    if (routeOf(here()) === "/audit") await whenDescribed(); // most tokens may not read it
    if (mine === opening) check(routeOf(here()));
    if (mine === opening) await view.load();
    if (mine !== opening) return;
    isRead = true;
    failure = null;
    answeredAt = Date.now();
  } catch (error) {
    if (mine !== opening) return;
    failure = error;
    if (error instanceof ApiError && error.status === 404) isRead = false; // erased or removed: nothing of it stays
  } finally {
    if (mine === opening) {
      isReading = false;
      paint();
      paintTools();
      if (isTouched) reload();
    }
  }
}

/** Open the view of the URL. */
function open() {
  const place = here();
  const found = VIEWS.find(({ name }) => name === place.view);
  /** @type {ViewModule | undefined} */
  const module = (place.name && { jobs: jobView, queues: queueView, workflows: workflowView }[place.view]) || found?.module;
  const isSame = Boolean(view) && document.body.dataset.view === place.view + place.name;
  opening += 1;
  clearTimeout(rereading);
  rereading = undefined;
  failure = null;
  view = module ? module.open(place, { paint, reload }) : missing();
  isRead = false;
  document.body.dataset.view = place.view + place.name;
  paintTop(place);
  main.setAttribute("aria-busy", "true"); // the rows of another filter may stand there until the first read
  if (!isSame) {
    paintNow();
    scrollTo(0, 0);
    announce(view.title);
  }
  void read();
}

/** @returns {View} */
function missing() {
  const back = h("a", { href: link("") }, "Go to the overview");
  return { title: "No such page", every: 3600, load: async () => {}, render: () => [h("h1", { id: "title" }, "No such page"), empty("There is no such page.", "The address may be mistyped, or from another version of Sublet.", back)] };
}

/** @param {Place} place */
function paintTop(place) {
  const views = /** @type {HTMLElement} */ (document.getElementById("views"));
  const items = VIEWS.filter(({ name, route }) => (name === "audit" ? can("GET", route) : !lacks("GET", route))).map(({ name, label }) => h("li", null, h("a", { href: link(name), "aria-current": name === place.view ? "page" : null }, label)));
  morph(views, h("nav", { id: "views", "aria-label": "Views" }, h("ul", null, items)));
  views.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  paintTools();
}

const MARKS = {
  connecting: ["Connecting", "Connecting to the event stream"],
  live: ["Live", "Changes are shown as they happen"],
  polling: ["Polling", "This server cannot stream: the page asks every few seconds"],
  paused: ["Paused", "Nothing is read while the page is hidden"],
  stale: ["Stale", "The server, or Redis, does not answer: the page shows what it last read"],
};

/** Whether the server answers and Redis does not. */
const lacksRedis = () => live.isOut || (failure instanceof ApiError && failure.status === 503);

/** @returns {import("./live.js").Mark} */
const markNow = () => (lacksRedis() ? "stale" : live.mark);

function paintTools() {
  const mark = markNow();
  const [word, text] = MARKS[mark];
  const heard = lacksRedis() ? answeredAt : live.heardAt;
  const since = mark === "stale" && heard ? ` since ${clock(heard)}` : "";
  const tools = document.getElementById("tools");
  if (!tools) return;
  const forget = button("Forget token", forgetToken, { class: "quiet", title: "Remove the token from this tab" });
  morph(tools, h("div", { id: "tools" }, isBarred() ? null : h("span", { class: `mark ${mark}`, title: text }, h("i", { "aria-hidden": "true" }), word + since), token.get() ? forget : null, button("?", showHelp, { class: "quiet", "aria-label": "Keys", title: "Keys" })));
}

/** @param {Promise<void>} known */
async function readRights(known = describe()) {
  await known;
  paintTop(here());
  paint();
}

const showHelp = () => showKeys(VIEWS);

function forgetToken() {
  token.forget();
  isDeclined = false;
  toast("The token is removed from this tab.");
  live.restart();
  open();
}

/** @type {Promise<boolean> | null} */
let asking = null;
/** Whether the user closed the question: it is not asked again until the button is pressed. */
let isDeclined = false;

async function useToken() {
  isDeclined = false;
  if (await askToken(failure instanceof ApiError ? failure.message : "")) open();
}

/** @param {string} reason */
function askToken(reason) {
  if (isDeclined) return Promise.resolve(false);
  asking ??= dialog("Token", (/** @type {(value: string | null) => void} */ close) => {
    const input = field("Token", "token", { type: "password", required: true, autofocus: true }, "It is kept in this tab only, until the tab is closed or you forget it.");
    const submit = (/** @type {Event} */ event) => {
      event.preventDefault();
      close(/** @type {HTMLInputElement} */ (input.querySelector("input")).value.trim());
    };
    return h("form", { onSubmit: submit }, token.get() ? h("p", { class: "note error" }, reason) : h("p", null, "This server needs a token. With the role read you see everything but payloads and results, with the role admin you can also give orders."), input, h("div", { class: "row end" }, h("button", { class: "primary" }, "Use this token")));
  }).then((value) => {
    asking = null;
    isDeclined = !value;
    if (!value) return false;
    token.set(value);
    paintTools();
    live.restart();
    void readRights();
    return true;
  });
  return asking;
}

const live = new Live(
  (events) => {
    if (!view) return;
    if (!events || (view.touched?.(events) ?? true)) reload();
  },
  () => {
    paintTools();
    announce(`Connection: ${MARKS[markNow()][0]}`);
    paint();
  },
);

// Relative addresses would move with the URL of the view
for (const name of ["href", "src"])
  for (const one of document.querySelectorAll(`link[${name}], .brand[${name}], .brand [${name}]`)) one.setAttribute(name, new URL(one.getAttribute(name) ?? "", location.href).href);

hooks.askToken = askToken;
start(open);
bindKeys(VIEWS, { go: (name) => go(link(name)), help: showHelp });
document.getElementById("search")?.addEventListener("submit", (event) => {
  event.preventDefault();
  const input = /** @type {HTMLInputElement} */ (document.getElementById("search-text"));
  void find(input.value.trim()).then((url) => url && go(url));
});
setInterval(() => {
  if (document.hidden || !view) return;
  const [painted, age] = [performance.now() - paintedAt, performance.now() - readAt];
  if (isRead && painted > (view.ticks?.() ? 900 : 4900)) paint();
  const period = isBarred() ? Infinity : failure ? RETRY : live.mark === "live" ? (view.everyLive ?? 120) : view.every;
  if (age > period * 1000) reload();
}, 1000);
open();
void readRights(whenDescribed());
void whenIdentified().then(() => live.run());
