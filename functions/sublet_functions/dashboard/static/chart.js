/** Draws lines over time, and keeps their numbers in a table. */
import { h, s } from "./dom.js";
import { clock, count } from "./format.js";

/** @typedef {{name: string, kind: string, of: (sample: any) => number | null}} Line */

const WIDTH = 600;
const HEIGHT = 120;

/** @param {number} most */
function ceiling(most) {
  const size = 10 ** Math.floor(Math.log10(Math.max(most, 1)));
  return ([1, 2, 5, 10].find((step) => step * size >= most) ?? 10) * size;
}

/**
 * Stretches of time without samples, but for the last two: they may come late.
 * @param {{at: number}[]} samples
 * @param {(sample: any) => boolean} isGap
 */
function gapsOf(samples, isGap) {
  /** @type {[number, number][]} */
  const found = [];
  for (const [i, one] of samples.slice(0, -2).entries()) {
    if (!isGap(one)) continue;
    const from = samples[i - 1]?.at ?? one.at;
    const to = samples[i + 1]?.at ?? one.at;
    const last = found.at(-1);
    if (last && last[1] >= one.at) last[1] = to;
    else found.push([from, to]);
  }
  return found;
}

/**
 * A chart of samples; the table with the same numbers opens below it.
 * @param {string} title
 * @param {{at: number}[]} samples oldest first; a gap in time is a gap in the line
 * @param {Line[]} lines
 * @param {number} step ms between two samples; longer is a gap
 * @param {(sample: any) => boolean} [isGap] whether a sample only fills a place, which is shaded
 * @param {{at: number} | null} [present] the numbers of now, with which the lines end
 */
export function chart(title, samples, lines, step, isGap = () => false, present = null) {
  const begin = samples[0]?.at ?? 0;
  const all = present && present.at > (samples.at(-1)?.at ?? 0) ? [...samples, present] : samples;
  const length = Math.max(1, (all.at(-1)?.at ?? 0) - begin);
  const top = ceiling(Math.max(1, ...all.flatMap((one) => lines.map(({ of }) => of(one) ?? 0))));
  const x = (/** @type {number} */ at) => ((WIDTH * (at - begin)) / length).toFixed(1);
  const drawn = lines.map(({ kind, of }) => {
    let path = "";
    let before = -Infinity;
    for (const [i, one] of all.entries()) {
      const value = of(one);
      if (value === null) {
        if (i < samples.length - 2) before = -Infinity; // the last ones may come late
        continue;
      }
      const y = HEIGHT - (HEIGHT * value) / top;
      const isNew = one.at - before > 3 * step;
      path += `${isNew ? "M" : "L"}${x(one.at)} ${y.toFixed(1)}${isNew ? "h0" : ""}`;
      before = one.at;
    }
    return s("path", { d: path || "M0 0", class: `line ${kind}` });
  });
  const gaps = gapsOf(samples, isGap).map(([from, to]) => s("path", { d: `M${x(from)} 0H${x(to)}V${HEIGHT}H${x(from)}z`, class: "gap" }));
  const grid = [0.5, 1].map((part) => s("path", { d: `M0 ${HEIGHT * (1 - part)}H${WIDTH}`, class: "grid" }));
  const picture = s("svg", { viewBox: `0 -2 ${WIDTH} ${HEIGHT + 4}`, preserveAspectRatio: "none", "aria-hidden": "true" }, gaps, grid, drawn);
  const legend = lines.map(({ name, kind, of }) => {
    const last = all.slice(-3).map(of).findLast((value) => value !== null) ?? null;
    return h("li", { class: kind }, h("i", { "aria-hidden": "true" }), `${name} `, h("b", null, last === null ? "–" : count(last < 10 ? Math.round(last * 10) / 10 : Math.round(last))));
  });
  const axis = h("p", { class: "axis", "aria-hidden": "true" }, h("span", null, samples.length ? clock(begin) : ""), h("span", null, samples.length ? clock(begin + length) : ""));
  return h("figure", { class: "chart", key: `chart-${title}` },
    h("figcaption", null, h("h3", null, title), h("ul", null, legend)),
    h("div", { class: "plot" }, h("span", { class: "top", "aria-hidden": "true" }, count(top)), picture), axis, numbers(title, samples, lines));
}

/**
 * @param {string} title
 * @param {{at: number}[]} samples
 * @param {Line[]} lines
 */
function numbers(title, samples, lines) {
  const every = Math.ceil(samples.length / 12) || 1;
  const rows = samples.filter((_, i) => (samples.length - 1 - i) % every === 0).reverse().map((one) => h("tr", { key: one.at }, h("th", { scope: "row" }, clock(one.at)), lines.map(({ of }) => {
    const value = of(one);
    return h("td", { class: "number" }, value === null ? "–" : count(Math.round(value * 10) / 10));
  })));
  return h("details", null, h("summary", null, "Numbers"), h("table", null, h("caption", null, title), h("thead", null, h("tr", null, h("th", { scope: "col" }, "Time"), lines.map(({ name }) => h("th", { scope: "col", class: "number" }, name)))), h("tbody", null, rows)));
}
