/** The jobs that a job waits for, or waited for. */
import { ApiError, call, enc } from "./api.js";
import { h } from "./dom.js";
import { count } from "./format.js";
import { link } from "./router.js";
import { awaits, badge, button, ms, panel, queueLink, table } from "./widgets.js";

/** @typedef {any} Job */

/** Most rows at first. */
const SHOWN = 20;
/** Jobs of one request. */
const LIMIT = 200;
/** Most jobs that are read. */
const MOST = 1000;
/** Most requests for these: a page of large results is short. */
const PAGES = 10;
/** Milliseconds between two reads of more than one page. */
const REST = 60_000;
const FAILED = ["dead", "cancelled"];

/** What a page of a job knows of them: read again while the job waits, and after it has changed. Of a held job it reads all, to name those that failed. */
export class Upstream {
  /** @param {import("./main.js").Page} page */
  constructor(page) {
    this.page = page;
    /** @type {Job[]} */
    this.jobs = [];
    /** How many there are in all. */
    this.count = 0;
    /** Whether more than `SHOWN` rows are asked for. */
    this.isOpen = false;
    this.isWhole = false;
    this.readFor = "";
    this.readAt = -Infinity;
  }

  /** @param {Job} job */
  async load(job) {
    const [kind = ""] = awaits(job);
    const isWaiting = ["upstream", "retry"].includes(kind);
    const isHeld = kind === "retry";
    const now = [job.state, job.revision, kind, this.isOpen].join(" ");
    const isDue = this.count <= LIMIT || performance.now() - this.readAt > REST;
    if (this.readFor === now && !(isWaiting && isDue)) return;
    if (!isWaiting && !job.workflow && !this.count) return;
    this.readAt = performance.now();
    try {
      await this.read(job.id, isHeld || this.isOpen ? MOST : SHOWN);
      this.readFor = now;
    } catch (error) {
      if (!(error instanceof ApiError) || ![403, 404].includes(error.status)) throw error;
      this.jobs = []; // deleted meanwhile, or not for this token
      this.count = 0;
    }
  }

  /**
   * @param {string} id
   * @param {number} most
   */
  async read(id, most) {
    const found = [];
    let cursor = "";
    for (let n = 0; n < PAGES && found.length < most; n += 1) {
      const answer = await call("GET", `jobs/${enc(id)}/upstream`, { query: { limit: Math.min(LIMIT, most - found.length), cursor } });
      found.push(...answer.upstream);
      this.count = answer.count;
      cursor = answer.cursor ?? "";
      if (!cursor) break;
    }
    this.jobs = found;
    this.isWhole = found.length >= this.count; // a token may be limited to the queues of some
  }

  /** @param {{jobs: string[]}} event */
  has({ jobs }) {
    return this.jobs.some((one) => jobs.includes(one.id));
  }

  /** Those that failed: a held job waits for the retry of these. @returns {Job[]} */
  get failed() {
    return this.jobs.filter(({ state }) => FAILED.includes(state));
  }

  /** When the first of them failed: the job has been held since then. NaN where that is not known. */
  get heldSince() {
    return this.isWhole && this.failed.length ? Math.min(...this.failed.map(({ finished_at }) => ms(finished_at))) : NaN;
  }

  open() {
    this.isOpen = true;
    this.page.reload(true);
  }

  /** @param {Job} job */
  render(job) {
    if (!this.count) return null;
    const first = this.failed; // of many they are what a user looks for
    const all = [...first, ...this.jobs.filter((one) => !first.includes(one))];
    const rows = all.slice(0, this.isOpen ? MOST : SHOWN).map((one) => h("tr", { key: one.id },
      h("th", { scope: "row" }, one.state === "deleted" ? null : h("a", { class: "open clamp", href: link("jobs", one.id), title: one.task }, one.task), h("code", { class: "id" }, one.id)),
      h("td", null, one.queue && queueLink(one.queue)), h("td", null, badge(one.state === "deleted" ? "ended" : one.state, one.state)),
      h("td", { class: "cut wide" }, one.error ? [h("code", { class: "code" }, one.error.code), " ", one.error.message] : h("span", { class: "faint" }, "–"))));
    return panel("Upstream jobs", table("Jobs that it waits for, or waited for", ["Job", "Queue", "State", "Error"], rows), this.rest(rows.length, job));
  }

  /**
   * @param {number} shown
   * @param {Job} job
   */
  rest(shown, { workflow }) {
    if (shown >= this.count) return null;
    const more = this.isOpen ? null : button(this.count > MOST ? `Show ${count(MOST)}` : `Show all ${count(this.count)}`, () => this.open(), { class: "small" });
    const others = workflow && this.count > MOST ? h("a", { href: link("jobs", "", { workflow }) }, "All jobs of the workflow") : null;
    return h("div", { class: "row faint" }, h("p", null, `${count(shown)} of ${count(this.count)} are shown.`), more, others);
  }
}
