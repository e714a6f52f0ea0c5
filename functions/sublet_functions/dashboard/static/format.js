/** Turns values into text for people. */

// oxlint-disable-next-line no-control-regex -- these are to be found
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]/gu;

/**
 * Show control characters, marks of writing direction and lone surrogates as escapes, so that no text disguises itself.
 * @param {string} text
 */
export const visible = (text) =>
  text.replace(HIDDEN, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** @param {number} n */
export const count = (n) => n.toLocaleString("en");

/** @param {number} n */
export function bytes(n) {
  if (n < 1024) return `${n} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let value = n / 1024;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

const UNITS = /** @type {const} */ ([["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]);

/**
 * Two largest units at most: `2 h 5 min`, `3.2 s`, `40 ms`.
 * @param {number} seconds
 */
export function duration(seconds) {
  const value = Math.max(0, seconds);
  if (value < 0.9995) return `${Math.round(value * 1000)} ms`;
  if (value < 10) return `${value.toFixed(1)} s`;
  let rest = Math.round(value);
  const parts = [];
  for (const [name, size] of UNITS) {
    const whole = Math.floor(rest / size);
    if (whole > 0) parts.push(`${whole} ${name}`);
    else if (parts.length) break;
    rest -= whole * size;
    if (parts.length === 2) break;
  }
  return parts.join(" ");
}

/**
 * One unit, for columns that are compared: `34 s`, `12 min`, `3 h`, `12 d`.
 * @param {number} seconds
 */
export function coarse(seconds) {
  const value = Math.max(0, seconds);
  if (value < 1) return "0 s";
  const [name, size] = UNITS.find(([, one]) => value >= one) ?? ["s", 1];
  return `${Math.floor(value / size)} ${name}`;
}

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const WHOLE = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });

/**
 * The local time; with the day, unless it is today.
 * @param {number} ms
 */
export function clock(ms) {
  const at = new Date(ms);
  const today = at.toDateString() === new Date().toDateString();
  return today ? CLOCK.format(at) : `${DAY.format(at)} ${CLOCK.format(at)}`;
}

/** @param {number} ms */
export const whole = (ms) => WHOLE.format(new Date(ms));

/**
 * A value that any program may have stored, as a number: "–" unless it is one that is worth reading.
 * @param {unknown} value
 * @param {(n: number) => string} [write]
 */
export function figure(value, write = count) {
  const n = typeof value === "string" && /^\d{1,16}$/.test(value) ? Number(value) : value;
  return typeof n === "number" && n >= 0 && n <= Number.MAX_SAFE_INTEGER ? write(n) : "–";
}

const SHORT = 200;

/**
 * A value that any program may have stored, as a short text: JSON unless it is text.
 * @param {unknown} value
 */
export function plain(value) {
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "");
  return text.length > SHORT ? `${text.slice(0, SHORT)}…` : text;
}

/** @param {unknown} value */
export const pretty = (value) => JSON.stringify(value, null, 2) ?? "null";

/**
 * A message without its changing parts: numbers, hexadecimal words, and quoted text.
 * @param {string} message
 */
export const fingerprint = (message) =>
  message
    .replace(/(["'`])(?:(?!\1).){1,200}\1/g, "…")
    .replace(/\b[0-9a-f]{8,}\b|\b0x[0-9a-f]+\b|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/gi, "…")
    .replace(/\d+(\.\d+)?/g, "…")
    .slice(0, 200);

/**
 * @param {number} n
 * @param {string} one
 * @param {string} [many]
 */
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
