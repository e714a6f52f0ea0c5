/** Workers and pools: last heard of, jobs held, how many are wanted and why. */
import { call, can, enc, isLimited, now, readAt } from "./api.js";
import { h } from "./dom.js";
import { bytes, count, duration, figure, plain, plural } from "./format.js";
import { link } from "./router.js";
import { badge, button, confirm, empty, icon, moment, ms, panel, perform, queueLink, table } from "./widgets.js";

/** @typedef {any} Worker */
/** @typedef {any} Pool */

/** Seconds without a heartbeat after which it is told since when: a worker sends one about every 5 s. */
const QUIET = 12;
/** The same after which a worker may be gone: then leases of the usual length have ended. */
const SILENT = 30;

/**
 * @param {import("./router.js").Place} _place
 * @param {import("./main.js").Page} page
 * @returns {import("./main.js").View}
 */
export function open(_place, page) {
  /** @type {Worker[]} */
  let workers = [];
  /** @type {Pool[]} */
  let pools = [];
  let at = 0;
  return {
    title: "Workers",
    load: async () => {
      const [first, second] = await Promise.all([call("GET", "workers"), call("GET", "pools").catch(() => ({ pools: [] }))]);
      workers = first.workers;
      at = readAt(first) + now() - Date.now();
      pools = second.pools;
    },
    render: () => [
      h("h1", { id: "title" }, "Workers"),
      isLimited() ? h("p", { class: "subtitle" }, "Workers of this token only: those of others are hidden from a token that is limited to queues.") : null,
      workers.length ? h("div", { class: "panel" }, list(workers, at, page)) : empty("No worker is registered.", "Workers appear when they start.", h("pre", null, "sublet work MODULE:APP")),
      panel("Pools", pools.length ? poolList(pools) : empty("No pools.", "A pool starts workers when its queues need them.")),
    ],
    touched: (events) => events.some(({ state }) => state === "running"),
    every: 10,
    everyLive: 15,
    rest: 3,
  };
}

/**
 * @param {Worker[]} workers
 * @param {number} at when they were read
 * @param {import("./main.js").Page} page
 */
function list(workers, at, page) {
  const number = (/** @type {string} */ label) => ({ label, class: "number" });
  const may = can("POST", "/workers/{name}/drain");
  const rows = workers.map((worker) => {
    const { about } = worker;
    const seen = ms(worker.seen_at);
    const silence = (at - seen) / 1000;
    const state = silence > SILENT ? badge("warning", "silent") : silence > QUIET ? badge("warning", "late") : worker.draining ? badge("draining") : badge("active", "alive");
    const host = [about.host, about.pid && `pid ${plain(about.pid)}`, about.platform].filter(Boolean).map(plain).join(" · ");
    const slots = figure(about.slots);
    const queues = Array.isArray(about.queues) ? about.queues : [];
    const shown = queues.slice(0, 3);
    return h("tr", { key: worker.name },
      h("th", { scope: "row" }, h("span", { class: "clamp", title: worker.name }, worker.name), h("small", { class: "faint clamp", title: host }, host)),
      h("td", null, state, h("small", { class: "faint block" }, silence > QUIET ? ["nothing heard since ", moment(worker.seen_at, { exact: true })] : moment(worker.seen_at))),
      h("td", { class: "number" }, slots === "–" || slots === "0" ? count(worker.leases) : `${count(worker.leases)} of ${slots}`),
      h("td", { class: "jobs" }, held(worker)),
      h("td", { class: "wrap" }, shown.map(queueTag), moreQueues(worker.name, queues.slice(3), about.queue_count - queues.length), queues.length ? null : h("span", { class: "faint" }, "not said")),
      h("td", { class: "number" }, figure(about.completed)),
      h("td", { class: "number" }, figure(about.failed)),
      h("td", { class: "number" }, figure(about.memory, bytes)),
      h("td", { class: "when", title: silence > QUIET ? "Until its last heartbeat" : null }, duration(((silence > QUIET ? seen : now()) - ms(worker.enlisted_at)) / 1000)),
      may ? h("td", { class: "actions" }, worker.draining ? null : button("Drain", () => void drain(worker, page), { "aria-label": `Drain ${worker.name}` })) : null);
  });
  return table("Workers", ["Worker", "State", number("Holds"), "Jobs", "Queues", number("Completed"), number("Failed"), number("Memory"), "Runs for", ...(may ? [{ label: "Orders", class: "actions" }] : [])], rows);
}

/** @param {unknown} queue */
const queueTag = (queue) => h("span", { class: "tag", title: plain(queue) }, plain(queue));

/**
 * The other queues of a worker, to be opened.
 * @param {string} worker
 * @param {unknown[]} queues
 * @param {number} untold how many more it serves, whose names a registration has no room for
 */
function moreQueues(worker, queues, untold) {
  const rest = untold > 0 ? h("small", { class: "faint" }, `and ${count(untold)} that it does not name`) : null;
  return [queues.length ? h("details", { class: "more", key: `queues of ${worker}` }, h("summary", null, `and ${count(queues.length)} more`), queues.map(queueTag)) : null, rest];
}

/** @param {Worker} worker */
function held(worker) {
  if (!worker.jobs.length) return h("span", { class: "faint" }, "none", worker.last_job_at ? h("small", { class: "block" }, "the last ended ", moment(worker.last_job_at)) : null);
  const shown = worker.jobs.slice(0, 3).map((/** @type {string} */ id) => h("a", { class: "id block", href: link("jobs", id), key: id, title: id }, id));
  return [shown, worker.leases > 3 ? h("small", { class: "block" }, h("a", { href: link("jobs", "", { worker: worker.name, state: "running" }) }, `and ${count(worker.leases - 3)} more`)) : null];
}

/**
 * @param {Worker} worker
 * @param {import("./main.js").Page} page
 */
async function drain(worker, page) {
  const text = `It claims no more jobs, finishes the ${plural(worker.leases, "job")} that it holds, and ends. Whatever started it may start another one.`;
  if (!(await confirm(`Drain ${worker.name}?`, text, "Drain"))) return;
  await perform(() => call("POST", `workers/${enc(worker.name)}/drain`), "The worker is asked to drain.");
  page.reload();
}

/** @param {Pool[]} pools */
function poolList(pools) {
  const number = (/** @type {string} */ label) => ({ label, class: "number" });
  const rows = pools.map((pool) => {
    const sum = pool.sum ?? { wanted: 0, crew: 0, summoned: 0, owed: 0, ready: 0, running: 0, rate: 0, run: 0, need: 0 };
    const why = `${plural(sum.ready, "ready job")}, ${count(sum.running)} running, ${sum.rate.toFixed(1)} new a second of ${duration(sum.run)} each: ${sum.need.toFixed(1)} at a time, ${count(pool.slots)} a worker, from ${count(pool.min)} to ${count(pool.max)}`;
    return h("tr", { key: pool.name },
      h("th", { scope: "row" }, h("span", { class: "clamp", title: pool.name }, pool.name), h("small", { class: "faint block" }, pool.invoker === "none" ? "an autoscaler starts its workers" : `${pool.invoker} ${pool.target}`)),
      h("td", null, pool.queues.map((/** @type {string} */ queue) => h("span", { class: "block" }, queueLink(queue)))),
      h("td", { class: "number" }, count(sum.wanted)), h("td", { class: "number" }, count(sum.crew)), h("td", { class: "number" }, count(sum.summoned)),
      h("td", { class: "number" }, sum.owed ? h("b", null, count(sum.owed)) : "0"),
      h("td", { class: "sum" }, why),
      h("td", null, pool.failure ? h("span", { class: "badge warning wrap" }, icon("warning"), h("span", null, pool.failure, " ", moment(pool.failed_at))) : h("span", { class: "faint" }, "none")));
  });
  return table("Pools", ["Pool", "Queues", number("Wanted"), number("Here"), number("On the way"), number("Owed"), "Why", "Last failure"], rows);
}
