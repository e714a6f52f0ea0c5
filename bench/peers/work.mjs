// What contestants in JavaScript share: the work itself, the tally, and the command line. The same as work.py.
import { openSync, readFileSync, statSync, writeSync } from "node:fs";

export const URL_ = process.env.BENCH_URL ?? "redis://127.0.0.1:6379/0";
const { hostname: host, port, pathname } = new URL(URL_);
export const connection = { host, port: Number(port), db: Number(pathname.slice(1) || "0") };
export const SLOTS = Number(process.env.BENCH_SLOTS ?? "100");
const PAYLOAD = 200; // bytes of a job's arguments as JSON: {"n": 7, "text": "xxx…"}
const ROOM = PAYLOAD - '{"n": , "text": ""}'.length;
const TEXT = "x".repeat(PAYLOAD);
const PAUSE = 5; // ms from a job's start to the next submit
const PATIENCE = 1000 * Number(process.env.BENCH_PATIENCE ?? "60"); // ms that all of `latency` may take
const files = {};

/** The second argument of job n. */
export const text = (n) => TEXT.slice(0, ROOM - String(n).length);

/** Note that job n has started: the first line of every handler. */
export const tally = (n) => note("BENCH_TALLY", n);

/** Note that job n has come to its end: the last line of the slow handler. */
export const finished = (n) => note("BENCH_FINISHED", n);

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

function note(variable, n) {
  files[variable] ??= openSync(process.env[variable], "a", 0o600);
  const entry = Buffer.allocUnsafe(16);
  entry.writeBigInt64LE(BigInt(n), 0);
  entry.writeBigInt64LE(process.hrtime.bigint(), 8);
  writeSync(files[variable], entry);
}

/** Do what the command line says. All are async functions; `ready` opens the connection and is not on the clock, nor is `close`. */
export async function main({ submitOne, submitBulk, submitSlow, worker, ready, close, packages, settings }) {
  const [command, ...rest] = process.argv.slice(2);
  if (command === "versions") {
    const found = packages.map((name) => [name, version(name)]);
    console.log(JSON.stringify({ node: process.versions.node, ...Object.fromEntries(found) }));
  } else if (command === "settings") {
    console.log(settings);
  } else if (command === "work") {
    await worker();
  } else if (command === "latency") {
    await ready();
    console.log(JSON.stringify({ sent: await latency(submitOne, numbers(rest)) }));
    await close();
  } else {
    await ready();
    console.log(JSON.stringify({ seconds: await submit({ one: submitOne, slow: submitSlow }[rest[0]], submitBulk, numbers(rest.slice(1))) }));
    await close();
  }
}

function numbers([count, from]) {
  return Array.from({ length: Number(count) }, (_, i) => i + Number(from ?? 0));
}

/** Seconds that the submits took: one by one, or all in bulk where there is no way to submit one. */
async function submit(one, bulk, ns) {
  const began = process.hrtime.bigint();
  if (one) for (const n of ns) await one(n);
  else await bulk(ns);
  return Number(process.hrtime.bigint() - began) / 1e9;
}

/** Submit one job at a time, each when the last one has started and a pause is over; when each was sent, in ns. */
async function latency(one, ns) {
  const sent = [];
  const until = Date.now() + PATIENCE;
  for (const n of ns) {
    const before = started();
    sent.push(Number(process.hrtime.bigint()));
    await one(n);
    while (started() === before && Date.now() < until) await sleep(1); // as in work.py
    if (Date.now() >= until) break;
    await sleep(PAUSE);
  }
  return sent;
}

function started() {
  return statSync(process.env.BENCH_TALLY, { throwIfNoEntry: false })?.size ?? 0;
}

function version(name) {
  return JSON.parse(readFileSync(`node_modules/${name}/package.json`, "utf8")).version; // beside which it is started
}
