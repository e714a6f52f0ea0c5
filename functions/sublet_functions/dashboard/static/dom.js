/** Builds elements and updates them in place. All text becomes text nodes: nothing here parses markup. */
import { visible } from "./format.js";

/** @typedef {Node | string | number | null | undefined | false | any[]} Child */
/** @typedef {Record<string, any>} Props */

/** @type {WeakMap<Node, Record<string, (event: any) => void>>} */
const listeners = new WeakMap();
/** @param {Event} event */
const dispatch = (event) => {
  const node = /** @type {Node} */ (event.currentTarget);
  listeners.get(node)?.[event.type]?.(event);
};

/**
 * @param {Element} element
 * @param {Props} props `on…` is a listener, `style` an object, `key` identifies a child; the rest are attributes
 */
function assign(element, props) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) {
      const type = name.slice(2).toLowerCase();
      listeners.set(element, { ...listeners.get(element), [type]: value });
      element.addEventListener(type, dispatch);
    } else if (name === "style") {
      const { style } = /** @type {HTMLElement} */ (element);
      for (const [property, one] of Object.entries(value)) style.setProperty(property, String(one));
    } else if (name === "key") {
      element.setAttribute("data-key", String(value));
    } else {
      element.setAttribute(name, value === true ? "" : visible(String(value)));
    }
  }
}

/**
 * @param {Node} parent
 * @param {Child[]} children
 */
function append(parent, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(parent, child);
    else parent.appendChild(child instanceof Node ? child : document.createTextNode(visible(String(child))));
  }
}

/**
 * Make an element.
 * @param {string} tag
 * @param {Props | null} [props]
 * @param {...Child} children
 * @returns {HTMLElement}
 */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  assign(element, props ?? {});
  append(element, children);
  return element;
}

/**
 * Make an SVG element.
 * @param {string} tag
 * @param {Props | null} [props]
 * @param {...Child} children
 * @returns {SVGElement}
 */
export function s(tag, props, ...children) {
  const element = /** @type {SVGElement} */ (document.createElementNS("http://www.w3.org/2000/svg", tag));
  assign(element, props ?? {});
  append(element, children);
  return element;
}

/** @param {Node} node */
const keyOf = (node) => (node instanceof Element ? node.getAttribute("data-key") : null);

/**
 * @param {Node} a
 * @param {Node} b
 */
const alike = (a, b) => a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

/**
 * Make `old` equal to `fresh` and keep its nodes: focus, selection, scroll positions and typed text stay.
 * @param {Node} old
 * @param {Node} fresh
 */
export function morph(old, fresh) {
  if (old instanceof CharacterData) {
    if (old.data !== /** @type {CharacterData} */ (fresh).data) old.data = /** @type {CharacterData} */ (fresh).data;
    return;
  }
  if (!(old instanceof Element) || !(fresh instanceof Element)) return;
  const found = listeners.get(fresh);
  for (const type of Object.keys(found ?? {})) old.addEventListener(type, dispatch);
  if (found) listeners.set(old, found);
  else listeners.delete(old);
  morphAttributes(old, fresh);
  morphChildren(old, fresh);
}

/**
 * @param {Element} old
 * @param {Element} fresh
 */
function morphAttributes(old, fresh) {
  /** @param {string} name */
  const isKept = (name) => name === "style" || (name === "open" && old.nodeName === "DETAILS");
  for (const { name } of Array.from(old.attributes)) if (!fresh.hasAttribute(name) && !isKept(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes)
    if (!isKept(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  // a style attribute is forbidden by the policy, its object model is not
  const [before, after] = [/** @type {HTMLElement} */ (old).style, /** @type {HTMLElement} */ (fresh).style];
  if (before.cssText !== after.cssText) before.cssText = after.cssText;
}

/**
 * @param {Element} old
 * @param {Element} fresh
 */
function morphChildren(old, fresh) {
  /** @type {Map<string, ChildNode>} */
  const keyed = new Map();
  for (const child of old.childNodes) {
    const key = keyOf(child);
    if (key !== null) keyed.set(key, child);
  }
  let at = old.firstChild;
  for (const next of Array.from(fresh.childNodes)) {
    const key = keyOf(next);
    const candidate = key === null ? at : (keyed.get(key) ?? null);
    if (candidate && alike(candidate, next)) {
      if (candidate === at) at = at.nextSibling;
      else old.insertBefore(candidate, at);
      morph(candidate, next);
    } else {
      old.insertBefore(next, at);
    }
  }
  while (at) {
    const following = at.nextSibling;
    at.remove();
    at = following;
  }
}
