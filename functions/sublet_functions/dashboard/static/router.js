/** Views by URL: `ui/jobs/0-abc?state=dead` is the view `jobs`, the name `0-abc`, and a filter. */
import { root } from "./api.js";

/** @typedef {{view: string, name: string, query: URLSearchParams}} Place */

const base = new URL("ui", root);

/**
 * @param {string} view
 * @param {string} [name]
 * @param {Record<string, string | null | undefined> | URLSearchParams} [query]
 */
export function link(view, name = "", query = {}) {
  const url = new URL(base);
  if (view) url.pathname += `/${view}${name ? `/${encodeURIComponent(name)}` : ""}`;
  const pairs = query instanceof URLSearchParams ? [...query] : Object.entries(query);
  for (const [key, value] of pairs) if (value) url.searchParams.append(key, value);
  return url.pathname + url.search;
}

/** @returns {Place} */
export function here() {
  const parts = location.pathname.slice(base.pathname.length).split("/").filter(Boolean);
  let name = parts[1] ?? "";
  try {
    name = decodeURIComponent(name);
  } catch {
    // shown as it is
  }
  return { view: parts[0] ?? "", name, query: new URLSearchParams(location.search) };
}

let onChange = () => {};

/**
 * Show another place.
 * @param {string} url
 * @param {{replace?: boolean}} [how]
 */
export function go(url, how = {}) {
  if (how.replace) history.replaceState(null, "", url);
  else if (url !== location.pathname + location.search) history.pushState(null, "", url);
  onChange();
}

/** @param {() => void} listener */
export function start(listener) {
  onChange = listener;
  addEventListener("popstate", () => onChange());
  document.addEventListener("click", (event) => {
    const target = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!(target instanceof HTMLAnchorElement) || event.button || event.defaultPrevented) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || target.target) return;
    const url = new URL(target.href);
    const isView = url.pathname === base.pathname || url.pathname.startsWith(`${base.pathname}/`);
    if (url.origin !== location.origin || !isView || url.hash) return;
    event.preventDefault();
    go(url.pathname + url.search);
  });
}
