/** Follows the event stream; where it is not available, asks at intervals. */
import { ApiError, hooks, lacks, problemOf, request, urlOf } from "./api.js";
import { COSTLY, SOON, calmed, changed, heard, isExact } from "./sharing.js";

/** @typedef {{id: string, jobs: string[], state: string, code: string}} JobEvent */
/** @typedef {"connecting" | "live" | "polling" | "stale" | "paused"} Mark */

const RETRY_FIRST = 1000;
const RETRY_MOST = 8000;
const POLL = 5000;
/** Milliseconds without a byte after which a request is given up, for the server may be frozen: two of its keep-alives. */
const SILENCE = 20_000;
/** The comment by which a stream says that Redis does not answer. */
const OUTAGE = ": Redis does not answer";
/** A stream that ends sooner was not a stream: the platform sends whole responses only. */
const SHORTEST = 3000;
/** Milliseconds after which a stream that was refused is tried again: the server may only have been busy. */
const AGAIN = 30_000;
/** Seconds after an event for which the server may gather later ones. */
const GATHER = "0.5";
/** Milliseconds for which events are told again with later ones: a read in a rush may not have shown them. */
const RECALL = 20_000;
/** Events are told soon so many times in RECALL; then, in a rush, every PACE milliseconds, and after CALM without one. */
const TIMES = 3;
const PACE = 6000;
const CALM = 3000;
/** Milliseconds after which the first ones are told soon though more arrive. */
const LATEST = 1000;

/** @param {number} ms */
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

export class Live {
  /**
   * @param {(events: JobEvent[] | null) => void} onEvents null: read everything again
   * @param {() => void} onMark
   */
  constructor(onEvents, onMark) {
    this.onEvents = onEvents;
    this.onMark = onMark;
    /** @type {Mark} */
    this.mark = "connecting";
    this.heardAt = Date.now();
    this.position = "";
    /** How many streams in a row ended at once, or never began. */
    this.shortStreams = 0;
    /** When a stream may be tried. */
    this.streamAt = 0;
    this.isOpen = false;
    /** Whether the server says that Redis does not answer. */
    this.isOut = false;
    /** @type {{at: number, event: JobEvent}[]} */
    this.recent = [];
    /** When events were told, in RECALL. @type {number[]} */
    this.told = [];
    this.untoldSince = 0;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.telling = undefined;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.silence = undefined;
    /** @type {AbortController | null} */
    this.aborter = null;
    this.wake = () => {};
    document.addEventListener("visibilitychange", () => this.onVisibility());
    hooks.onAnswer = (answered) => (answered ? this.answered() : this.failed());
  }

  /** Run until the page is left. */
  async run() {
    let wait = RETRY_FIRST;
    for (;;) {
      if (document.hidden || lacks("GET", "/events")) {
        await new Promise((done) => (this.wake = () => done(undefined)));
        continue;
      }
      this.aborter = new AbortController();
      try {
        if (this.shortStreams < 2 && Date.now() >= this.streamAt) await this.stream(this.aborter.signal);
        else await this.poll(this.aborter.signal);
        wait = RETRY_FIRST;
      } catch (error) {
        if (document.hidden) continue;
        if (error instanceof ApiError && error.status && error.kind !== "unavailable") this.streamAt = Date.now() + AGAIN; // refused: views read at intervals
        await Promise.race([pause(wait), new Promise((done) => (this.wake = () => done(undefined)))]);
        wait = Math.min(wait * 2, RETRY_MOST);
      }
    }
  }

  /** @param {AbortSignal} signal */
  async stream(signal) {
    const goesOn = this.position !== ""; // then it begins with the events since
    const response = await this.open(signal, "text/event-stream", {});
    if (!response.body || !response.headers.get("content-type")?.startsWith("text/event-stream")) {
      this.shortStreams = 2;
      return;
    }
    const begun = Date.now();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    let isFirst = true;
    this.isOpen = true;
    for (;;) {
      this.watch(!isFirst);
      const { done, value } = await reader.read().catch(() => ({ done: true, value: "" }));
      if (done) {
        clearTimeout(this.silence);
        this.isOpen = false;
        if (!signal.aborted) this.shortStreams = Date.now() - begun < SHORTEST ? this.shortStreams + 1 : 0;
        return;
      }
      this.heardAt = Date.now();
      if (isFirst) {
        this.setMark("live");
        if (!goesOn) this.everything(); // changes before the stream began
        isFirst = false;
      }
      text += value;
      const blocks = text.split("\n\n");
      text = blocks.pop() ?? "";
      this.take(blocks);
    }
  }

  /** @param {AbortSignal} signal */
  async poll(signal) {
    const response = await this.open(signal, "application/json", { after: this.position || undefined, limit: 100 });
    /** @type {{events: JobEvent[], cursor: string, missed: boolean}} */
    const page = await response.json();
    this.position = page.cursor;
    this.setMark("polling");
    if (page.missed) this.everything();
    else if (page.events.length) this.hear(page.events);
    await Promise.race([pause(POLL), new Promise((done) => signal.addEventListener("abort", done))]);
  }

  /**
   * @param {AbortSignal} signal
   * @param {string} accept
   * @param {Record<string, any>} query
   */
  async open(signal, accept, query) {
    const headers = new Headers({ Accept: accept, "Sublet-Shared": GATHER });
    if (this.position && accept !== "application/json") headers.set("Last-Event-ID", this.position);
    this.watch(false);
    const response = await request(urlOf("events", query), { signal, headers }).finally(() => clearTimeout(this.silence));
    if (response.ok) {
      this.setOut(false);
      return response;
    }
    const problem = await problemOf(response);
    this.setOut(problem.kind === "unavailable");
    if (response.status === 422 || response.status === 400) this.position = "";
    this.setMark("polling");
    throw problem;
  }

  /**
   * Give the present request up if nothing arrives: the page is stale, unless the server has answered others.
   * @param {boolean} hasBegun whether it is a stream with data
   */
  watch(hasBegun) {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => {
      const isStale = Date.now() - this.heardAt > SILENCE - 1000;
      if (!hasBegun && (this.isOpen || !isStale)) this.shortStreams += 1; // a gateway may hold it back
      if (isStale) this.failed();
      else if (hasBegun) this.setMark("connecting");
      this.aborter?.abort();
    }, SILENCE);
  }

  /** @param {string[]} blocks */
  take(blocks) {
    /** @type {JobEvent[]} */
    const events = [];
    let missed = false;
    for (const block of blocks) {
      this.setOut(block === OUTAGE);
      const lines = block.split("\n");
      const id = lines.find((line) => line.startsWith("id: "));
      if (id) this.position = id.slice(4);
      const data = lines.find((line) => line.startsWith("data: "));
      if (lines.includes("event: missed")) missed = true;
      else if (data) events.push(JSON.parse(data.slice(6)));
    }
    if (missed) this.everything();
    else if (events.length) this.hear(events);
  }

  /** @param {JobEvent[]} events */
  hear(events) {
    const at = performance.now();
    for (const event of events) this.recent.push({ at, event });
    this.untoldSince ||= at;
    this.told = this.told.filter((one) => one > at - RECALL);
    const isRush = this.told.length >= TIMES;
    heard(isRush);
    this.tellIn(isRush ? Math.min(CALM, (this.told.at(-1) ?? 0) + PACE - at) : Math.min(SOON, this.untoldSince + LATEST - at));
  }

  /** @param {number} wait ms */
  tellIn(wait) {
    clearTimeout(this.telling);
    this.telling = setTimeout(() => this.tell(), Math.max(0, wait));
  }

  /** Tell the events; once more when it is calm, if the read need not show them all, and when costly lists must. */
  tell() {
    const now = performance.now();
    const calm = now - (this.recent.at(-1)?.at ?? 0);
    if (calm >= CALM) calmed();
    this.told.push(now);
    this.untoldSince = 0;
    this.onEvents(this.recent.map(({ event }) => event));
    this.recent = this.recent.filter(({ at }) => at > now - RECALL);
    if (!isExact()) this.tellIn(CALM - calm);
    else if (calm < 1000 * COSTLY) this.tellIn(1000 * COSTLY);
  }

  everything() {
    changed();
    this.onEvents(null);
  }

  onVisibility() {
    if (document.hidden) {
      this.setMark("paused");
      this.aborter?.abort();
    } else {
      this.setMark("connecting");
      this.wake();
      this.everything();
    }
  }

  /** Connect again, for example with another token. */
  restart() {
    this.shortStreams = this.streamAt = 0;
    this.aborter?.abort();
    this.wake();
  }

  answered() {
    const recovers = this.mark === "stale";
    this.heardAt = Date.now();
    if (!recovers) return;
    this.setMark("connecting");
    if (this.isOpen) this.aborter?.abort(); // it may have died unseen
    this.wake();
    this.everything();
  }

  failed() {
    if (!document.hidden) this.setMark("stale");
  }

  /** @param {boolean} isOut */
  setOut(isOut) {
    if (isOut === this.isOut) return;
    this.isOut = isOut;
    this.onMark();
    if (!isOut) this.everything();
  }

  /** @param {Mark} mark */
  setMark(mark) {
    if (mark === this.mark) return;
    this.mark = mark;
    this.onMark();
  }
}
