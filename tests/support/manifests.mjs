// Holds Kubernetes documents against the schemas that npm packages publish: `node manifests.mjs FOLDER < documents.json`,
// where FOLDER has the packages. Prints a JSON list of the faults, in words; an empty one when all is well.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const PACKAGES = ["kubernetes-models", "@kubernetes-models/knative", "@kubernetes-models/keda"];
const [folder] = process.argv.slice(2);

/** The model of a kind, or undefined if no package knows it. */
async function modelOf({ apiVersion, kind }) {
  for (const name of PACKAGES) {
    for (const ending of [".mjs", ".js"]) {
      const file = join(folder, name, String(apiVersion), kind + ending);
      if (existsSync(file)) return (await import(pathToFileURL(file)))[kind];
    }
  }
}

/**
 * A view of a document that notes which fields are looked at, and a function that names those that never were.
 *
 * The schemas let fields pass that they do not know, and so would a cluster: a misspelt `concurrencyPolicy` just does nothing.
 * But a validator looks at every field that it knows. Where it looked at none, anything may stand.
 */
function watched(value, place = "") {
  if (value === null || typeof value !== "object") return [value, () => []];
  const parts = new Map(Object.entries(value).map(([name, one]) => [name, watched(one, `${place}/${name}`)]));
  const seen = new Set();
  let read = false;
  const view = new Proxy(value, {
    get(target, name) {
      if (typeof name === "string") {
        read = true;
        seen.add(name);
      }
      return parts.has(name) ? parts.get(name)[0] : Reflect.get(target, name);
    },
  });
  const unknown = () => {
    if (!read) return [];
    return [...parts].flatMap(([name, [, inner]]) => (seen.has(name) ? inner() : [`${place}/${name} is in no schema`]));
  };
  return [view, unknown];
}

/** What is wrong with one document. */
async function faultsOf(document) {
  const Model = await modelOf(document);
  if (!Model) return ["no schema knows this kind"];
  const [view, unknown] = watched(document);
  try {
    Model.prototype.validate.call(view);
  } catch (error) {
    if (!error.errors) throw error;
    return error.errors.map((one) => `${one.instancePath || "/"} ${one.message}`);
  }
  return unknown();
}

const faults = [];
for (const document of JSON.parse(readFileSync(0, "utf8"))) {
  const name = `${document.apiVersion} ${document.kind} ${document.metadata?.name}`;
  faults.push(...(await faultsOf(document)).map((fault) => `${name}: ${fault}`));
}
process.stdout.write(JSON.stringify(faults));
