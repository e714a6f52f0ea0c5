/** Orders for all jobs of a filter: the server carries them out, page by page. */
import { ApiError, call } from "./api.js";
import { h } from "./dom.js";
import { count, plural } from "./format.js";
import { button, dialog, toast } from "./widgets.js";

/** @typedef {{state?: string, queue?: string, task?: string, code?: string, message?: string}} JobFilter */

/** Problems of jobs that another order, or a worker, has changed since they were listed. */
const CHANGED = /:(changed|not-found|wrong-state)$/;
const VERBS = {
  retry: { verb: "retry", label: "Retry", done: "queued again", none: "No such job is dead any more.", text: "Each gets all of its attempts again.", class: "primary" },
  cancel: { verb: "cancel", label: "Cancel", done: "cancelled", none: "No job with this error waits for another attempt.", text: "These jobs failed with this error and wait for another attempt. They will not run; you can retry them later.", class: "danger" },
  erase: { verb: "erase", label: "Erase", done: "erased", none: "No such job is left.", text: "Payload, result, log and attempts are deleted for good.", class: "danger" },
  purge: { verb: "cancel", label: "Purge", done: "cancelled", none: "No job waits in this queue any more.", text: "Running and scheduled jobs stay, and those that are submitted from now on. You can retry the cancelled ones later.", class: "danger" },
};

/**
 * Count the jobs, ask once, and give the order for those of the count: later ones are left out. Closing the dialog stops it after the page that is under way.
 * @param {keyof typeof VERBS} name
 * @param {JobFilter} filter
 * @param {import("./dom.js").Child} about what the jobs have in common
 * @param {import("./main.js").Page} page
 * @param {{counted?: () => Promise<number>, read?: number}} [known] `counted`: the number of these jobs, where one read gives it; `read`: how many of them
 *     the page has read, if there may be more
 */
export async function orderAll(name, filter, about, page, { counted, read } = {}) {
  const words = VERBS[name];
  await dialog(name === "purge" ? `Purge queue ${filter.queue}?` : `${words.label} these jobs?`, (close) => {
    const bar = h("progress", { value: 0, max: 1, "aria-label": `Jobs ${words.done}`, class: "full", hidden: true });
    const status = h("p", { role: "status" }, "Counting…");
    const problem = h("p", { class: "note error", role: "alert", hidden: true });
    let isRunning = false;
    let isStopped = false;
    const stop = () => {
      isStopped = true;
      leave.textContent = "Stopping…";
    };
    const leave = button("Keep as it is", () => (isRunning ? stop() : close(null)), { class: "quiet" });
    const begin = /** @type {HTMLButtonElement} */ (button(words.label, () => void run(), { class: words.class, disabled: true }));
    const again = /** @type {HTMLButtonElement} */ (button("Count again", () => void begun(), { hidden: true }));
    const total = { found: 0, at: "", isExact: true };
    const send = (/** @type {Record<string, any>} */ more) => call("POST", `jobs/${words.verb}`, { body: { filter, ...more } });
    const outcome = { done: 0, cascaded: 0, changed: 0, refused: 0 };
    const title = (/** @type {string} */ text) => begin.closest("dialog")?.querySelector("h2")?.replaceChildren(text);
    const sum = () => outcome.done + outcome.cascaded + outcome.changed + outcome.refused;
    /** @param {"runs" | "stopped" | "lost" | "done"} course lost: the last request may have done more */
    const show = (course) => {
      const isOver = course === "done";
      if (isOver && !total.isExact) total.found = sum(); // later jobs were counted, too
      const { done, cascaded, changed, refused } = outcome;
      const most = Math.max(total.found, sum());
      const rest = most - sum();
      const gone = changed + (isOver ? rest : 0);
      bar.setAttribute("max", String(most || 1));
      bar.setAttribute("value", String(isOver ? most || 1 : sum()));
      bar.className = `full ${course}`;
      const jobs = done < most ? `${count(done)} of ${plural(most, "job")}` : plural(done, "job");
      const others = [cascaded ? `${count(cascaded)} cancelled with the job that they wait for` : "", gone ? `${count(gone)} ${gone === 1 ? "was" : "were"} changed by others` : "", refused ? `${count(refused)} refused` : "", course === "stopped" && rest ? `${count(rest)} left as ${rest === 1 ? "it is" : "they are"}` : course === "lost" ? "perhaps more by the last request" : ""];
      const state = { runs: "", stopped: "Stopped: ", lost: "Stopped: ", done: "Done: " }[course];
      status.textContent = `${state}${[`${jobs} ${words.done}`, ...others].filter(Boolean).join(", ")}.`;
    };
    /** Show why nothing goes on, and offer to count again. @param {unknown} error */
    const failed = (error) => {
      if (!(error instanceof ApiError)) throw error;
      problem.textContent = error.message;
      problem.hidden = false;
      begin.hidden = true;
      again.hidden = false;
      again.focus();
    };
    const measure = async () => {
      problem.hidden = again.hidden = begin.disabled = true;
      status.textContent = "Counting…";
      let answer = await send({ dry_run: true });
      total.at = answer.counted_at;
      total.found = answer.found;
      total.isExact = true;
      if (counted && answer.cursor) {
        total.found = await counted();
        total.isExact = false;
        answer.cursor = null;
      }
      while (answer.cursor && begin.isConnected) {
        answer = await send({ dry_run: true, cursor: answer.cursor });
        total.found += answer.found;
      }
      status.textContent = total.found ? `${plural(total.found, "job")} found${read && total.found > read ? `: more than the ${count(read)} that the page has read` : ""}.` : words.none;
      begin.textContent = `${words.label} ${count(total.found)}`;
      begin.hidden = !total.found;
      begin.disabled = false;
      (total.found ? begin : leave).focus();
    };
    const run = async () => {
      isRunning = true;
      isStopped = false;
      problem.textContent = "";
      leave.textContent = "Stop";
      title(`${words.label}…`);
      begin.hidden = true;
      bar.hidden = false;
      let cursor = null;
      try {
        do {
          const answer = await send({ cursor, expected: total.found, counted_at: total.at });
          for (const { status: code, state, type = "" } of answer.jobs) outcome[state === "cascaded" ? "cascaded" : code < 300 ? "done" : CHANGED.test(type) ? "changed" : "refused"] += 1;
          cursor = answer.cursor;
          show(cursor ? "runs" : "done");
        } while (cursor && begin.isConnected && !isStopped);
        if (cursor) show("stopped");
        title(`${words.label}: ${cursor ? "stopped" : "done"}`);
      } catch (error) {
        failed(error);
        show(error instanceof ApiError && [0, 503].includes(error.status) ? "lost" : "stopped");
        title(`${words.label}: ${sum() ? "stopped" : "nothing was done"}`);
        again.hidden = sum() > 0; // an order is given once
        bar.hidden = sum() === 0;
      }
      isRunning = false;
      if (!begin.isConnected) toast(`${words.label}. ${[sum() ? status.textContent : "", problem.textContent].filter(Boolean).join(" ")}`, problem.hidden ? "good" : "bad"); // closed by Escape
      leave.textContent = "Close";
      (again.hidden ? leave : again).focus();
      page.reload(true);
    };
    const begun = async () => {
      try {
        await measure();
      } catch (error) {
        status.textContent = "The jobs were not counted.";
        failed(error);
      }
    };
    void begun();
    return [h("p", null, about), h("p", { class: "faint" }, words.text), bar, status, problem, h("div", { class: "row end" }, leave, again, begin)];
  });
}
