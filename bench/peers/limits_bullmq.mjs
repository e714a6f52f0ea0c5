// BullMQ under limits: one queue with the limits of BENCH_LOAD. The same as limits_sublet.py, without groups.
import { createRequire } from "node:module";
import { SLOTS, connection, finished, main, sleep, tally, text } from "./work.mjs";

const { Queue, Worker } = createRequire(process.cwd() + "/")("bullmq"); // installed where this is started
const BATCH = 500;
const settings =
  `one process, concurrency ${SLOTS}; ioredis; setGlobalConcurrency and setGlobalRateLimit of the queue, ` +
  `defaults otherwise; bulk = addBulk of ${BATCH}, 4 at a time`;
const load = JSON.parse(process.env.BENCH_LOAD ?? '{"jobs": 1}');
let queue;

/** Connect, and set the limits. */
async function ready() {
  queue = new Queue("bench", { connection });
  await queue.waitUntilReady();
  if (load.concurrency) await queue.setGlobalConcurrency(load.concurrency);
  if (load.rate) await queue.setGlobalRateLimit(load.rate, load.per_ms);
}

/** Disconnect. */
const close = () => queue.close();

/** Submit one job. */
const submitOne = (n) => submitBulk([n]);

/** Submit in batches, several on their way at a time. */
async function submitBulk(ns) {
  const batches = [];
  for (let i = 0; i < ns.length; i += BATCH) batches.push(ns.slice(i, i + BATCH));
  const next = async () => {
    for (let batch = batches.shift(); batch; batch = batches.shift())
      await queue.addBulk(batch.map((n) => ({ name: "note", data: { n, text: text(n) } })));
  };
  await Promise.all(Array.from({ length: 4 }, next));
}

/** Note start and end of a job, and take the time of the load. */
async function run(job) {
  const { n } = job.data;
  tally(n);
  if (load.ms) {
    await sleep(load.ms);
    finished(n);
  } else await Promise.resolve();
  return n;
}

/** Work until SIGTERM. */
async function worker() {
  const running = new Worker("bench", run, { connection, concurrency: SLOTS });
  running.on("error", (error) => console.error(error));
  await new Promise((done) => process.once("SIGTERM", done));
  await running.close();
}

if (process.argv[2] === "claims") {
  await ready();
  console.log(JSON.stringify({ claimed: (await queue.getCompleted()).map((job) => job.processedOn) }));
  await close();
} else await main({ submitOne, submitBulk, submitSlow: submitOne, worker, ready, close, packages: ["bullmq", "ioredis"], settings });
