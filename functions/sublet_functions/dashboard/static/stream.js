/** What a task emits: the last chunks of a job's stream. */
import { ApiError, call, enc, seesPayloads, whenDescribed } from "./api.js";
import { h } from "./dom.js";
import { panel } from "./widgets.js";

/** @typedef {any} Job */
/** @typedef {{id: string, attempt: number, value: unknown}} Chunk */

/** Most chunks that are shown, and most of their characters. */
const SHOWN = 50;
const TEXT = 16_384;
/** Chunks of a full page: the reader is behind, and goes on with the last ones. */
const FULL = 100;
/** Seconds for which the server waits for a chunk, and ms between two reads. */
const WAIT = 5;
const PAUSE = 500;

export class Stream {
  /** @param {import("./main.js").Page} page */
  constructor(page) {
    this.page = page;
    this.address = location.href;
    /** @type {Chunk[]} */
    this.chunks = [];
    this.cursor = "";
    this.readFor = "";
    this.isFollowing = false;
  }

  /** Read the last chunks once; of a running job that has some, also those that follow. @param {Job} job */
  load(job) {
    const isKnown = job.state !== "running" && this.readFor === `${job.state} ${job.revision}`;
    if (job.attempt && !this.isFollowing && !isKnown) void this.follow(job);
  }

  /**
   * @param {string} id
   * @param {number} wait seconds
   * @returns {Promise<string>} the job's state
   */
  async read(id, wait) {
    const { cursor } = this;
    const answer = await call("GET", `jobs/${enc(id)}/stream`, { query: cursor ? { after: cursor, wait } : { last: SHOWN } });
    const isNew = !cursor || Number(answer.chunks[0]?.id) <= Number(this.chunks.at(-1)?.id); // the stream began anew
    this.chunks = [...(isNew ? [] : this.chunks), ...answer.chunks].slice(-SHOWN);
    this.cursor = answer.chunks.length < FULL ? answer.cursor : "";
    return answer.state;
  }

  /** Read until the job no longer runs, or the page is left or hidden. @param {Job} job */
  async follow({ id, state, revision }) {
    this.isFollowing = true;
    try {
      await whenDescribed();
      if (!seesPayloads()) return;
      let now = await this.read(id, 0);
      this.readFor = `${state} ${revision}`;
      this.page.paint();
      while (now === "running" && this.chunks.length) {
        await new Promise((done) => setTimeout(done, PAUSE));
        if (location.href !== this.address || document.hidden) return;
        now = await this.read(id, WAIT);
        this.page.paint();
      }
    } catch (error) {
      if (!(error instanceof ApiError)) throw error; // the next read of the page begins again
    } finally {
      this.isFollowing = false;
    }
  }

  /** The chunks as one text: strings as they are, other values in a line each. */
  text() {
    let text = "";
    let attempt = this.chunks[0]?.attempt;
    const line = () => (text && !text.endsWith("\n") ? "\n" : "");
    for (const one of this.chunks) {
      if (one.attempt !== attempt) text += `${line()}— attempt ${one.attempt} —\n`;
      attempt = one.attempt;
      text += typeof one.value === "string" ? one.value : `${line()}${JSON.stringify(one.value)}\n`;
    }
    return text.length > TEXT ? `…${text.slice(-TEXT)}` : text;
  }

  render() {
    if (!this.chunks.length) return null;
    const isCut = Number(this.chunks[0]?.id) > 2; // the first is the beginning of an attempt
    return panel("Stream", isCut ? h("p", { class: "faint" }, `The last ${this.chunks.length} chunks.`) : null, h("div", { class: "tail", tabindex: "0", role: "region", "aria-label": "Stream" }, h("pre", null, this.text())));
  }
}
