/** Keys for everything: `?` lists them. */
import { h } from "./dom.js";
import { button, dialog } from "./widgets.js";

/** @typedef {{name: string, label: string, key: string}[]} Views */

const PATIENCE = 1200;

/**
 * @param {Views} views
 * @param {{go: (view: string) => void, help: () => void}} to
 */
export function bindKeys(views, to) {
  let isGoing = 0;
  document.addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    const isTyping = target.closest("input, textarea, select") !== null;
    if (event.key === "Escape" && target.id === "search-text") target.blur();
    if (isTyping || event.metaKey || event.ctrlKey || event.altKey || document.querySelector("dialog[open]")) return;
    const found = Date.now() - isGoing < PATIENCE ? views.find(({ key }) => key === event.key) : undefined;
    isGoing = event.key === "g" ? Date.now() : 0;
    if (found) to.go(found.name);
    else if (event.key === "?") to.help();
    else if (event.key === "/") document.getElementById("search-text")?.focus();
    else if (event.key === "n" || event.key === "p") turn(event.key);
    else if (event.key === "ArrowDown" || event.key === "ArrowUp" || event.key === "k" || event.key === "j") step(event);
    else return;
    event.preventDefault();
  });
}

/** @param {string} key */
const turn = (key) => /** @type {HTMLElement | null} */ (document.querySelector(key === "n" ? "[rel=next]" : "[rel=first]"))?.click();

/**
 * Move the focus from row to row.
 * @param {KeyboardEvent} event
 */
function step(event) {
  const links = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("main tbody tr a.open")]);
  if (!links.length) return;
  const at = links.findIndex((one) => one.closest("tr")?.contains(document.activeElement));
  const by = event.key === "ArrowDown" || event.key === "j" ? 1 : -1;
  links[at < 0 ? 0 : Math.min(links.length - 1, Math.max(0, at + by))]?.focus();
}

/** @param {Views} views */
export function showKeys(views) {
  /** @type {[string, string][]} */
  const keys = [
    ["/", "Find a job, queue, tag or task"],
    ...views.map(({ key, label }) => /** @type {[string, string]} */ ([`g ${key}`, label])),
    ["j, ↓", "Next row"],
    ["k, ↑", "Previous row"],
    ["Enter", "Open the row"],
    ["n", "Next page"],
    ["p", "First page"],
    ["?", "These keys"],
    ["Esc", "Close"],
  ];
  const rows = keys.map(([key, text]) => h("tr", null, h("th", { scope: "row" }, key.split(" ").map((one) => h("kbd", null, one.replace(",", "")))), h("td", null, text)));
  return dialog("Keys", (close) => [h("table", { class: "keys" }, h("caption", { class: "hidden" }, "Keys"), h("tbody", null, rows)), h("div", { class: "row end" }, button("Close", () => close(null), { autofocus: true }))]);
}
