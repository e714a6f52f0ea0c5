// BullMQ with flows: one worker in one process. The graph is that of BENCH_GRAPH. The same as workflows_sublet.py.
import { statSync } from "node:fs";
import { createRequire } from "node:module";
import { SLOTS, connection, finished, main, sleep, tally } from "./work.mjs";

const { FlowProducer, Worker } = createRequire(process.cwd() + "/")("bullmq"); // installed where this is started
const BATCH = 10; // workflows in a bulk call
const settings =
  `one process, concurrency ${SLOTS}; ioredis; FlowProducer, addBulk of ${BATCH} flows, 4 at a time; ` +
  `the callback reads getChildrenValues; defaults otherwise`;
const load = { shape: "fan", size: 2, workflows: 1, paced: false, ...JSON.parse(process.env.BENCH_GRAPH ?? "{}") };
const each = load.shape === "fan" ? load.size + 1 : load.size;
let producer;

/** Connect, and wait until that is done. */
async function ready() {
  producer = new FlowProducer({ connection });
  await producer.waitUntilReady();
}

/** Disconnect. */
const close = () => producer.close();

const node = (name, n, children) => ({ name, queueName: "bench", data: { n }, children });

/** Return a workflow's tree: a parent waits for its children. */
function tree(workflow) {
  const first = workflow * each;
  const last = first + each - 1;
  if (load.shape === "fan")
    return node("callback", last, Array.from({ length: load.size }, (_, k) => node("step", first + k)));
  let made = node("step", first);
  for (let n = first + 1; n <= last; n++) made = node("step", n, [made]);
  return made;
}

/** Submit all workflows: in batches, several on their way at a time, or each when the one before has ended. */
async function submitBulk() {
  if (load.paced) {
    for (let workflow = 0; workflow < load.workflows; workflow++) {
      await producer.add(tree(workflow));
      const until = Date.now() + 60_000;
      while (!over(workflow) && Date.now() < until) await sleep(1);
      await sleep(5);
    }
    return;
  }
  let begun = 0;
  const next = async () => {
    while (begun < load.workflows) {
      const from = begun;
      begun = Math.min(begun + BATCH, load.workflows);
      await producer.addBulk(Array.from({ length: begun - from }, (_, i) => tree(from + i)));
    }
  };
  await Promise.all(Array.from({ length: 4 }, next));
}

const over = (workflow) =>
  (statSync(process.env.BENCH_FINISHED, { throwIfNoEntry: false })?.size ?? 0) >= (workflow + 1) * each * 16;

/** Note start and end; a callback reads all results and checks them. */
async function run(job) {
  const { n } = job.data;
  tally(n);
  let answer = n;
  if (job.name === "callback") {
    const results = Object.values(await job.getChildrenValues());
    answer = results.reduce((sum, one) => sum + one, 0);
    const expected = (load.size * (2 * n - load.size - 1)) / 2;
    if (results.length !== load.size || answer !== expected) throw new Error(`${results.length} results, sum ${answer}`);
  } else await Promise.resolve();
  finished(n);
  return answer;
}

/** Work until SIGTERM. */
async function worker() {
  const running = new Worker("bench", run, { connection, concurrency: SLOTS });
  running.on("error", (error) => console.error(error));
  running.on("failed", (job, error) => console.error(job?.data, error));
  await new Promise((done) => process.once("SIGTERM", done));
  await running.close();
}

await main({ submitBulk, worker, ready, close, packages: ["bullmq", "ioredis"], settings });
