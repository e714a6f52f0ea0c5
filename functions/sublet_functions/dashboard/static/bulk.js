/** Orders for all jobs of a filter: the server carries them out, page by page. */
import { ApiError, call } from "./api.js";
import { h } from "./dom.js";
import { count, plural } from "./format.js";
import { button, dialog } from "./widgets.js";

/** @typedef {{state?: string, queue?: string, task?: string, code?: string, message?: string}} JobFilter */

const VERBS = {
  retry: { label: "Retry", done: "queued again", text: "Each gets all of its attempts again.", class: "primary" },
  cancel: { label: "Cancel", done: "cancelled", text: "These jobs failed with this error and wait for another attempt. They will not run; you can retry them later.", class: "danger" },
  erase: { label: "Erase", done: "erased", text: "Payload, result, log and attempts are deleted for good.", class: "danger" },
};

/**
 * Count the jobs, ask once, and give the order, unless the number has changed by more than a tenth. Closing the dialog stops it after the page that is under way.
 * @param {keyof typeof VERBS} verb
 * @param {JobFilter} filter
 * @param {import("./dom.js").Child} about what the jobs have in common
 * @param {import("./main.js").Page} page
 */
export async function orderAll(verb, filter, about, page) {
  const words = VERBS[verb];
  await dialog(`${words.label} these jobs?`, (close) => {
    const bar = h("progress", { value: 0, max: 1, "aria-label": `Jobs ${words.done}`, class: "full", hidden: true });
    const status = h("p", { role: "status" }, "Counting…");
    const problem = h("p", { class: "note error", role: "alert", hidden: true });
    const leave = button("Keep as it is", () => close(null), { class: "quiet" });
    const begin = /** @type {HTMLButtonElement} */ (button(words.label, () => void order().catch(failed), { class: words.class, disabled: true }));
    const total = { found: 0, first: 0 };
    const send = (/** @type {Record<string, any>} */ more) => call("POST", `jobs/${verb}`, { body: { filter, ...more } });
    const outcome = { done: 0, refused: 0 };
    const show = () => {
      bar.setAttribute("value", String(outcome.done + outcome.refused));
      status.textContent = `${plural(outcome.done, "job")} ${words.done}${outcome.refused ? `, ${count(outcome.refused)} refused` : ""}.`;
    };
    const failed = (/** @type {unknown} */ error) => {
      if (!(error instanceof ApiError)) throw error;
      problem.textContent = error.message;
      problem.hidden = false;
    };
    const measure = async () => {
      let cursor = null;
      total.found = 0;
      do {
        const answer = await send({ dry_run: true, cursor });
        if (cursor === null) total.first = answer.found;
        total.found += answer.found;
        cursor = answer.cursor;
      } while (cursor && begin.isConnected);
      status.textContent = total.found ? `${plural(total.found, "job")} found.` : "No job is left to order.";
      begin.textContent = `${words.label} ${count(total.found)}`;
      begin.hidden = !total.found;
      begin.disabled = false;
      begin.focus();
    };
    const hasChanged = async () => {
      const before = total.found;
      begin.disabled = true;
      await measure();
      const isOff = Math.abs(total.found - before) * 10 > before;
      if (isOff) status.textContent = `${plural(before, "job")} were found before, ${count(total.found)} now: nothing was done.`;
      return isOff;
    };
    const run = async () => {
      leave.textContent = "Stop";
      begin.hidden = true;
      bar.hidden = false;
      bar.setAttribute("max", String(total.found));
      let cursor = null;
      try {
        do {
          const answer = await send({ cursor, ...(cursor ? {} : { expected: total.first }) });
          for (const { status: code } of answer.jobs) outcome[code < 300 ? "done" : "refused"] += 1;
          cursor = answer.cursor;
          show();
        } while (cursor && begin.isConnected && outcome.done + outcome.refused <= 1.1 * total.found);
      } catch (error) {
        failed(error);
      }
      leave.textContent = "Close";
      leave.focus();
      page.reload(true);
    };
    const order = async () => {
      if (!(await hasChanged()) && begin.isConnected) await run();
    };
    void measure().catch(failed);
    return [h("p", null, about), h("p", { class: "faint" }, words.text), bar, status, problem, h("div", { class: "row end" }, leave, begin)];
  });
}
