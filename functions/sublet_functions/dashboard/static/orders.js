/** Orders for one job. Each sends the revision that the user saw, so that it cannot hit a changed job. */
import { call, can, enc, parseExactly, seesPayloads } from "./api.js";
import { h } from "./dom.js";
import { form, refusal } from "./forms.js";
import { pretty } from "./format.js";
import { go, link } from "./router.js";
import { awaits, button, confirm, copy, field, perform, toast } from "./widgets.js";

/** @typedef {any} Job */

/**
 * @param {"retry" | "cancel" | "promote" | "reschedule" | "erase"} verb
 * @param {Job} job
 * @param {Record<string, any>} [changes]
 */
export const order = (verb, job, changes = {}) => call("POST", `jobs/${enc(job.id)}/${verb}`, { body: { revision: job.revision, ...changes } });

/** Is given each reading of the job that an open dialog is about. @type {((job: Job) => void) | null} */
let watching = null;

/**
 * Show a dialog about a job. If the job changes meanwhile, the dialog says so, and can no longer give its order.
 * @template T
 * @param {Job} job
 * @param {() => Promise<T>} show
 */
async function watched(job, show) {
  watching = (fresh) => {
    const box = document.querySelector("dialog[open]");
    if (!box || box.querySelector(".overtaken") || fresh.id !== job.id || (fresh.revision === job.revision && fresh.state === job.state)) return;
    const what = fresh.state === job.state ? "has been changed" : `is ${fresh.state} now`;
    box.querySelector(".end")?.before(h("p", { class: "note overtaken", role: "alert" }, `The job ${what}: close this, and look at it again.`));
    for (const one of box.querySelectorAll(".primary, .danger")) one.remove();
  };
  return show().finally(() => (watching = null));
}

/** Which orders a state allows. @type {Record<string, string[]>} */
const ALLOWED = { scheduled: ["promote", "reschedule", "cancel"], queued: ["reschedule", "cancel"], running: ["cancel"], dead: ["retry", "erase"], cancelled: ["retry", "erase"], completed: ["erase"] };

/**
 * @param {Job} job
 * @param {import("./main.js").Page} page
 */
export function jobOrders(job, page) {
  watching?.(job);
  const allowed = ALLOWED[job.state] ?? [];
  const [awaited = ""] = awaits(job);
  const give = async (/** @type {"retry" | "cancel" | "promote"} */ verb, /** @type {string} */ done) => {
    await perform(() => order(verb, job), done);
    page.reload();
  };
  const cancel = async () => {
    const text = job.state === "running" ? "Its worker gets the request with its next heartbeat, and stops the attempt." : "It will not run. You can retry it later.";
    if (await watched(job, () => confirm(`Cancel this job of ${job.task}?`, text, "Cancel the job", { danger: true }))) await give("cancel", job.state === "running" ? "The worker is asked to stop." : "The job is cancelled.");
  };
  const promote = async () => {
    const text = "It runs without what it waits for: jobs that have not ended, or have failed. That cannot be taken back.";
    const isWaiting = ["upstream", "retry"].includes(awaited);
    if (!isWaiting || (await watched(job, () => confirm(`Run this job of ${job.task} now?`, text, "Run now", { danger: true })))) await give("promote", "The job is queued.");
  };
  const erase = async () => {
    if (!(await watched(job, () => confirm(`Erase this job of ${job.task}?`, "Its payload, result, log and attempts are deleted for good.", "Erase the job", { danger: true })))) return;
    if (await perform(() => order("erase", job), "The job is erased.")) go(link("jobs", "", { state: job.state }));
  };
  const may = (/** @type {string} */ verb) => allowed.includes(verb) && can("POST", `/jobs/{id}/${verb}`);
  return [
    may("retry") ? button("Retry", () => void give("retry", "The job is queued again."), { class: "primary" }) : null,
    may("promote") && awaited !== "signal" ? button("Run now", () => void promote(), { class: ["upstream", "retry"].includes(awaited) ? "" : "primary" }) : null,
    awaited === "signal" && can("POST", "/jobs/{id}/signal") ? button("Send signal", () => void sendSignal(job, page), { class: "primary" }) : null,
    may("reschedule") ? button("Reschedule", () => void reschedule(job, page)) : null,
    may("cancel") ? button("Cancel", () => void cancel(), { class: "danger" }) : null,
    may("erase") ? button("Erase", () => void erase(), { class: "danger" }) : null,
    can("POST", "/jobs") ? button("Edit and submit again", () => void resubmit(job)) : null,
    button("Copy id", () => void copy(job.id), { class: "quiet" }),
    seesPayloads() ? [button("Copy as curl", () => void copy(asCurl(job), told(job)), { class: "quiet" }), button("Copy as Python", () => void copy(asPython(job), told(job)), { class: "quiet" })] : null,
  ];
}

/**
 * A moment as a field of type datetime-local has it: without zone, to the second.
 * @param {number} at
 */
const local = (at) => new Date(at - new Date(at).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);

/**
 * Ask for a new time and priority, and order what differs.
 * @param {Job} job
 * @param {import("./main.js").Page} page
 */
function reschedule(job, page) {
  const due = job.due_at ? Math.floor(Date.parse(job.due_at) / 1000) * 1000 : 0;
  const give = async (/** @type {FormData} */ data) => {
    const at = Date.parse(String(data.get("run_at")));
    const priority = Number(data.get("priority"));
    const changes = { ...(at && at !== due ? { run_at: new Date(at).toISOString() } : {}), ...(priority !== job.priority ? { priority } : {}) };
    if (!Object.keys(changes).length) throw refusal("Change the time or the priority.");
    await order("reschedule", job, changes).finally(() => page.reload());
    toast("The job is rescheduled.");
  };
  return watched(job, () => form(`Reschedule this job of ${job.task}`, "Reschedule", give,
    field("Time", "run_at", { type: "datetime-local", step: 1, value: due ? local(due) : "", autofocus: true }, `By the clock of this browser; one that has passed means now. ${due ? "" : "Empty: it stays queued."}`),
    field("Priority", "priority", { type: "number", min: -100, max: 100, required: true, value: job.priority }, "-100 to 100; higher runs first")));
}

/**
 * Ask for the value of the signal that a job waits for, and send it.
 * @param {Job} job
 * @param {import("./main.js").Page} page
 */
function sendSignal(job, page) {
  const [, awaited] = awaits(job);
  const give = async (/** @type {FormData} */ data) => {
    const name = String(data.get("name")).trim();
    const body = { name, value: jsonOf(data, "value") };
    await call("POST", `jobs/${enc(job.id)}/signal`, { body }).finally(() => page.reload());
    toast(name === awaited ? "The signal is sent: the job is queued." : `The signal is kept: the job still waits for ${awaited}.`);
  };
  return watched(job, () => form(`Send a signal to this job of ${job.task}`, "Send", give,
    field("Signal", "name", { value: awaited, required: true }, "The job waits for this one; another is kept until it waits for that"),
    field("Value", "value", { rows: 6, text: "null", autofocus: true }, "JSON: what the task gets. A signal is kept once, and cannot be taken back.")));
}

/** @param {Job} job */
const bodyOf = (job) => ({
  task: job.task,
  queue: job.queue,
  payload: job.payload ?? {},
  max_attempts: job.max_attempts,
  ...(job.priority ? { priority: job.priority } : {}),
  ...(job.tags?.length ? { tags: job.tags } : {}),
  ...(job.group ? { group: job.group } : {}),
  ...(job.cost > 1 ? { cost: job.cost } : {}),
});

/** @param {Job} job */
const told = (job) => (job.payload === null ? "Copied without arguments: they were deleted after completion." : "Copied");

/** @param {string} text */
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** @param {Job} job */
const asCurl = (job) => `curl --json ${quoted(visible(JSON.stringify(bodyOf(job))))} -H "Authorization: Bearer $SUBLET_TOKEN" ${quoted(new URL("jobs", new URL(link(""), location.href)).href)}`;

/**
 * JSON with escapes for characters that change the direction of text, so that a command is what it looks like.
 * @param {string} json
 */
const visible = (json) => json.replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** @param {Job} job */
function asPython(job) {
  const options = [`queue=${JSON.stringify(job.queue)}`];
  options.push(`max_attempts=${job.max_attempts}`);
  if (job.priority) options.push(`priority=${job.priority}`);
  if (job.tags?.length) options.push(`tags=${JSON.stringify(job.tags)}`);
  if (job.group) options.push(`group=${JSON.stringify(job.group)}`);
  if (job.cost > 1) options.push(`cost=${job.cost}`);
  const payload = JSON.stringify(visible(JSON.stringify(job.payload ?? {})));
  return `import json\n\nfrom sublet import Options, SyncClient\n\nwith SyncClient() as client:\n    client.submit(${JSON.stringify(job.task)}, json.loads(${payload}), Options(${options.join(", ")}))\n`;
}

/**
 * The JSON that a user wrote into a field.
 * @param {FormData} data
 * @param {string} name
 */
function jsonOf(data, name) {
  try {
    return parseExactly(String(data.get(name)));
  } catch (error) {
    throw refusal(`The ${name} is not valid JSON: ${error instanceof Error ? error.message : error}`, name);
  }
}

/** @param {Job} job */
async function resubmit(job) {
  const note = job.payload === null ? "The payload was deleted after completion: write it again." : "A new job is submitted; this one stays as it is.";
  const give = async (/** @type {FormData} */ data) => {
    const body = { ...bodyOf(job), payload: jsonOf(data, "payload"), queue: String(data.get("queue")), priority: Number(data.get("priority")), max_attempts: Number(data.get("max_attempts")), delay: Number(data.get("delay")) };
    return call("POST", "jobs", { body, headers: { Prefer: "handling=strict" } });
  };
  const answer = await form("Submit again", "Submit", give, h("p", null, note),
    field("Payload", "payload", { rows: 10, text: pretty(job.payload ?? {}), autofocus: true }, `Arguments of ${job.task}, as a JSON object`),
    h("div", { class: "row fields" }, field("Queue", "queue", { value: job.queue, required: true }), field("Priority", "priority", { type: "number", min: -100, max: 100, value: job.priority }), field("Tries", "max_attempts", { type: "number", min: 1, value: job.max_attempts }), field("Delay in seconds", "delay", { type: "number", min: 0, step: "any", value: 0 })));
  if (answer?.id) {
    toast(answer.warning ? `Submitted. ${answer.warning}` : "Submitted.");
    go(link("jobs", answer.id));
  }
}
