/** One workflow: how many of its jobs have ended, and its graph. */
import { ApiError, call, can, enc } from "./api.js";
import { h, s } from "./dom.js";
import { listed, parts, standing, stateOf, todo } from "./flow-parts.js";
import { count, plural } from "./format.js";
import { WIDTH, arrange, fold } from "./graph.js";
import { STATES } from "./jobs-view.js";
import { link } from "./router.js";
import { badge, button, confirm, copy, errorNote, facts, icon, moment, panel, table, toast } from "./widgets.js";

/** @typedef {import("./graph.js").Member} Member */
/** @typedef {import("./graph.js").GraphNode} GraphNode */
/** @typedef {any} Workflow */
/** @typedef {"cancel" | "retry"} Verb */

const LIMIT = 200;
/** Jobs that are read at first, and when asked. */
const FIRST = 1000;
const MOST = 10_000;
/** Milliseconds between two reads of all jobs of a workflow of more than LIMIT: events tell their states meanwhile. */
const REST = 60_000;
/** States of unfinished jobs. */
const LIVE = STATES.slice(0, 3);
const FAILED = ["dead", "cancelled"];
/** States in the order in which a node tells them. */
const TOLD = ["dead", "cancelled", "held", "running", "queued", "scheduled", "completed"];
/** Outcomes of orders in words. @type {Record<string, string>} */
const OUTCOMES = { cancelled: "cancelled", cascaded: "cancelled with the job that they wait for", requested: "asked to stop", queued: "queued again", scheduled: "waiting again", unchanged: "changed by another job or order" };

/**
 * @param {import("./router.js").Place} place
 * @param {import("./main.js").Page} page
 * @returns {import("./main.js").View}
 */
export function open(place, page) {
  const { name, query } = place;
  const address = location.href;
  /** @type {Workflow} */
  let flow = null;
  /** @type {Map<string, Member>} */
  const members = new Map();
  /** @type {ReturnType<typeof drawn> | null} */
  let picture = null;
  let most = FIRST;
  let readAt = -Infinity;
  let isReading = false;
  /** Why the jobs were not read on. @type {unknown} */
  let problem = null;
  /** The order that is being carried out, and for how many jobs it is. @type {{verb: Verb, done: number} | null} */
  let given = null;

  /** @param {Member[]} jobs */
  function keep(jobs) {
    for (const job of jobs) {
      const before = members.get(job.id);
      if (!before || String(before.after) !== String(job.after)) picture = null;
      members.set(job.id, job);
    }
  }

  /** @param {Record<string, any>} asked */
  async function readPage(asked) {
    const { members: jobs, ...answer } = await call("GET", `workflows/${enc(name)}`, { query: { limit: LIMIT, ...asked } });
    keep(jobs);
    return answer;
  }

  /** Read jobs that failed, then those behind a cursor, until `most` are read or the page is left. @param {string} cursor */
  async function readOn(cursor) {
    if (isReading) return;
    isReading = true;
    readAt = performance.now();
    let next = cursor;
    try {
      await readPage({ state: FAILED });
      for (let n = next ? LIMIT : 0; n < most && location.href === address; n += LIMIT) {
        const answer = await readPage({ cursor: next });
        page.paint();
        next = answer.cursor;
        if (!next) break;
      }
      problem = null;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      problem = error;
    } finally {
      isReading = false;
      page.paint();
    }
  }

  async function load() {
    const isLarge = flow && totalOf(flow) > LIMIT;
    flow = await readPage({ limit: isLarge ? 1 : LIMIT });
    const isDue = performance.now() - readAt > REST && (readAt < 0 || flow.unfinished > 0 || differ(flow, members));
    if (totalOf(flow) > LIMIT && isDue) void readOn(isLarge ? "" : flow.cursor);
  }

  /** @param {Verb} verb */
  async function give(verb) {
    if (!(await asked(verb, flow))) return;
    given = { verb, done: 0 };
    page.paint();
    /** @type {Record<string, number>} */
    const sums = {};
    let cursor = null;
    let refused = 0;
    let error = null;
    try {
      do {
        const answer = await call("POST", `workflows/${enc(name)}/${verb}`, { body: { cursor } });
        for (const [outcome, n] of Object.entries(answer.outcomes)) sums[outcome] = (sums[outcome] ?? 0) + n;
        refused += answer.refused;
        cursor = answer.cursor;
        given.done = Object.values(sums).reduce((a, b) => a + b, 0);
        page.paint();
      } while (cursor);
    } catch (thrown) {
      if (!(thrown instanceof ApiError)) throw thrown;
      error = thrown;
    }
    given = null;
    readAt = Math.min(readAt, performance.now() - REST); // states that no event has told
    const words = Object.entries(sums).map(([outcome, n]) => `${count(n)} ${OUTCOMES[outcome] ?? outcome}`);
    if (refused) words.push(`${count(refused)} refused`);
    const told = `${verb === "cancel" ? "Cancel" : "Retry"}: ${words.join(", ") || "no job was left"}.`;
    toast(error ? `${told} Then it stopped: ${error.message}` : told, error || refused ? "bad" : "good");
    page.reload(true);
  }

  const readAll = () => {
    most = MOST;
    void readOn("");
    page.paint();
  };

  return {
    title: `Workflow ${name}`,
    load,
    render: () => {
      picture ??= drawn(members);
      const orders = h("div", { class: "row orders" }, ordersOf(flow, given, give), button("Copy id", () => void copy(flow.id), { class: "quiet" }));
      const extent = extentOf(flow, members.size, picture.undrawn, isReading, most < MOST ? readAll : null);
      return [head(flow, members), orders, todo(members), summary(flow, members), errorNote(problem), panel("Graph", extent, graph(picture, members, name, query.get("job")), asTable(picture, members))];
    },
    touched: (events) => {
      let isHit = !flow || flow.state === "open" || members.size < totalOf(flow);
      for (const { jobs, state, code } of events)
        for (const id of jobs) {
          const job = members.get(id);
          if (!job) continue;
          isHit = true;
          if (job.state !== state) members.set(id, { ...job, state, last_error: state === "dead" ? { code } : null });
        }
      return isHit;
    },
    every: 5,
    get everyLive() {
      return flow?.ended_at ? 120 : 20; // jobs that are added, and those of workflows that are not whole
    },
    rest: 2,
  };
}

/** @param {Workflow} flow */
const endedOf = (flow) => flow.completed + flow.dead + flow.cancelled;

/** @param {Workflow} flow */
const totalOf = (flow) => flow.unfinished + endedOf(flow);

/**
 * Whether the states that are known of all jobs have other sums than the server counts.
 * @param {Workflow} flow
 * @param {Map<string, Member>} members
 */
function differ(flow, members) {
  if (members.size < totalOf(flow)) return false;
  const sums = sumsOf([...members.values()], members);
  return ["completed", "dead", "cancelled"].some((state) => (sums.get(state) ?? 0) !== flow[state]);
}

/**
 * How many of these jobs have each state, in the order in which they are told.
 * @param {Member[]} jobs
 * @param {Map<string, Member>} members
 */
function sumsOf(jobs, members) {
  const sums = new Map(TOLD.map((state) => [state, 0]));
  for (const { id } of jobs) {
    const job = members.get(id);
    const state = job ? stateOf(job) : "";
    sums.set(state, (sums.get(state) ?? 0) + 1);
  }
  return new Map([...sums].filter(([, n]) => n));
}

/** @param {Map<string, Member>} members */
function drawn(members) {
  const { nodes, undrawn } = fold(members);
  return { nodes, undrawn, ...arrange(nodes) };
}

/**
 * @param {Workflow} flow
 * @param {Map<string, Member>} members
 */
function head(flow, members) {
  const state = flow.state === "cancelled" ? badge("cancelled") : flow.state === "open" ? badge("held", "being stored") : flow.ended_at ? badge("ended", "ended") : standing(flow, members);
  const note = { open: "More of its jobs are being stored: they wait until it is whole. If that does not happen within an hour, they are cancelled.", cancelled: "It was cancelled before all of its jobs were stored." }[/** @type {string} */ (flow.state)];
  return [
    h("p", { class: "crumbs" }, h("a", { href: link("jobs", "", { workflow: flow.id }) }, "Jobs of this workflow")),
    h("div", { class: "title" }, h("h1", { id: "title" }, "Workflow"), state),
    h("p", { class: "subtitle" }, h("code", null, flow.id)),
    note ? h("div", { class: "note" }, icon("held"), h("p", null, note)) : null,
  ];
}

/**
 * @param {Workflow} flow
 * @param {{verb: Verb, done: number} | null} given
 * @param {(verb: Verb) => Promise<void>} give
 */
function ordersOf(flow, given, give) {
  if (given) return h("p", { role: "status" }, `${given.verb === "cancel" ? "Cancelling" : "Retrying"}: ${plural(given.done, "job")} so far…`);
  const may = (/** @type {Verb} */ verb) => can("POST", `/workflows/{id}/${verb}`);
  return [
    flow.dead + flow.cancelled && may("retry") ? button("Retry", () => void give("retry"), { class: "primary" }) : null,
    (flow.unfinished || flow.state === "open") && may("cancel") ? button("Cancel", () => void give("cancel"), { class: "danger" }) : null,
  ];
}

/**
 * @param {Verb} verb
 * @param {Workflow} flow
 */
function asked(verb, { unfinished, dead, cancelled }) {
  if (verb === "cancel") return confirm("Cancel this workflow?", `${plural(unfinished, "job")} ${unfinished === 1 ? "has" : "have"} not ended: those that wait will not run, and workers stop the running ones with their next heartbeat. You can retry them later.`, "Cancel the workflow", { danger: true });
  return confirm("Retry this workflow?", `${count(dead)} dead and ${plural(cancelled, "cancelled job")}: those that failed, or that an order cancelled, get all of their attempts again, and those that waited for them wait again. Completed jobs stay as they are.`, "Retry the workflow");
}

/**
 * @param {Workflow} flow
 * @param {Map<string, Member>} members
 */
function summary(flow, members) {
  const [ended, total] = [endedOf(flow), totalOf(flow)];
  const text = `${count(ended)} of ${plural(total, "job")} ${total === 1 ? "has" : "have"} ended`;
  return [h("p", { class: "ended-of" }, text), parts(flow, members), facts([
    ["Stored", moment(flow.created_at, { exact: true })],
    ["Ended", flow.ended_at && moment(flow.ended_at, { exact: true })],
  ])];
}

/**
 * What of the workflow is drawn, unless it is all of it.
 * @param {Workflow} flow
 * @param {number} known
 * @param {number} undrawn jobs in nodes that are not drawn
 * @param {boolean} isReading
 * @param {(() => void) | null} readAll
 */
function extentOf(flow, known, undrawn, isReading, readAll) {
  const total = totalOf(flow);
  const cut = undrawn ? h("p", { class: "faint" }, `The graph is large: its last layers, with ${plural(undrawn, "job")}, are not drawn.`) : null;
  if (known >= total) return cut;
  if (isReading) return [h("p", { class: "faint" }, `Reading: ${count(known)} of ${count(total)} jobs…`), cut];
  const more = readAll && known < Math.min(total, MOST) ? button(total > MOST ? `Read ${count(MOST)}` : `Read all ${count(total)}`, readAll, { class: "small" }) : null;
  const why = known < Math.min(total, FIRST) ? "The others have been deleted after their retention." : "Those that failed, and those that had not ended, are read first.";
  return [h("div", { class: "row faint" }, h("p", null, `${count(known)} of ${count(total)} jobs are drawn. ${why}`), more), cut];
}

/** @param {GraphNode} node */
const nameOf = ({ jobs }) => `${jobs[0]?.task}${jobs.length > 1 ? ` × ${count(jobs.length)}` : ""}`;

/**
 * @param {ReturnType<typeof drawn>} picture
 * @param {Map<string, Member>} members
 * @param {string} workflow
 * @param {string | null} here the job from which the user came
 */
function graph({ boxes, paths, width, height }, members, workflow, here) {
  const lines = s("svg", { width, height, "aria-hidden": "true" }, paths.map((d) => s("path", { d, class: "edge" })));
  const nodes = boxes.map(({ node, x, y, height: own }) => {
    const style = { left: `${x}px`, top: `${y}px`, width: `${WIDTH}px`, height: `${own}px` };
    const isHere = node.jobs.some(({ id }) => id === here);
    return h("li", { key: node.key, class: isHere ? "here" : null, style }, node.jobs.length > 1 ? folded(node, members, workflow) : single(node, members));
  });
  const canvas = h("div", { class: "canvas", style: { width: `${width}px`, height: `${height}px` } }, lines, h("ul", null, nodes));
  return h("div", { class: "scroll graph", tabindex: "0", role: "region", "aria-label": "Graph: jobs, and those that wait for them, from left to right" }, canvas);
}

/**
 * @param {GraphNode} node
 * @param {Map<string, Member>} members
 */
function single({ jobs }, members) {
  const job = members.get(jobs[0]?.id ?? "") ?? /** @type {Member} */ (jobs[0]);
  return h("a", { class: `node ${stateOf(job)}`, href: link("jobs", job.id), title: `${job.task} · queue ${job.queue}` },
    h("b", null, job.task), h("span", { class: "told" }, badge(stateOf(job)), noteOf(job, members)), h("code", { class: "id" }, job.id));
}

/**
 * Why a job failed, or for how many jobs it waits.
 * @param {Member} job
 * @param {Map<string, Member>} members
 */
function noteOf(job, members) {
  if (job.last_error && FAILED.includes(job.state)) return h("code", { class: "code" }, job.last_error.code);
  if (job.last_error && job.state !== "completed") return h("small", null, "after ", h("code", null, job.last_error.code));
  const [kind, what] = job.state === "scheduled" ? (job.awaits ?? "").split(" ", 2) : [];
  if (kind === "retry") return h("small", null, "until a retry");
  if (kind === "signal") return h("small", null, `until signal ${what}`);
  if (kind !== "upstream") return null;
  const isWhole = job.after_count <= job.after.length; // then events tell it sooner
  const left = isWhole ? job.after.filter((id) => LIVE.includes(members.get(id)?.state ?? "queued")).length : Number(what);
  return h("small", null, `waits for ${left < job.after_count ? `${count(left)} of ${count(job.after_count)}` : plural(left, "job")}`);
}

/**
 * @param {GraphNode} node
 * @param {Map<string, Member>} members
 * @param {string} workflow
 */
function folded({ jobs }, members, workflow) {
  const [task, sums] = [jobs[0]?.task ?? "", sumsOf(jobs, members)];
  const worst = [...sums.keys()][0];
  const parts = [...sums].map(([state, n]) => h("i", { class: state, style: { "flex-grow": n } }));
  const links = [...sums].map(([state, n]) => h("a", { href: link("jobs", "", { workflow, task, state: listed(state) }) }, badge(state, `${count(n)} ${state}`)));
  return h("div", { class: `node fold ${worst}` },
    h("a", { class: "plain", href: link("jobs", "", { workflow, task }), title: `${task} · queue ${jobs[0]?.queue}` }, h("b", null, task), h("span", null, ` × ${count(jobs.length)}`)),
    h("span", { class: "parts", "aria-hidden": "true" }, parts), h("span", { class: "told" }, links));
}

/**
 * @param {ReturnType<typeof drawn>} picture
 * @param {Map<string, Member>} members
 */
function asTable({ nodes }, members) {
  const rows = nodes.map((node) => {
    const [job] = node.jobs;
    const most = Math.max(...node.jobs.map(({ after_count }) => after_count));
    const names = [...new Set([...node.before.keys()].map(nameOf))];
    const waits = most ? `${node.jobs.length > 1 ? "each for " : ""}${plural(most, "job")}${names.length ? `: ${names.slice(0, 5).join(", ")}${names.length > 5 ? ", …" : ""}` : ""}` : h("span", { class: "faint" }, "–");
    const states = [...sumsOf(node.jobs, members)].map(([state, n]) => badge(state, node.jobs.length > 1 ? `${count(n)} ${state}` : state));
    const name = node.jobs.length > 1 ? nameOf(node) : [h("a", { class: "open", href: link("jobs", job?.id) }, job?.task), h("code", { class: "id" }, job?.id)];
    return h("tr", { key: node.key }, h("th", { scope: "row" }, name), h("td", { class: "number" }, count(node.layer + 1)), h("td", null, h("span", { class: "tags" }, states)), h("td", { class: "wrap" }, waits));
  });
  return h("details", { class: "numbers" }, h("summary", null, "The graph as a table"), table("Jobs of the graph", ["Job", { label: "Layer", class: "number" }, "State", "Waits for"], rows));
}
