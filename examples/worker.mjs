// A complete producer and worker with the stock Node client: npm install redis, and copy this beside it.
//   node worker.mjs submit TASK JSON     store a job and print its id
//   node worker.mjs work                 run jobs until SIGTERM
// Settings: SUBLET_REDIS_URL, _NAMESPACE (of one partition), _QUEUES (commas between), _LEASE (seconds), _SLOTS, _LUA (scripts).
import { createHash, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient } from 'redis';

const env = process.env;
const base = `{${env.SUBLET_NAMESPACE || 'sublet'}:0}`;
const queues = (env.SUBLET_QUEUES || 'default').split(',');
const lease = Number(env.SUBLET_LEASE || 30) * 1000;
const beatEvery = Math.min(lease / 3, 5000);     // ms; also the deadline of a call
const slots = Number(env.SUBLET_SLOTS || 10);
const lua = env.SUBLET_LUA ? new URL(`file://${env.SUBLET_LUA}/`) : new URL('../lua/', import.meta.url);
const name = `node-${hostname().replace(/[^\w.-]/g, '')}-${process.pid}-${randomBytes(3).toString('hex')}`;
const random = () => randomBytes(18).toString('base64url');

// The tasks: each takes the payload, and a signal that says when to stop; one that does not heed it goes on, for nothing.
const tasks = {
  echo: async (payload) => payload,
  sleep: async ({ seconds }, signal) => void (await sleep(seconds * 1000, undefined, { signal })),
  boom: async ({ message }) => { throw new Error(message); },
};

// A command that the connection broke under is not sent again by the client: `call` does that, and knows that it may.
const open = () => createClient({
  url: env.SUBLET_REDIS_URL || 'redis://127.0.0.1:6379',
  socket: { reconnectStrategy: (retries) => Math.min(50 * 2 ** retries, 1000), socketTimeout: 15_000 },
}).on('error', (error) => console.error(`redis: ${error.message}`));
let client = open();
const waiter = open();                   // BLPOP holds its connection, so it has one of its own

// An answer within the deadline, or none: then the connection is given up, with all that waits on it.
async function ask(used, sha, how) {
  const silence = sleep(beatEvery, 'silent', { ref: false });
  const answer = await Promise.race([used.evalSha(sha, how), silence]);
  if (answer !== 'silent') return answer;
  if (client === used) {
    client = open();
    client.connect().catch(() => {});
    used.destroy();
  }
  throw new Error('no answer in time');
}

const scripts = new Map();
const read = (file) => readFileSync(new URL(file, lua), 'utf8');
function script(verb) {
  if (!scripts.has(verb)) {
    const own = read(`${verb}.lua`);
    const text = own.match(/^-- LIBS {2}(.+)$/m)[1].split(' ').map(read).join('') + own;     // its header names what stands in front
    scripts.set(verb, { text, sha: createHash('sha1').update(text).digest('hex') });
  }
  return scripts.get(verb);
}

// Run a verb. Each is safe to repeat, so what was not answered is sent again, the same; a refusal is thrown.
async function call(verb, ...words) {
  const { text, sha } = script(verb);
  const how = { keys: [base], arguments: words.map(String) };
  for (let tries = 1; ; tries += 1) {
    try {
      return await ask(client, sha, how);
    } catch (error) {
      const [code] = error.message.split(' ');
      if (code === 'NOSCRIPT') await client.scriptLoad(text).catch(() => {});
      else if (code === 'NO_NAMESPACE') await call('init', 1);
      else if (['WRONG_LAYOUT', 'TOO_MANY', 'INVALID', 'OOM'].includes(code) || tries > 300) throw error;
      else await sleep(200);
    }
  }
}

const running = new Map();               // token + id → { id, token, abort }: the jobs in this process
let stopping = false;
let changed = () => {};                  // wakes the claim loop when a slot is free

// One job, from the claim's reply to its ending. `abort` carries why it was stopped: a word that a heartbeat brought, or ours.
async function perform(token, id, spec, payload) {
  const newline = spec.indexOf('\n');    // the payload follows the header line; over 1 KiB it is a part of its own
  const [, task, , ...rules] = (newline < 0 ? spec : spec.slice(0, newline)).split(' ');
  const limit = rules.find((rule) => rule.startsWith('timeout='))?.slice(8) ?? '300000';
  const abort = new AbortController();
  running.set(`${token} ${id}`, { id, token, abort });
  const timer = limit !== 'none' && setTimeout(() => abort.abort('timed_out'), Number(limit));
  try {
    if (!Object.hasOwn(tasks, task)) return await call('release', id, token, 0, 'unknown_task', task);
    const stopped = new Promise((_, reject) => {
      abort.signal.addEventListener('abort', () => reject(new Error(`stopped: ${abort.signal.reason}`)));
    });
    const body = JSON.parse(newline < 0 ? payload : spec.slice(newline + 1));
    const result = await Promise.race([tasks[task](body, abort.signal), stopped]);
    return await call('complete', id, token, JSON.stringify(result ?? null));
  } catch (error) {
    const why = abort.signal.aborted ? abort.signal.reason : 'failed';
    if (why === 'LEASE_LOST' || why === 'NOT_FOUND') return undefined;      // it is another's by now, or nobody's: not a word
    if (why === 'stopping') return await call('release', id, token, 0, 'released', 'the worker stops');
    const code = why === 'failed' ? error.name : why;
    return await call('fail', id, token, code, error.message, error.stack ?? '', why === 'cancelled' ? 'no' : 'yes');
  } finally {
    clearTimeout(timer);
    running.delete(`${token} ${id}`);
    changed();
  }
}

// Beside the jobs: extend all leases in one call, and hear what is asked.
async function beat() {
  for (;;) {
    await sleep(beatEvery, undefined, { ref: false });
    const held = [...running.values()];
    if (!held.length) continue;
    const answers = await call('heartbeat', lease, ...held.flatMap(({ id, token }) => [id, token, ''])).catch(() => []);
    answers.forEach((answer, i) => {
      if (answer === 'CANCEL_REQUESTED') held[i].abort.abort('cancelled');
      else if (answer === 'LEASE_LOST' || answer === 'NOT_FOUND') held[i].abort.abort(answer);
    });
  }
}

async function work() {
  const wakes = queues.map((queue) => `${base}:wake:${queue}`);
  let marker;                            // one blocking read at a time, never cut short; a marker that is of no use goes back
  beat();
  while (!stopping) {
    const free = slots - running.size;
    const [token, next, , ...jobs] = await call('claim', random(), name, lease, Math.min(free, 100), ...queues);
    for (let i = 0; i < jobs.length; i += 6) {
      perform(token, jobs[i], jobs[i + 3], jobs[i + 4]).catch((error) => console.error(error.message));
    }
    if (jobs.length && running.size < slots) continue;
    // Nothing more for now: wait for a free slot, for a marker if there is one, and no longer than the reply said.
    const reasons = [new Promise((resolve) => { changed = resolve; }), sleep(next)];
    if (running.size < slots) {
      marker ??= waiter.blPop(wakes, 10).then((found) => found && running.size >= slots && client.lPush(found.key, found.element))
        .catch(() => sleep(200)).finally(() => { marker = undefined; });
      reasons.push(marker);
    }
    if (!stopping) await Promise.race(reasons);
  }
  for (const { abort } of running.values()) abort.abort('stopping');
  while (running.size) await new Promise((resolve) => { changed = resolve; });
}

const [command, task, payload = '{}'] = process.argv.slice(2);
if (command === 'submit' && task) {
  const id = `0-${random()}`;            // made before the first try: sent again, it is the same job
  await client.connect();
  const [answer] = await call('submit', id, queues[0], task, '', payload);
  if (answer === 'created' || answer.startsWith('exists')) console.log(id);
  else { console.error(answer); process.exitCode = 1; }
} else if (command === 'work') {
  const stop = () => { stopping = true; changed(); setTimeout(() => process.exit(1), 10_000).unref(); };
  for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, stop);
  await Promise.all([client.connect(), waiter.connect()]);
  await work();
} else {
  console.error('usage: node worker.mjs submit TASK JSON | work');
  process.exitCode = 2;
}
for (const each of [client, waiter]) if (each.isOpen) each.destroy();
if (command === 'work') process.exit();   // whatever a task that was stopped may still wait for
