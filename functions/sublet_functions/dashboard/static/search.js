/** Finds the place of a typed text: a job or a workflow by its id, else the jobs of a queue, a tag or a task. */
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
    toast("Use the name of a queue, tag or task, or a job's id: A-Z a-z 0-9 _ . : -", "bad");
    return null;
  }
  try {
    const job = text.length <= 64 && (await found(() => call("GET", `jobs/${enc(text)}`)));
    if (job) return link("jobs", job.id);
    const first = (/** @type {string} */ filter) => found(() => call("GET", "jobs", { query: { [filter]: text, limit: 1 } }));
    const [flow, queue, jobs, tagged] = await Promise.all([text.length <= 64 ? found(() => call("GET", `workflows/${enc(text)}`, { query: { limit: 1 } })) : null, found(() => call("GET", `queues/${enc(text)}`)), first("queue"), text.length <= 64 ? first("tag") : null]);
    if (flow) return link("workflows", flow.id);
    if (queue?.exists || jobs?.jobs.length) return link("jobs", "", { queue: text });
    if (tagged?.jobs.length) return link("jobs", "", { tag: text });
    return link("jobs", "", { task: text });
  } catch (error) {
    toast(error instanceof Error ? error.message : String(error), "bad");
    return null;
  }
}
