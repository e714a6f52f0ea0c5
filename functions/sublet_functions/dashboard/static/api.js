/** Calls the HTTP API with the user's token. */
import { allowance, changed } from "./sharing.js";

/** The API's root, whatever path a gateway puts before it. */
export const root = new URL(
  document.querySelector("meta[name=sublet-root]")?.getAttribute("content") ?? "./",
  location.href,
);
root.search = root.hash = "";

const TOKEN = "sublet-token";
const PATIENCE = 25_000;

export class ApiError extends Error {
  /**
   * @param {number} status 0: the server did not answer
   * @param {string} kind last part of the problem's type
   * @param {string} detail
   * @param {{pointer?: string, detail: string}[]} [errors] what is wrong with which field of the body
   */
  constructor(status, kind, detail, errors = []) {
    super(detail);
    this.status = status;
    this.kind = kind;
    this.errors = errors;
  }
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN) ?? "",
  /** @param {string} value */
  set: (value) => sessionStorage.setItem(TOKEN, value),
  forget: () => sessionStorage.removeItem(TOKEN),
};

/** Set by the page: asks for a token, and resolves to whether one was given. */
export const hooks = {
  /** @type {(reason: string) => Promise<boolean>} */
  askToken: async () => false,
  /** @type {(answered: boolean) => void} */
  onAnswer: () => {},
};

let skew = 0;
/** The server's time in ms. */
export const now = () => Date.now() + skew;

/** @param {Response} response */
function readClock(response) {
  const at = Date.parse(response.headers.get("date") ?? "");
  const difference = at + 500 - Date.now();
  if (!Number.isNaN(at) && Math.abs(difference - skew) > 1500) skew = Math.abs(difference) > 1500 ? difference : 0;
}

/**
 * @param {string} path relative to the root, encoded
 * @param {Record<string, any>} [query]
 */
export function urlOf(path, query = {}) {
  const url = new URL(path, root);
  for (const [name, value] of Object.entries(query))
    for (const one of Array.isArray(value) ? value : [value])
      if (one !== null && one !== undefined && one !== "") url.searchParams.append(name, String(one));
  return url;
}

/**
 * @param {URL} url
 * @param {RequestInit} init
 */
export async function request(url, init) {
  const headers = new Headers(init.headers);
  if (token.get()) headers.set("Authorization", `Bearer ${token.get()}`);
  try {
    const response = await fetch(url, { ...init, headers, cache: "no-store", credentials: "same-origin", redirect: "error" });
    readClock(response);
    hooks.onAnswer(true);
    return response;
  } catch (error) {
    if (init.signal?.aborted && init.signal.reason?.name === "AbortError") throw error;
    hooks.onAnswer(false);
    throw new ApiError(0, "no-answer", "The server did not answer.");
  }
}

/** @param {Response} response */
export async function problemOf(response) {
  /** @type {any} */
  const body = await response.json().catch(() => ({}));
  const kind = String(body?.type ?? "").replace(/^urn:sublet:problem:/, "");
  return new ApiError(response.status, kind, String(body?.detail ?? `The server answered ${response.status}.`), Array.isArray(body?.errors) ? body.errors : []);
}

/** Fields of a job with data of its own code. */
const DATA = ["payload", "result", "checkpoint"];

/**
 * Parse JSON. Chosen numbers stay as they are written, where the browser can do that.
 * @param {string} text
 * @param {(value: number, source: string) => boolean} isKept
 */
function parseKeeping(text, isKept) {
  const raw = /** @type {any} */ (JSON).rawJSON;
  /** @type {any} */
  const keep = (/** @type {string} */ _key, /** @type {unknown} */ value, /** @type {{source?: string}} */ { source = "" }) =>
    typeof value === "number" && isKept(value, source) ? raw(source) : value;
  return JSON.parse(text, raw && keep);
}

/**
 * Parse JSON, and keep each number that JavaScript would write in another way: 1.0, or a large integer.
 * @param {string} text
 */
export const parseExactly = (text) => parseKeeping(text, (value, source) => String(value) !== source);

/**
 * Parse an answer: numbers of a job's data, and large integers anywhere, stay as they are written.
 * @param {string} text
 */
function parse(text) {
  const answer = /\d{16}/.test(text) ? parseKeeping(text, (value, source) => /^-?\d+$/.test(source) && !Number.isSafeInteger(value)) : JSON.parse(text);
  if (!answer || !Object.hasOwn(answer, "payload")) return answer;
  const exact = parseExactly(text);
  return Object.assign(answer, Object.fromEntries(DATA.filter((name) => name in exact).map((name) => [name, exact[name]])));
}

/** @type {WeakMap<object, number>} */
const ages = new WeakMap();

/**
 * When the server read an answer, in ms of this browser's clock.
 * @param {object} answer
 */
export const readAt = (answer) => Date.now() - (ages.get(answer) ?? 0);

/**
 * The same, in ms of the server's clock.
 * @param {object} answer
 */
export const seenAt = (answer) => readAt(answer) + skew;

/**
 * Send a request, and return the parsed body; with `text`, an object with the body as `text`. Asks for a token after a 401. Throws ApiError.
 * @param {string} method
 * @param {string} path
 * @param {{query?: Record<string, any>, body?: unknown, text?: boolean, signal?: AbortSignal, headers?: Record<string, string>}} [how]
 * @returns {Promise<any>}
 */
export async function call(method, path, how = {}) {
  const url = urlOf(path, how.query);
  for (;;) {
    const sent = token.get();
    /** @type {RequestInit} */
    const init = { method, signal: how.signal ?? AbortSignal.timeout(PATIENCE) };
    if (method === "GET") init.headers = { "Sublet-Shared": allowance(path) };
    if (how.body !== undefined) {
      init.body = JSON.stringify(how.body);
      init.headers = { "Content-Type": "application/json", ...how.headers };
    }
    const response = await request(url, init).finally(() => method === "GET" || changed());
    if (response.status === 401) {
      const problem = await problemOf(response);
      if (sent !== token.get() || (await hooks.askToken(problem.message))) continue;
      throw problem;
    }
    if (!response.ok) throw await problemOf(response);
    if (response.status === 204) return null;
    const text = await response.text();
    const answer = how.text ? { text } : parse(text);
    if (answer && typeof answer === "object") ages.set(answer, 1000 * Number(response.headers.get("age") ?? 0));
    return answer;
  }
}

/** @type {Promise<void> | null} */
let described = null;
/** @type {Promise<any> | null} */
let asked = null;
/** @type {any} */
let description = null;

/** Roles of the token; null where the server does not tell. @type {string[] | null} */
let roles = [];
let name = "";
let isShownPayloads = true;
let isWithinQueues = false;
/** Whether `roles` are those of the token. */
let isDescribed = false;
/** Routes that a token for some queues may not use, whatever its roles. */
const WHOLE = new Set(["/history", "/metrics", "/server"]);
/** Roles that may read every view but the audit. */
const READERS = ["admin", "read"];

/** Whether the token is limited to some queues: what belongs to none of them is hidden from it. */
export const isLimited = () => isWithinQueues;

/** Whether the token sees payloads, results and checkpoints: they are null for others. */
export const seesPayloads = () => isShownPayloads;

async function readIdentity() {
  const identity = await call("GET", "whoami").catch(() => null);
  roles = identity?.roles ?? null;
  name = identity?.name ?? "";
  isShownPayloads = identity?.payloads ?? true;
  isWithinQueues = Boolean(identity?.queues);
}

async function readDescription() {
  asked = readIdentity();
  description ??= await call("GET", "openapi.json").catch(() => null);
  await asked;
  isDescribed = Boolean(description);
  if (!description) described = null;
}

/** Read the API's description, and the token's roles, once: views offer only what may work. */
export const whenDescribed = () => (described ??= readDescription());

/** Read what is needed to make no request that the token may not make. */
export async function whenIdentified() {
  void whenDescribed();
  await asked;
  if (roles && !roles.some((role) => READERS.includes(role))) await whenDescribed();
}

/** Read them again, for another token: until then it may do nothing. */
export function describe() {
  described = null;
  roles = [];
  isDescribed = false;
  return whenDescribed();
}

/**
 * Refuse a read that the token may certainly not make, in the server's words. Throws ApiError.
 * @param {string} path as in the description
 */
export function check(path) {
  if (!lacks("GET", path)) return;
  const needed = description?.paths?.[path]?.get?.security?.flatMap((/** @type {{bearer: string[]}} */ one) => one.bearer) ?? [];
  throw new ApiError(403, "forbidden", `the token of ${name} does not allow this request: use one with role ${needed.toSorted().join(" or ")}`);
}

/** @param {{bearer: string[]}[]} allowed */
const isAllowed = (allowed) => !roles || !allowed.length || allowed.some(({ bearer }) => bearer.some((role) => roles?.includes(role)));

/** @param {string} path */
const isOutside = (path) => isWithinQueues && WHOLE.has(path);

/**
 * Whether this server has a route that the token may use; false until its description is read.
 * @param {string} method
 * @param {string} path as in the description: `/jobs/{id}/retry`
 */
export function can(method, path) {
  const operation = description?.paths?.[path]?.[method.toLowerCase()];
  return Boolean(operation) && isAllowed(operation.security ?? []) && !isOutside(path);
}

/**
 * Whether the token may certainly not use a route; false until its description is read.
 * @param {string} method
 * @param {string} path
 */
export const lacks = (method, path) => isOutside(path) || (isDescribed && !can(method, path));

/**
 * Names of the query parameters of a route.
 * @param {string} method
 * @param {string} path
 * @returns {{name: string, description: string}[]}
 */
export const parameters = (method, path) =>
  (description?.paths?.[path]?.[method.toLowerCase()]?.parameters ?? []).filter((/** @type {any} */ one) => one.in === "query");

/** @param {string} part */
export const enc = (part) => encodeURIComponent(part);
