/** The state of Redis: a line, and on demand all that the doctor finds. */
import { call, can, whenDescribed } from "./api.js";
import { h } from "./dom.js";
import { bytes, duration, plural } from "./format.js";
import { badge, icon } from "./widgets.js";

/** @typedef {"ok" | "warn" | "bad" | "unknown"} Level */
/** @typedef {{level: Level, subject: string, text: string, advice: string}} Check */
/** @typedef {any} Server */
/** @typedef {{level: Level, servers: Server[]}} Report */

/** Level → icon and word. @type {Record<Level, [string, string]>} */
const LEVELS = { ok: ["completed", "good"], warn: ["warning", "warning"], bad: ["dead", "bad"], unknown: ["held", "unknown"] };
const STORED = { aof: "append-only file", snapshots: "snapshots only", none: "not stored on disk" };

/**
 * @returns {Promise<Report | null>} null where the server or the token gives none
 */
export async function readServer() {
  await whenDescribed();
  return can("GET", "/server") ? call("GET", "server").catch(() => null) : null;
}

/** @param {Report} report */
export function serverLine({ level, servers }) {
  const [kind, word] = LEVELS[level];
  const wrong = servers.flatMap(({ checks }) => checks).filter((/** @type {Check} */ one) => one.level === "bad" || one.level === "warn");
  const verdict = wrong.length ? `${word}, ${plural(wrong.length, "thing")} to look at` : word;
  const state = servers.length === 1 ? describe(servers[0]) : plural(servers.length, "server");
  return h("li", { key: "Redis", class: wrong.length ? "bad" : null },
    h("span", { class: `badge ${kind}` }, icon(kind)),
    h("b", null, "Redis"),
    h("details", { id: "redis" }, h("summary", null, `${verdict}: ${state}`), servers.map((server, i) => [servers.length > 1 ? h("h3", null, `Server ${i + 1}: ${describe(server)}`) : null, h("ul", null, server.checks.map(finding))])));
}

/** @param {Server} server */
function describe(server) {
  const { product, version, used_memory_bytes: used, maxmemory_bytes: most, persistence, appendfsync } = server;
  const parts = [
    product && version && `${product === "valkey" ? "Valkey" : "Redis"} ${version}`,
    used !== null && (most ? `${bytes(used)} of ${bytes(most)}` : `${bytes(used)}, no limit`),
    persistence && [STORED[/** @type {keyof STORED} */ (persistence)], persistence === "aof" && appendfsync].filter(Boolean).join(" "),
    server.eviction_policy,
    server.replicas ? plural(server.replicas, "replica") : null,
    server.uptime_seconds !== null && `up ${duration(server.uptime_seconds)}`,
  ];
  return parts.filter(Boolean).join(" · ") || "it tells nothing of itself";
}

/** @param {Check} check */
const finding = ({ level, subject, text, advice }) => h("li", { key: `${subject} ${text}` }, badge(...LEVELS[level]), h("b", null, subject), h("span", null, text, advice ? h("small", { class: "block" }, advice) : null));
