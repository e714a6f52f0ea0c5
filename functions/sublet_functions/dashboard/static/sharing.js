/**
 * How old an answer may be that the server has read for another page: it must show each event that this page has heard, and each
 * order that it gave. Many open pages then cost Redis what one costs.
 */

/** Milliseconds without an event after which it is calm: a read shows all events heard. While it is not, live.js tells them again. */
export const CALM = 250;
const CALM_MOST = 1000;
const BUSY_MOST = 6000;
/** Seconds for lists and numbers that cost many reads: they may lack events, so live.js tells the last ones again after as long. */
export const COSTLY = 30;
const NUMBERS = 60;
/** The same for the state of Redis, which neither events nor orders change. */
const SERVER = "20, 20";
const LISTS = /^(queues|tasks|workers|pools|schedules)$/;
/** Milliseconds by which timers may be early. */
const MARGIN = 50;

let heardAt = -Infinity;
let changedAt = -Infinity;

/** Note that an event has arrived. */
export function heard() {
  heardAt = performance.now();
}

/** Note that everything may have changed: by an order of this page, or before the stream began. */
export function changed() {
  changedAt = performance.now();
}

/**
 * The value of the header Sublet-Shared, in seconds.
 * @param {string} path
 */
export function allowance(path) {
  if (path === "server") return SERVER;
  const now = performance.now();
  const known = Math.max(0, now - changedAt - MARGIN);
  const calm = now - heardAt;
  const most = Math.min(known, calm >= CALM ? Math.min(CALM_MOST, calm - MARGIN) : BUSY_MOST) / 1000;
  const patience = /^(stats|metrics)$/.test(path) ? NUMBERS : LISTS.test(path) ? COSTLY : most;
  const costly = Math.max(most, Math.min(patience, known / 1000));
  return `${most.toFixed(3)}, ${costly.toFixed(3)}`;
}
