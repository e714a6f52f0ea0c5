/**
 * How old an answer may be that the server has read for another page: it must show each order that this page gave and, unless many events arrive, each
 * event that it has heard. Many open pages then cost Redis what one costs.
 */

/** Milliseconds without an event after which a read shows all events heard. In a rush it need not: live.js tells them again. */
export const SOON = 250;
const CALM_MOST = 2000;
const RUSH_MOST = 5000;
/** Seconds for lists and numbers that cost many reads: they may lack events, so live.js tells the last ones again after as long. */
export const COSTLY = 60;
/** The same for the state of Redis, which neither events nor orders change. */
const SERVER = "20, 20";
const LISTS = /^(stats|metrics|queues|tasks|workers|pools|schedules|queues\/[^/]+\/groups)$/;
/** Milliseconds by which timers may be early. */
const MARGIN = 50;

let heardAt = -Infinity;
let changedAt = -Infinity;
let isRush = false;

/**
 * Note that an event has arrived.
 * @param {boolean} rushed whether many have lately
 */
export function heard(rushed) {
  heardAt = performance.now();
  isRush = rushed;
}

/** Note the end of a rush. */
export function calmed() {
  isRush = false;
}

/** Note that everything may have changed: by an order of this page, or before the stream began. */
export function changed() {
  changedAt = performance.now();
}

/** Whether a read shows all events heard. */
export const isExact = () => !isRush && performance.now() - heardAt >= SOON;

/**
 * The value of the header Sublet-Shared, in seconds.
 * @param {string} path
 */
export function allowance(path) {
  if (path === "server") return SERVER;
  const now = performance.now();
  const known = Math.max(0, now - changedAt - MARGIN);
  const most = Math.min(known, isExact() ? Math.min(CALM_MOST, now - heardAt - MARGIN) : RUSH_MOST) / 1000;
  const costly = Math.max(most, Math.min(LISTS.test(path) ? COSTLY : most, known / 1000));
  return `${most.toFixed(3)}, ${costly.toFixed(3)}`;
}
