// BullMQ: one worker in one process, many jobs at a time on its event loop.
import { createRequire } from "node:module";
import { SLOTS, connection, finished, main, sleep, tally, text } from "./work.mjs";

const { Queue, Worker } = createRequire(process.cwd() + "/")("bullmq"); // installed where this is started
const BATCH = Number(process.env.BENCH_BATCH ?? 500);
const AT_A_TIME = process.env.BENCH_BATCH ? 1 : 4; // bulk calls on their way: four are a third more; a sweep awaits each
const settings =
  `one process, concurrency ${SLOTS}; ioredis; every finished job is kept (default); ` +
  `bulk = addBulk of ${BATCH}, ${AT_A_TIME} at a time`;
let queue;

/** Connect, and wait until that is done. */
async function ready() {
  queue = new Queue("bench", { connection });
  await queue.waitUntilReady();
}

/** Disconnect. */
const close = () => queue.close();

/** Submit one job. */
const submitOne = (n) => queue.add("noop", { n, text: text(n) });

/** Submit one job that takes a second. */
const submitSlow = (n) => queue.add("slow", { n });

/** Submit in batches, several on their way at a time. */
async function submitBulk(ns) {
  const batches = [];
  for (let i = 0; i < ns.length; i += BATCH) batches.push(ns.slice(i, i + BATCH));
  const next = async () => {
    for (let batch = batches.shift(); batch; batch = batches.shift())
      await queue.addBulk(batch.map((n) => ({ name: "noop", data: { n, text: text(n) } })));
  };
  await Promise.all(Array.from({ length: AT_A_TIME }, next));
}

/** Run a job: `noop` starts, and that is all; `slow` takes a second. */
async function run(job) {
  const { n } = job.data;
  tally(n);
  if (job.name === "slow") {
    await sleep(1000);
    finished(n);
    return null;
  }
  await Promise.resolve();
  return n;
}

/** Work until SIGTERM. */
async function worker() {
  const running = new Worker("bench", run, { connection, concurrency: SLOTS });
  running.on("error", (error) => console.error(error));
  await new Promise((done) => process.once("SIGTERM", done));
  await running.close();
}

await main({ submitOne, submitBulk, submitSlow, worker, ready, close, packages: ["bullmq", "ioredis"], settings });
