// A client as a user writes it, with the types that openapi-typescript makes of the document by default.
// node client.js URL prints one line for each request.

import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

type Job = components["schemas"]["Job"];
type NewJob = components["schemas"]["NewJob"];
type State = components["schemas"]["State"];

const api = createClient<paths>({ baseUrl: process.argv[2] });

function settled(state: State): boolean {
  switch (state) {
    case "scheduled":
    case "queued":
    case "running":
      return false;
    case "completed":
    case "dead":
    case "cancelled":
      return true;
    default:
      return state satisfies never; // all states are listed
  }
}

function secondsHeld(job: Job): number {
  return job.claimed_at ? (Date.now() - Date.parse(job.claimed_at)) / 1000 : 0;
}

const minimal: NewJob = { task: "resize" };
const endless: NewJob = { task: "resize", payload: { width: 640 }, timeout: null, backoff: { first: 5 }, tags: ["a"] };

const one = await api.POST("/jobs", { body: minimal });
if (!one.data) throw new Error(one.error?.detail);
console.log("submitted", one.data.id.length > 0);

const batch = await api.POST("/jobs/batch", { body: { jobs: [minimal, endless] } });
console.log("batch", batch.data?.jobs.map((item) => item.status).join(" "));

const claimed = await api.POST("/jobs/claim", { body: { queues: ["default"], n: 1 } });
const lease = claimed.data?.jobs[0];
if (!lease) throw new Error("no job");
const path = { id: lease.id };
const beat = await api.POST("/jobs/{id}/heartbeat", { params: { path }, body: { token: lease.token } });
console.log("lease", typeof beat.data?.lease_expires_at, lease.timeout);
const done = await api.POST("/jobs/{id}/complete", { params: { path }, body: { token: lease.token, result: 1 } });
console.log("completed", done.data?.state, done.data ? settled(done.data.state) : undefined);
const late = await api.POST("/jobs/{id}/fail", { params: { path }, body: { token: lease.token, code: "late" } });
console.log("refused", late.error?.type === "urn:sublet:problem:lease-lost");

const read = await api.GET("/jobs/{id}", { params: { path, query: { wait: 1 } } });
console.log("read", read.data?.attempts.length, read.data ? secondsHeld(read.data) : -1);
const page = await api.GET("/jobs", { params: { query: { state: ["queued"] } } });
console.log("listed", page.data?.jobs.length, page.data?.cursor);

const schedule = await api.PUT("/schedules/{schedule}", {
  params: { path: { schedule: "daily" } },
  body: { task: "resize", cron: "0 9 * * *" },
});
console.log("schedule", schedule.data?.state);
const pool = await api.PUT("/pools/{name}", { params: { path: { name: "images" } }, body: { queues: ["images"] } });
console.log("pool", pool.data?.max);
const worker = await api.PUT("/workers/{name}", { params: { path: { name: "mill" } }, body: { life: "1" } });
console.log("worker", worker.data?.drain);
const tasks = await api.PUT("/tasks", { body: { tasks: [{ name: "resize", options: { max_attempts: 5 } }] } });
console.log("tasks", tasks.data?.written);
const cancelled = await api.POST("/jobs/{id}/cancel", { params: { path: { id: one.data.id } } });
console.log("cancel", cancelled.response.status);

const wrong = await api.POST("/jobs", { body: { ...minimal, priority: 1000 } });
console.log("invalid", wrong.error?.errors?.map((each) => each.pointer).join(" "));
