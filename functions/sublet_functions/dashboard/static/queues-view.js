/** Queues: depth, age, rates, settings; pause, resume, configure, purge. */
import { call, can, enc } from "./api.js";
import { orderAll } from "./bulk.js";
import { h } from "./dom.js";
import { form } from "./forms.js";
import { bytes, coarse, count, plural } from "./format.js";
import { eachGroupFields, flowFields, queueNumbers, settingWords } from "./limits.js";
import { follower, rates } from "./metrics.js";
import { link } from "./router.js";
import { changed } from "./sharing.js";
import { badge, button, confirm, empty, field, moment, perform, table, toast } from "./widgets.js";

/** @typedef {any} Queue */

const LIMIT = 200;
/**
 * @param {import("./router.js").Place} place
 * @param {import("./main.js").Page} page
 * @returns {import("./main.js").View}
 */
export function open(place, page) {
  /** @type {Queue[]} */
  let queues = [];
  let cursor = "";
  const figures = follower(page.paint);

  return {
    title: "Queues",
    load: async () => {
      const answer = await call("GET", "queues", { query: { limit: LIMIT, cursor: place.query.get("cursor") } });
      queues = answer.queues;
      cursor = answer.cursor ?? "";
      figures.follow();
    },
    render: () => [
      h("h1", { id: "title" }, "Queues"),
      queues.length ? h("div", { class: "panel" }, list(queues, figures.found, page)) : empty("No queues yet.", "A queue appears with its first job."),
      cursor && h("nav", { class: "row end", "aria-label": "Pages" }, h("a", { rel: "next", class: "button", href: link("queues", "", { cursor }) }, "Next page")),
    ],
    every: 15,
    everyLive: 30,
    rest: 2,
  };
}

/**
 * @param {Queue[]} queues
 * @param {import("./metrics.js").Figures | null} figures
 * @param {import("./main.js").Page} page
 */
function list(queues, figures, page) {
  const most = Math.max(1, ...queues.map(({ jobs }) => jobs));
  const may = can("PATCH", "/queues/{queue}") || can("POST", "/jobs/cancel");
  const number = (/** @type {string} */ label) => ({ label, class: "number" });
  const rows = queues.map((queue) => {
    const oldest = figures?.oldest.get(queue.name);
    const share = { width: `calc(${queue.jobs / most} * (100% - 12px))` };
    return h("tr", { key: queue.name },
      h("th", { scope: "row" }, h("a", { class: "open clamp", href: link("queues", queue.name), title: queue.name }, queue.name)),
      h("td", null, queue.paused_at ? [badge("paused"), h("small", { class: "faint block" }, moment(queue.paused_at))] : badge("active")),
      h("td", { class: "number" }, h("a", { class: "plain", href: link("jobs", "", { queue: queue.name, state: "queued" }), "aria-label": `${plural(queue.queued, "queued job")} of ${queue.name}` }, count(queue.queued))),
      h("td", { class: "number depth" }, count(queue.jobs), h("span", { class: "share", "aria-hidden": "true", style: share })),
      h("td", { class: "number" }, oldest ? coarse(oldest) : h("span", { class: "faint" }, "–")),
      rate(queue.name, "completed"),
      rate(queue.name, "failed"),
      h("td", { class: "wrap" }, settings(queue)),
      may ? h("td", { class: "actions" }, orders(queue, page)) : null);
  });
  return table("Queues", ["Queue", "State", number("Queued"), number("Unfinished"), number("Oldest waits"), number("Completed a minute"), number("Failed a minute"), "Settings", ...(may ? [{ label: "Orders", class: "actions" }] : [])], rows);
}

/**
 * @param {string} queue
 * @param {"completed" | "failed"} what
 */
function rate(queue, what) {
  const found = rates(queue);
  return h("td", { class: "number" }, found ? count(Math.round(found[what] * 10) / 10) : h("span", { class: "faint", title: "It takes two readings." }, "–"));
}

/** @param {Queue} queue */
function settings(queue) {
  const found = settingWords(queue);
  return found.length ? found.map((text) => h("span", { class: "tag", title: text }, text)) : h("span", { class: "faint" }, "none");
}

/**
 * @param {Queue} queue
 * @param {import("./main.js").Page} page
 */
export function orders(queue, page) {
  const { name, queued } = queue;
  const verb = queue.paused_at ? "Resume" : "Pause";
  const mayChange = can("PATCH", "/queues/{queue}");
  return [
    queued && can("POST", "/jobs/cancel") ? button(`Purge ${count(queued)}`, () => void purge(name, page), { class: "quiet", "aria-label": `Purge ${count(queued)}: ${name}`, title: `Cancel the ${plural(queued, "job")} that wait in this queue` }) : null,
    mayChange ? button(verb, () => void pause(queue, page), { "aria-label": `${verb} ${name}` }) : null,
    mayChange ? button("Configure", () => void configure(queue, page), { "aria-label": `Configure ${name}` }) : null,
  ];
}

/**
 * Cancel the jobs that wait in a queue.
 * @param {string} name
 * @param {import("./main.js").Page} page
 */
function purge(name, page) {
  const waiting = async () => {
    changed(); // no answer from before
    return (await call("GET", `queues/${enc(name)}`)).queued;
  };
  return orderAll("purge", { queue: name, state: "queued" }, ["The jobs that wait in queue ", h("b", null, name), " will not run."], page, { counted: waiting });
}

/**
 * @param {Queue} queue
 * @param {import("./main.js").Page} page
 */
async function pause(queue, page) {
  const isPaused = Boolean(queue.paused_at);
  const text = `${count(queue.queued)} queued jobs wait until it is resumed. Running ones go on; new ones can be submitted.`;
  if (!isPaused && !(await confirm(`Pause queue ${queue.name}?`, text, "Pause"))) return;
  await perform(() => call("PATCH", `queues/${enc(queue.name)}`, { body: { paused: !isPaused } }), isPaused ? "The queue is resumed." : "The queue is paused.");
  page.reload();
}

/**
 * @param {Queue} queue
 * @param {import("./main.js").Page} page
 */
async function configure(queue, page) {
  const give = async (/** @type {FormData} */ data) => {
    await call("PATCH", `queues/${enc(queue.name)}`, { body: { limits: queueNumbers(data), on_dead: data.get("on_dead") || null } });
    toast("The queue is configured.");
    page.reload();
  };
  const one = (/** @type {string} */ kind, /** @type {string} */ label, /** @type {string} */ hint) => field(label, kind, { type: "number", min: 0, value: queue.limits[kind] ?? "", autofocus: kind === "jobs" }, hint);
  const hook = field("Task for each dead job", "on_dead", { value: queue.on_dead ?? "", pattern: "[A-Za-z0-9_.:\\-]{1,128}(/[A-Za-z0-9_.:\\-]{1,128})?" }, "TASK, or QUEUE/TASK: a job of it is submitted for each job that becomes dead");
  await form(`Configure ${queue.name}`, "Configure", give, h("p", null, "An empty field removes the setting."),
    h("fieldset", null, h("legend", null, "Stored jobs: a submit beyond is refused"), h("div", { class: "row fields" }, one("jobs", "Unfinished jobs", `Now ${count(queue.jobs)}`), one("bytes", "Bytes of their payloads", `Now ${bytes(queue.bytes)}`))),
    flowFields("Running jobs of the queue", "", queue.limits), eachGroupFields(queue.limits), hook);
}
