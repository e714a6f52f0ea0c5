/** Parts that several views use. */
import { ApiError, now, seesPayloads } from "./api.js";
import { h, s } from "./dom.js";
import { bytes, clock, coarse, duration, plural, pretty, whole } from "./format.js";
import { link } from "./router.js";

/** @typedef {import("./dom.js").Child} Child */

/** Shapes in a box of 16 by 16; each state also has its word. */
const ICONS = {
  scheduled: "M8 1.5a6.5 6.5 0 1 0 0 13a6.5 6.5 0 0 0 0-13M8 4v4.2l2.8 1.8",
  queued: "M2.5 4h11M2.5 8h11M2.5 12h6",
  running: "M4.5 2.5l8.5 5.5l-8.5 5.5z",
  completed: "M2.5 8.5l3.5 3.5l7.5-8",
  dead: "M3.5 3.5l9 9M12.5 3.5l-9 9",
  cancelled: "M8 1.5a6.5 6.5 0 1 0 0 13a6.5 6.5 0 0 0 0-13M3.5 12.5l9-9",
  paused: "M5 3v10M11 3v10",
  active: "M4.5 2.5l8.5 5.5l-8.5 5.5z",
  held: "M8 3v6M8 12v.5",
  limit: "M5 3v10M11 3v10",
  ended: "M4 4h8v8h-8z",
  broken: "M8 3v6M8 12v.5",
  warning: "M8 2l6.5 11.5h-13zM8 6.5v3M8 11.6v.2",
  draining: "M8 2v9M4.5 7.5l3.5 3.5l3.5-3.5M3 14h10",
};

/** @param {string} name */
export const icon = (name) =>
  s("svg", { viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true" }, s("path", { d: ICONS[/** @type {keyof ICONS} */ (name)] ?? ICONS.queued }));

/**
 * A state as colour, icon and word.
 * @param {string} state
 * @param {string} [word]
 */
export const badge = (state, word = state) => h("span", { class: `badge ${state}` }, icon(state), word);

/** @param {string | null | undefined} iso */
export const ms = (iso) => (iso ? Date.parse(iso) : NaN);

/**
 * How long ago, or how soon: the exact moment is in the title.
 * @param {string | null | undefined} iso
 * @param {{exact?: boolean}} [how] the local time instead
 */
export function moment(iso, how = {}) {
  const at = ms(iso);
  if (Number.isNaN(at)) return h("span", { class: "faint" }, "–");
  const away = (at - now()) / 1000;
  const relative = away > 0.5 ? `in ${coarse(away)}` : `${coarse(-away)} ago`;
  return h("time", { datetime: iso, title: `${whole(at)} · ${relative}` }, how.exact ? clock(at) : relative);
}

/**
 * Whether a lease had ended when it was read. One that ended later may have been renewed.
 * @param {string | null | undefined} iso
 * @param {number} seen ms of the server's clock
 */
export const isOver = (iso, seen) => ms(iso) < seen;

/**
 * Whether a lease has ended since it was read: it should be read again.
 * @param {string | null | undefined} iso
 * @param {number} seen ms of the server's clock
 */
export const isOutdated = (iso, seen) => ms(iso) >= seen && ms(iso) < now();

/**
 * The rest of a lease, that colours as it ends.
 * @param {string | null | undefined} iso
 * @param {number} seen when it was read, in ms of the server's clock
 */
export function countdown(iso, seen) {
  const at = ms(iso);
  if (Number.isNaN(at)) return null;
  const left = (at - now()) / 1000;
  const rest = Math.max(left > 0 ? 1 : 0, Math.round(left));
  const text = isOver(iso, seen) ? `${coarse(-left)} over` : rest < 10 ? `${rest} s` : duration(rest);
  return h("span", { class: left > 5 || isOutdated(iso, seen) ? "lease" : "lease late", title: `The lease ends at ${whole(at)}` }, text);
}

/**
 * @param {string} label
 * @param {() => void} onClick
 * @param {Record<string, any>} [props]
 */
export const button = (label, onClick, props = {}) => h("button", { type: "button", onClick, ...props }, label);

/**
 * A table with a caption, in a region that scrolls sideways. On a narrow window each row is a block, with the columns' names in it.
 * @param {string} caption
 * @param {(string | {label: string, class?: string})[]} columns
 * @param {(HTMLElement | null)[]} rows
 * @param {Record<string, any>} [props]
 */
export function table(caption, columns, rows, props = {}) {
  const all = columns.map((column) => (typeof column === "string" ? { label: column, class: undefined } : column));
  const heads = all.map(({ label, class: kind }) => h("th", { scope: "col", class: kind }, label));
  for (const row of rows) for (const [i, cell] of Array.from(row?.children ?? []).entries()) cell.setAttribute("data-label", all[i]?.label ?? "");
  return h(
    "div",
    { class: "scroll stack", tabindex: "0", role: "region", "aria-label": caption, ...props },
    h("table", null, h("caption", null, caption), h("thead", null, h("tr", null, heads)), h("tbody", null, rows)),
  );
}

/** @param {string} queue */
export const queueLink = (queue) => h("a", { class: "name", href: link("jobs", "", { queue }), title: `Jobs of queue ${queue}` }, queue);

/** @param {string[]} tags */
export const tagLinks = (tags) => tags.map((tag) => h("a", { class: "tag", href: link("jobs", "", { tag }), title: `Jobs with the tag ${tag}` }, tag));

/**
 * A job's group, and a list of its jobs.
 * @param {string} queue
 * @param {string | null} group
 */
export const groupLink = (queue, group) => (group ? h("a", { class: "tag", href: link("jobs", "", { queue, group }), title: `Jobs of the group ${group} in queue ${queue}` }, "group ", group) : null);

/**
 * What a queued job waits for, and where to look at that.
 * @param {{queue: string, group: string | null, waits_for: string}} job
 */
export const waitsFor = ({ queue, group, waits_for }) => h("a", { href: link("queues", queue, { group: waits_for.startsWith("group ") ? group : null }), title: waits_for }, waits_for);

/**
 * The kind and the name or number of what a scheduled job waits for: `signal NAME`, `sleep NAME`, `call NAME`, `upstream N` or `retry ID`.
 * @param {{awaits: string | null}} job
 */
export const awaits = (job) => /** @type {[string, string]} */ ((job.awaits ?? "").split(" ", 2));

/**
 * What the due moment of a scheduled job is.
 * @param {{awaits: string | null}} job
 */
export function dueLabel(job) {
  const [kind] = awaits(job);
  if (kind === "signal") return "Times out";
  return kind === "upstream" || kind === "retry" ? "Gives up" : "Due";
}

/**
 * What a scheduled job waits for, in words.
 * @param {{awaits: string | null, after: string | null}} job
 */
export function waiting(job) {
  const [kind, what] = awaits(job);
  if (kind === "signal") return `waits for signal ${what}`;
  if (kind === "call") return `waits for the job of step ${what}`;
  if (kind === "upstream") return `waits for ${plural(Number(what), "job")}`;
  if (kind === "retry") return "held: waits for a retry";
  if (kind === "sleep") return `sleeps: ${what}`;
  return job.after ? "waits for the job with its key" : "waits for its time";
}

/**
 * @param {string} title
 * @param {string} text
 * @param {...Child} more
 */
export const empty = (title, text, ...more) => h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), h("p", null, text), more);

/** Titles of failed reads, by status. @type {Record<number, string>} */
const FAILED = { 0: "No answer", 401: "No token", 403: "Not allowed", 404: "Not found", 422: "Not valid", 503: "The server cannot answer" };

/** @param {unknown} error */
export function errorNote(error) {
  if (!error) return null;
  const { status, kind, message } = error instanceof ApiError ? error : { status: -1, kind: "", message: String(error) };
  const title = kind === "unavailable" ? "Redis does not answer" : (FAILED[status] ?? "This did not work");
  const text = !message || message.startsWith(title) ? "The page shows what it last read, and goes on by itself." : message;
  return h("div", { class: "note error", role: "alert" }, icon("warning"), h("p", null, h("strong", null, title), " ", text));
}

const SHOWN = 4096;
/** Texts that were opened in whole, by their key. @type {Set<string>} */
const opened = new Set();

/**
 * Text of any length: the beginning, and the rest on demand.
 * @param {string} text
 * @param {string} key
 * @param {() => void} paint
 * @param {string} [label]
 */
export function longText(text, key, paint, label = "Text") {
  const isWhole = text.length <= SHOWN || opened.has(key);
  const open = () => {
    opened.add(key);
    paint();
  };
  return h(
    "div",
    { class: "long" },
    h("pre", { tabindex: "0", role: "region", "aria-label": label }, isWhole ? text : `${text.slice(0, SHOWN)}…`),
    isWhole ? null : button(`Show all ${bytes(new Blob([text]).size)}`, open, { class: "quiet" }),
  );
}

/**
 * A payload, result or checkpoint, if the token may see it.
 * @param {unknown} value
 * @param {string} key
 * @param {() => void} paint
 * @param {string} label
 */
export const data = (value, key, paint, label) =>
  seesPayloads() ? longText(pretty(value), key, paint, label) : h("p", { class: "faint" }, "Not shown to this token: that takes the role payloads, submit, work or admin.");

/**
 * @param {string} title
 * @param {...Child} children
 */
export const panel = (title, ...children) => h("section", { class: "panel", key: `panel-${title}` }, h("h2", null, title), children);

/** @param {[string, Child][]} pairs */
export const facts = (pairs) =>
  h(
    "dl",
    { class: "facts" },
    pairs.filter(([, value]) => value !== null && value !== undefined && value !== false).map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
  );

/** @param {string} text */
export function announce(text) {
  const place = document.getElementById("announcement");
  if (place) place.textContent = text;
}

/** @type {ReturnType<typeof setTimeout> | undefined} */
let hiding;

/**
 * A short message at the edge of the page, also read aloud.
 * @param {string} text
 * @param {"good" | "bad"} [kind]
 */
export function toast(text, kind = "good") {
  document.getElementById("toast")?.remove();
  document.body.append(h("div", { id: "toast", class: kind, role: kind === "good" ? "status" : "alert" }, icon(kind === "good" ? "completed" : "warning"), text));
  clearTimeout(hiding);
  hiding = setTimeout(() => document.getElementById("toast")?.remove(), kind === "good" ? 4000 : 9000);
}

/** @param {string} text */
export async function copy(text, done = "Copied") {
  try {
    await navigator.clipboard.writeText(text);
    toast(done);
  } catch {
    await dialog("Copy", (close) => [h("pre", { tabindex: "0", "aria-label": "Text to copy", role: "region" }, text), h("div", { class: "row end" }, button("Close", () => close(null), { autofocus: true }))]);
  }
}

/**
 * Show a modal dialog; resolves to the value with which `close` is called, null by Escape.
 * @template T
 * @param {string} title
 * @param {(close: (value: T | null) => void) => Child} content
 * @returns {Promise<T | null>}
 */
export function dialog(title, content) {
  return new Promise((done) => {
    /** @type {T | null} */
    let result = null;
    const before = document.activeElement;
    const box = /** @type {HTMLDialogElement} */ (h("dialog", { "aria-labelledby": "dialog-title" }));
    const close = (/** @type {T | null} */ value) => {
      result = value;
      box.close();
    };
    box.append(h("h2", { id: "dialog-title" }, title), h("div", { class: "dialog-body" }, content(close)));
    box.addEventListener("close", () => {
      box.remove();
      if (before instanceof HTMLElement) before.focus();
      done(result);
    });
    document.body.append(box);
    box.showModal();
  });
}

/**
 * Ask once before an order.
 * @param {string} title
 * @param {Child} text
 * @param {string} label of the button that orders it
 * @param {{danger?: boolean}} [how]
 */
export const confirm = async (title, text, label, how = {}) =>
  (await dialog(title, (close) => [
    h("p", null, text),
    h("div", { class: "row end" }, button("Keep as it is", () => close(null), { class: "quiet" }), button(label, () => close(true), { class: how.danger ? "danger" : "primary", autofocus: true })),
  ])) === true;

/**
 * A field of a form in a dialog.
 * @param {string} label
 * @param {string} name
 * @param {Record<string, any>} [props]
 * @param {string} [hint]
 */
export const field = (label, name, props = {}, hint = "") =>
  h("label", { class: "field" }, h("span", null, label), h(props.rows ? "textarea" : "input", { name, id: `field-${name}`, spellcheck: "false", autocomplete: "off", ...props }, props.rows ? props.text : null), hint && h("small", null, hint));

/**
 * Give an order, and report its outcome.
 * @param {() => Promise<any>} order
 * @param {string} done
 * @returns {Promise<any>} the answer; null after a failure
 */
export async function perform(order, done) {
  try {
    const answer = (await order()) ?? {};
    if (done) toast(done);
    return answer;
  } catch (error) {
    const hasChanged = error instanceof ApiError && error.kind === "changed";
    toast(hasChanged ? "It has changed meanwhile: nothing was done." : error instanceof Error ? error.message : String(error), "bad");
    return null;
  }
}
