/** Finds the place of a typed text: a job by its id, else the jobs of a queue or a task. */
import { ApiError, call, enc } from "./api.js";
import { link } from "./router.js";
import { toast } from "./widgets.js";

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

/**
 * @param {string} text
 * @returns {Promise<string | null>} a URL
 */
export async function find(text) {
  if (!text) return null;
  if (!NAME.test(text)) {
    toast("Use the name of a queue or task, or a job's id: A-Z a-z 0-9 _ . : -", "bad");
    return null;
  }
  try {
    const job = text.length <= 64 && (await found(() => call("GET", `jobs/${enc(text)}`)));
    if (job) return link("jobs", job.id);
    const [queue, jobs] = await Promise.all([found(() => call("GET", `queues/${enc(text)}`)), found(() => call("GET", "jobs", { query: { queue: text, limit: 1 } }))]);
    if (queue?.jobs || queue?.revision || jobs?.jobs.length) return link("jobs", "", { queue: text });
    return link("jobs", "", { task: text });
  } catch (error) {
    toast(error instanceof Error ? error.message : String(error), "bad");
    return null;
  }
}
