/** Finds the place of a typed text: a job or a workflow by its id, else the jobs of a queue, a tag or a task. */
import { ApiError, call, enc } from "./api.js";
import { link } from "./router.js";
import { toast } from "./widgets.js";

/** Ids that the server gives, whole or without their partition: other texts are names first, for a request for a job that is not there is an error. */
const ID = /^(\d+-.+|[0-9A-HJKMNP-TV-Z]{26})$/;
const NAME = /^[A-Za-z0-9_.:-]{1,128}$/;

/** @param {() => Promise<any>} read */
async function found(read) {
  try {
    return await read();
  } catch (error) {
    if (error instanceof ApiError && [403, 404, 422].includes(error.status)) return null;
    throw error;
  }
}

/** @param {string} text */
async function byId(text) {
  if (text.length > 64) return null;
  const job = await found(() => call("GET", `jobs/${enc(text)}`));
  if (job) return link("jobs", job.id);
  const flow = await found(() => call("GET", `workflows/${enc(text)}`, { query: { limit: 1 } }));
  return flow && link("workflows", flow.id);
}

/** @param {string} text */
async function byName(text) {
  const first = (/** @type {string} */ filter) => found(() => call("GET", "jobs", { query: { [filter]: text, limit: 1 } }));
  const [queue, jobs, tagged, tasks] = await Promise.all([found(() => call("GET", `queues/${enc(text)}`)), first("queue"), text.length <= 64 ? first("tag") : null, first("task")]);
  if (queue?.exists || jobs?.jobs.length) return link("jobs", "", { queue: text });
  if (tagged?.jobs.length) return link("jobs", "", { tag: text });
  return tasks?.jobs.length ? link("jobs", "", { task: text }) : null;
}

/**
 * @param {string} text
 * @returns {Promise<string | null>} a URL
 */
export async function find(text) {
  if (!text) return null;
  if (!NAME.test(text)) {
    toast("Use the name of a queue, tag or task, or a job's id: A-Z a-z 0-9 _ . : -", "bad");
    return null;
  }
  try {
    const place = (ID.test(text) && (await byId(text))) || (await byName(text)) || (!ID.test(text) && (await byId(text)));
    if (place || !ID.test(text)) return place || link("jobs", "", { task: text });
    toast(`No job or workflow ${text}: it never existed, or was deleted.`, "bad");
    return null;
  } catch (error) {
    toast(error instanceof Error ? error.message : String(error), "bad");
    return null;
  }
}
