/** Orders for one job. Each sends the revision that the user saw, so that it cannot hit a changed job. */
import { call, can, enc, parse, seesPayloads } from "./api.js";
import { h } from "./dom.js";
import { pretty } from "./format.js";
import { go, link } from "./router.js";
import { button, confirm, copy, dialog, field, perform, toast } from "./widgets.js";

/** @typedef {any} Job */

/**
 * @param {"retry" | "cancel" | "promote" | "reschedule" | "erase"} verb
 * @param {Job} job
 * @param {Record<string, any>} [changes]
 */
export const order = (verb, job, changes = {}) => call("POST", `jobs/${enc(job.id)}/${verb}`, { body: { revision: job.revision, ...changes } });

/** Which orders a state allows. @type {Record<string, string[]>} */
const ALLOWED = { scheduled: ["promote", "reschedule", "cancel"], queued: ["reschedule", "cancel"], running: ["cancel"], dead: ["retry", "erase"], cancelled: ["retry", "erase"], completed: ["erase"] };

/**
 * @param {Job} job
 * @param {import("./main.js").Page} page
 */
export function jobOrders(job, page) {
  const allowed = ALLOWED[job.state] ?? [];
  const give = async (/** @type {"retry" | "cancel" | "promote"} */ verb, /** @type {string} */ done) => {
    await perform(() => order(verb, job), done);
    page.reload();
  };
  const cancel = async () => {
    const text = job.state === "running" ? "Its worker gets the request with its next heartbeat, and stops the attempt." : "It will not run. You can retry it later.";
    if (await confirm(`Cancel this job of ${job.task}?`, text, "Cancel the job", { danger: true })) await give("cancel", job.state === "running" ? "The worker is asked to stop." : "The job is cancelled.");
  };
  const erase = async () => {
    if (!(await confirm(`Erase this job of ${job.task}?`, "Its payload, result, log and attempts are deleted for good.", "Erase the job", { danger: true }))) return;
    if (await perform(() => order("erase", job), "The job is erased.")) go(link("jobs", "", { state: job.state }));
  };
  const reschedule = async () => {
    const changes = await askChanges(job);
    if (!changes) return;
    await perform(() => order("reschedule", job, changes), "The job is rescheduled.");
    page.reload();
  };
  const may = (/** @type {string} */ verb) => allowed.includes(verb) && can("POST", `/jobs/{id}/${verb}`);
  return [
    may("retry") ? button("Retry", () => void give("retry", "The job is queued again."), { class: "primary" }) : null,
    may("promote") ? button("Run now", () => void give("promote", "The job is queued."), { class: "primary" }) : null,
    may("reschedule") ? button("Reschedule", () => void reschedule()) : null,
    may("cancel") ? button("Cancel", () => void cancel(), { class: "danger" }) : null,
    may("erase") ? button("Erase", () => void erase(), { class: "danger" }) : null,
    can("POST", "/jobs") ? button("Edit and submit again", () => void resubmit(job)) : null,
    button("Copy id", () => void copy(job.id), { class: "quiet" }),
    seesPayloads() ? [button("Copy as curl", () => void copy(asCurl(job)), { class: "quiet" }), button("Copy as Python", () => void copy(asPython(job)), { class: "quiet" })] : null,
  ];
}

/**
 * A moment as a field of type datetime-local has it: without zone, to the second.
 * @param {number} at
 */
const local = (at) => new Date(at - new Date(at).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);

/**
 * Ask for a new time and priority; resolves to those that differ.
 * @param {Job} job
 * @returns {Promise<Record<string, any> | null>}
 */
function askChanges(job) {
  const due = job.due_at ? Math.floor(Date.parse(job.due_at) / 1000) * 1000 : 0;
  return dialog(`Reschedule this job of ${job.task}`, (close) => {
    const error = h("p", { class: "note error", role: "alert", hidden: true }, "Change the time or the priority.");
    const submit = (/** @type {Event} */ event) => {
      event.preventDefault();
      const data = new FormData(/** @type {HTMLFormElement} */ (event.currentTarget));
      const at = Date.parse(String(data.get("run_at")));
      const priority = Number(data.get("priority"));
      const changes = { ...(at && at !== due ? { run_at: new Date(at).toISOString() } : {}), ...(priority !== job.priority ? { priority } : {}) };
      if (Object.keys(changes).length) close(changes);
      else error.hidden = false;
    };
    return h("form", { onSubmit: submit },
      field("Time", "run_at", { type: "datetime-local", step: 1, value: due ? local(due) : "", autofocus: true }, `By the clock of this browser; one that has passed means now. ${due ? "" : "Empty: it stays queued."}`),
      field("Priority", "priority", { type: "number", min: -100, max: 100, required: true, value: job.priority }, "-100 to 100; higher runs first"),
      error, h("div", { class: "row end" }, button("Keep as it is", () => close(null), { class: "quiet" }), h("button", { class: "primary" }, "Reschedule")));
  });
}

/** @param {Job} job */
const bodyOf = (job) => ({
  task: job.task,
  queue: job.queue,
  payload: job.payload ?? {},
  max_attempts: job.max_attempts,
  ...(job.priority ? { priority: job.priority } : {}),
  ...(job.tags?.length ? { tags: job.tags } : {}),
});

/** @param {string} text */
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** @param {Job} job */
const asCurl = (job) => `curl --json ${quoted(JSON.stringify(bodyOf(job)))} -H "Authorization: Bearer $SUBLET_TOKEN" ${quoted(new URL("jobs", new URL(link(""), location.href)).href)}`;

/** @param {Job} job */
function asPython(job) {
  const options = [`queue=${JSON.stringify(job.queue)}`];
  options.push(`max_attempts=${job.max_attempts}`);
  if (job.priority) options.push(`priority=${job.priority}`);
  if (job.tags?.length) options.push(`tags=${JSON.stringify(job.tags)}`);
  const payload = JSON.stringify(JSON.stringify(job.payload ?? {}));
  return `import json\n\nfrom sublet import Options, SyncClient\n\nwith SyncClient() as client:\n    client.submit(${JSON.stringify(job.task)}, json.loads(${payload}), Options(${options.join(", ")}))\n`;
}

/** @param {Job} job */
async function resubmit(job) {
  const note = job.payload === null ? "The payload was deleted after completion: write it again." : "A new job is submitted; this one stays as it is.";
  /** @type {any} */
  const answer = await dialog("Submit again", (close) => {
    const error = h("p", { class: "note error", role: "alert", hidden: true });
    const submit = async (/** @type {Event} */ event) => {
      event.preventDefault();
      const data = new FormData(/** @type {HTMLFormElement} */ (event.currentTarget));
      try {
        const payload = parse(String(data.get("payload")));
        const body = { ...bodyOf(job), payload, queue: String(data.get("queue")), priority: Number(data.get("priority")), max_attempts: Number(data.get("max_attempts")), delay: Number(data.get("delay")) };
        close(await call("POST", "jobs", { body }));
      } catch (reason) {
        error.textContent = reason instanceof SyntaxError ? `The payload is not valid JSON: ${reason.message}` : String(reason instanceof Error ? reason.message : reason);
        error.hidden = false;
      }
    };
    return h("form", { onSubmit: submit }, h("p", null, note),
      field("Payload", "payload", { rows: 10, text: pretty(job.payload ?? {}), autofocus: true }, `Arguments of ${job.task}, as a JSON object`),
      h("div", { class: "row fields" }, field("Queue", "queue", { value: job.queue, required: true }), field("Priority", "priority", { type: "number", min: -100, max: 100, value: job.priority }), field("Tries", "max_attempts", { type: "number", min: 1, value: job.max_attempts }), field("Delay in seconds", "delay", { type: "number", min: 0, step: "any", value: 0 })),
      error, h("div", { class: "row end" }, button("Back", () => close(null), { class: "quiet" }), h("button", { class: "primary" }, "Submit")));
  });
  if (answer?.id) {
    toast(answer.warning ? `Submitted. ${answer.warning}` : "Submitted.");
    go(link("jobs", answer.id));
  }
}
