/** The graph of a workflow: jobs that are alike become one node, and nodes get places. It does not draw. */

/** @typedef {{id: string, state: string, task: string, queue: string, after: string[], after_count: number, awaits: string | null, last_error: any}} Member */
/** @typedef {{key: string, layer: number, jobs: Member[], before: Map<GraphNode, number>}} GraphNode `before`: the nodes that it waits for, with the number of edges */
/** @typedef {{node: GraphNode | null, layer: number, y: number, height: number, ups: Item[], downs: Item[]}} Item a node, or the place where an edge passes a layer */

/** Alike jobs up to this number are a node each. */
const ALONE = 8;
/** Most nodes that are drawn. */
const NODES = 200;
/** Most places where edges pass layers: later ones pass behind nodes. */
const BENDS = 500;
/** Steps along the edges by which jobs are told apart. */
const ROUNDS = 6;
export const WIDTH = 204;
const HEIGHT = 70;
const FOLDED = 108;
const BEND = 10;
const BESIDE = 44;
const BELOW = 14;

/**
 * @template K, V
 * @param {Map<K, V[]>} map
 * @param {K} key
 * @param {V} value
 */
function add(map, key, value) {
  const found = map.get(key);
  if (found) found.push(value);
  else map.set(key, [value]);
}

/**
 * The edges between known jobs: of each, those that it waits for, and those that wait for it.
 * @param {Map<string, Member>} known
 */
function edgesOf(known) {
  /** @type {Map<string, string[]>} */
  const ups = new Map();
  /** @type {Map<string, string[]>} */
  const downs = new Map();
  for (const { id, after } of known.values())
    for (const up of new Set(after)) {
      if (up === id || !known.has(up)) continue;
      add(ups, id, up);
      add(downs, up, id);
    }
  return { ups, downs };
}

/**
 * The layer of each job: one more than the last of those that it waits for.
 * @param {Map<string, Member>} known
 * @param {ReturnType<typeof edgesOf>} edges
 */
function layersOf(known, { ups, downs }) {
  /** @type {Map<string, number>} */
  const layers = new Map();
  const left = new Map([...ups].map(([id, all]) => [id, all.length]));
  const ready = [...known.keys()].filter((id) => !left.has(id));
  for (const id of ready) {
    const layer = Math.max(-1, ...(ups.get(id) ?? []).map((up) => layers.get(up) ?? -1)) + 1;
    layers.set(id, layer);
    for (const down of downs.get(id) ?? []) {
      const rest = (left.get(down) ?? 0) - 1;
      left.set(down, rest);
      if (!rest) ready.push(down);
    }
  }
  return layers;
}

/**
 * Number the jobs by a text: the same text, the same number.
 * @param {Map<string, Member>} known
 * @param {(job: Member) => string} textOf
 */
function numbered(known, textOf) {
  /** @type {Map<string, number>} */
  const numbers = new Map();
  const kinds = new Map([...known].map(([id, job]) => {
    const text = textOf(job);
    const number = numbers.get(text) ?? numbers.size;
    numbers.set(text, number);
    return [id, number];
  }));
  return { kinds, size: numbers.size };
}

/**
 * Sort jobs into classes: the same layer, queue and task, and neighbours of the same classes.
 * @param {Map<string, Member>} known
 * @param {ReturnType<typeof edgesOf>} edges
 * @param {Map<string, number>} layers
 */
function classesOf(known, { ups, downs }, layers) {
  let found = numbered(known, ({ id, queue, task }) => JSON.stringify([layers.get(id), queue, task]));
  const isWhole = (/** @type {string} */ id) => (known.get(id)?.after_count ?? 0) <= (known.get(id)?.after.length ?? 0);
  for (let round = 0; round < ROUNDS; round++) {
    const { kinds, size } = found;
    const around = (/** @type {string[]} */ ids) => [...new Set(ids.map((id) => kinds.get(id)))].sort();
    // Only the first edges of a job that waits for many are known: they tell none of the others apart
    found = numbered(known, ({ id }) => JSON.stringify([kinds.get(id), around(ups.get(id) ?? []), around((downs.get(id) ?? []).filter(isWhole))]));
    if (found.size === size) break;
  }
  /** @type {Map<number, Member[]>} */
  const classes = new Map();
  for (const [id, job] of known) add(classes, found.kinds.get(id) ?? 0, job);
  return [...classes.values()];
}

/**
 * The nodes of a graph, by layers, and how many jobs are in nodes beyond the most that are drawn.
 * @param {Map<string, Member>} known
 * @returns {{nodes: GraphNode[], undrawn: number}}
 */
export function fold(known) {
  const edges = edgesOf(known);
  const layers = layersOf(known, edges);
  const classes = classesOf(known, edges, layers);
  const size = classes.reduce((sum, { length }) => sum + (length > ALONE ? 1 : length), 0);
  const most = size > NODES ? 1 : ALONE;
  const groups = classes.flatMap((jobs) => (jobs.length > most ? [jobs] : jobs.map((job) => [job])));
  const nodes = groups.map((jobs) => ({ key: `${jobs.length > 1 ? "all " : ""}${jobs[0]?.id}`, layer: layers.get(jobs[0]?.id ?? "") ?? 0, jobs, before: new Map() }));
  nodes.sort((a, b) => a.layer - b.layer);
  const drawn = nodes.slice(0, NODES);
  const home = new Map(drawn.flatMap((node) => node.jobs.map(({ id }) => [id, node])));
  for (const node of drawn)
    for (const { id } of node.jobs)
      for (const up of edges.ups.get(id) ?? []) {
        const from = home.get(up);
        if (from && from.layer < node.layer) node.before.set(from, (node.before.get(from) ?? 0) + 1);
      }
  return { nodes: drawn, undrawn: nodes.slice(NODES).reduce((sum, { jobs }) => sum + jobs.length, 0) };
}

/**
 * Order a layer by the means of the places of its neighbours in the layer before, or behind.
 * @param {Item[][]} rows
 * @param {"ups" | "downs"} side
 */
function sweep(rows, side) {
  for (const row of side === "ups" ? rows : [...rows].reverse()) {
    const rank = new Map(row.map((item, i) => [item, item[side].length ? item[side].reduce((sum, { y }) => sum + y, 0) / item[side].length : i]));
    row.sort((a, b) => (rank.get(a) ?? 0) - (rank.get(b) ?? 0));
    for (const [i, item] of row.entries()) item.y = i;
  }
}

/**
 * The items of each layer, and each edge as the items that it goes through.
 * @param {GraphNode[]} nodes
 */
function itemsOf(nodes) {
  /** @type {Item[][]} */
  const rows = [];
  let bends = 0;
  const put = (/** @type {GraphNode | null} */ node, /** @type {number} */ layer) => {
    const item = { node, layer, y: 0, height: !node ? BEND : node.jobs.length > 1 ? FOLDED : HEIGHT, ups: [], downs: [] };
    (rows[layer] ??= []).push(item);
    return /** @type {Item} */ (item);
  };
  const own = new Map(nodes.map((node) => [node, put(node, node.layer)]));
  /** @type {Map<string, Item>} */
  const passing = new Map();
  const ways = nodes.flatMap((node) => [...node.before.keys()].map((from) => {
    const way = [/** @type {Item} */ (own.get(from))];
    for (let layer = from.layer + 1; layer < node.layer && bends < BENDS; layer++) {
      const key = `${layer} ${from.key}`;
      if (!passing.has(key)) bends += 1;
      const bend = passing.get(key) ?? put(null, layer);
      passing.set(key, bend);
      way.push(bend);
    }
    return [...way, /** @type {Item} */ (own.get(node))];
  }));
  for (const way of ways)
    for (const [i, item] of way.entries()) {
      const next = way[i + 1];
      if (!next || item.downs.includes(next)) continue;
      item.downs.push(next);
      next.ups.push(item);
    }
  return { rows: rows.map((row) => row ?? []), ways };
}

/**
 * Where each node is, and the paths of the edges, each with its arrow.
 * @param {GraphNode[]} nodes
 */
export function arrange(nodes) {
  const { rows, ways } = itemsOf(nodes);
  for (const side of /** @type {const} */ (["ups", "downs", "ups"])) sweep(rows, side);
  const heights = rows.map((row) => row.reduce((sum, { height }) => sum + height + BELOW, -BELOW));
  const height = Math.max(0, ...heights);
  for (const [i, row] of rows.entries()) {
    let y = (height - (heights[i] ?? 0)) / 2;
    for (const item of row) {
      item.y = y;
      y += item.height + BELOW;
    }
  }
  const left = (/** @type {Item} */ { layer }) => layer * (WIDTH + BESIDE);
  const middle = (/** @type {Item} */ { y, height: own }) => y + own / 2;
  const paths = ways.map((way) => {
    let path = "";
    for (const [i, to] of way.entries()) {
      const from = way[i - 1];
      if (!from) continue;
      const [x, end] = [left(from) + WIDTH, left(to)];
      const half = (x + end) / 2;
      path += `${i > 1 ? `H${x}` : `M${x} ${middle(from)}`}C${half} ${middle(from)} ${half} ${middle(to)} ${end} ${middle(to)}`;
    }
    const last = /** @type {Item} */ (way.at(-1));
    const [x, y] = [left(last), middle(last)];
    return `${path}M${x - 6} ${y - 4}L${x} ${y}L${x - 6} ${y + 4}`;
  });
  const boxes = rows.flat().filter(({ node }) => node).map((item) => ({ node: /** @type {GraphNode} */ (item.node), x: left(item), y: item.y, height: item.height }));
  return { boxes, paths, width: Math.max(0, rows.length * (WIDTH + BESIDE) - BESIDE), height };
}
