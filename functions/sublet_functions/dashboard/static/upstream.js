/** The jobs that a job waits for, or waited for. */
import { ApiError, call, enc } from "./api.js";
import { h } from "./dom.js";
import { count } from "./format.js";
import { link } from "./router.js";
import { badge, panel, queueLink, table } from "./widgets.js";

/** @typedef {any} Job */

/** Most that are shown. */
const SHOWN = 20;

/** What a page of a job knows of them: read again while the job waits, and after it has changed. */
export class Upstream {
  constructor() {
    /** @type {any} */
    this.page = null;
    this.readFor = "";
  }

  /** @param {Job} job */
  async load(job) {
    const now = `${job.state} ${job.revision}`;
    const isWaiting = /^(upstream|retry) /.test(job.awaits ?? "");
    if (!isWaiting && (!job.workflow || this.readFor === now)) return;
    try {
      this.page = await call("GET", `jobs/${enc(job.id)}/upstream`, { query: { limit: SHOWN } });
      this.readFor = now;
    } catch (error) {
      if (!(error instanceof ApiError) || ![403, 404].includes(error.status)) throw error;
      this.page = null; // deleted meanwhile, or not for this token
    }
  }

  /** How many there are in all. @returns {number} */
  get count() {
    return this.page?.count ?? 0;
  }

  /** @param {{jobs: string[]}} event */
  has({ jobs }) {
    return (this.page?.upstream ?? []).some((/** @type {Job} */ one) => jobs.includes(one.id));
  }

  render() {
    if (!this.count) return null;
    const rows = this.page.upstream.map((/** @type {Job} */ one) => h("tr", { key: one.id },
      h("th", { scope: "row" }, one.state === "deleted" ? null : h("a", { class: "open clamp", href: link("jobs", one.id), title: one.task }, one.task), h("code", { class: "id" }, one.id)),
      h("td", null, one.queue && queueLink(one.queue)), h("td", null, badge(one.state === "deleted" ? "ended" : one.state, one.state)),
      h("td", { class: "cut wide" }, one.error ? [h("code", { class: "code" }, one.error.code), " ", one.error.message] : h("span", { class: "faint" }, "–"))));
    const rest = this.count > rows.length ? h("p", { class: "faint" }, `${count(rows.length)} of ${count(this.count)} are shown.`) : null;
    return panel("Upstream jobs", table("Jobs that it waits for, or waited for", ["Job", "Queue", "State", "Error"], rows), rest);
  }
}
