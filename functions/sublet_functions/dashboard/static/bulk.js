/** Orders for all jobs of a filter: the server carries them out, page by page. */
import { ApiError, call } from "./api.js";
import { h } from "./dom.js";
import { count, plural } from "./format.js";
import { button, dialog, toast } from "./widgets.js";

/** @typedef {{state?: string, queue?: string, task?: string, code?: string, message?: string}} JobFilter */

const VERBS = {
  retry: { verb: "retry", label: "Retry", done: "queued again", text: "Each gets all of its attempts again.", class: "primary" },
  cancel: { verb: "cancel", label: "Cancel", done: "cancelled", text: "These jobs failed with this error and wait for another attempt. They will not run; you can retry them later.", class: "danger" },
  erase: { verb: "erase", label: "Erase", done: "erased", text: "Payload, result, log and attempts are deleted for good.", class: "danger" },
  purge: { verb: "cancel", label: "Purge", done: "cancelled", text: "Running and scheduled jobs stay, and those that are submitted from now on. You can retry the cancelled ones later.", class: "danger" },
};

/**
 * Count the jobs, ask once, and give the order for those of the count: later ones are left out. Closing the dialog stops it after the page that is under way.
 * @param {keyof typeof VERBS} name
 * @param {JobFilter} filter
 * @param {import("./dom.js").Child} about what the jobs have in common
 * @param {import("./main.js").Page} page
 * @param {() => Promise<number>} [counted] the number of these jobs, where one read gives it
 */
export async function orderAll(name, filter, about, page, counted) {
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
    const again = /** @type {HTMLButtonElement} */ (button("Count again", () => void measure().catch(failed), { hidden: true }));
    const total = { found: 0, at: "", isExact: true };
    const send = (/** @type {Record<string, any>} */ more) => call("POST", `jobs/${words.verb}`, { body: { filter, ...more } });
    const outcome = { done: 0, cascaded: 0, changed: 0, refused: 0 };
    const title = (/** @type {string} */ text) => begin.closest("dialog")?.querySelector("h2")?.replaceChildren(text);
    const sum = () => outcome.done + outcome.cascaded + outcome.changed + outcome.refused;
    /** @param {boolean} isOver whether all jobs that are left were found */
    const show = (isOver) => {
      if (isOver && !total.isExact) total.found = sum(); // later jobs were counted, too
      bar.setAttribute("max", String(total.found));
      bar.setAttribute("value", String(sum()));
      const { done, cascaded, changed, refused } = outcome;
      const gone = changed + (isOver ? Math.max(0, total.found - sum()) : 0);
      const jobs = done < total.found ? `${count(done)} of ${plural(total.found, "job")}` : plural(done, "job");
      status.textContent = [`${jobs} ${words.done}`, cascaded ? `${count(cascaded)} cancelled with the job that they wait for` : "", gone ? `${count(gone)} had changed meanwhile` : "", refused ? `${count(refused)} refused` : ""].filter(Boolean).join(", ") + ".";
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
      status.textContent = total.found ? `${plural(total.found, "job")} found.` : "No job is left to order.";
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
          for (const { status: code, state, type = "" } of answer.jobs) outcome[state === "cascaded" ? "cascaded" : code < 300 ? "done" : type.endsWith(":changed") ? "changed" : "refused"] += 1;
          cursor = answer.cursor;
          show(!cursor);
        } while (cursor && begin.isConnected && !isStopped);
        title(`${words.label}: ${cursor ? "stopped" : "done"}`);
      } catch (error) {
        failed(error);
        title(`${words.label}: ${sum() ? "stopped" : "nothing was done"}`);
        again.hidden = sum() > 0; // an order is given once
        bar.hidden = sum() === 0;
      }
      isRunning = false;
      if (!begin.isConnected) toast(`${words.label}: ${[sum() ? status.textContent : "", problem.textContent].filter(Boolean).join(" ")}`, problem.hidden ? "good" : "bad"); // closed by Escape
      leave.textContent = "Close";
      (again.hidden ? leave : again).focus();
      page.reload(true);
    };
    void measure().catch(failed);
    return [h("p", null, about), h("p", { class: "faint" }, words.text), bar, status, problem, h("div", { class: "row end" }, leave, again, begin)];
  });
}
