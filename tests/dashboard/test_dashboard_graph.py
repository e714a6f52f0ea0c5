"""The graph of a workflow: alike jobs are one node, and nodes have places."""

import json
import re
from itertools import pairwise

import pytest

from tests.support.node import of_node

CODE = """
import { arrange, fold } from "./graph.js";
const known = new Map(JOBS.map((job) => [job.id, job]));
const { nodes, undrawn } = fold(known);
const { boxes, paths, width, height } = arrange(nodes);
const name = ({ jobs }) => jobs.length > 1 ? `${jobs[0].task} x ${jobs.length}` : jobs[0].id;
console.log(JSON.stringify({
  nodes: nodes.map((node) => [name(node), node.layer, Object.fromEntries([...node.before].map(([from, n]) => [name(from), n]))]),
  boxes: boxes.map(({ node, ...box }) => ({ name: name(node), layer: node.layer, ...box })), paths, width, height, undrawn,
}));
"""
CHAIN = {"a": [], "b": ["a"], "c": ["b"]}
DIAMOND = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}
LEAP = {"a": [], "b": ["a"], "c": ["b"], "d": ["a", "c"]}
CYCLE = {"a": ["c"], "b": ["a"], "c": ["b"], "d": ["d"], "e": []}
PAIRS = {f"{kind}{n}": [f"fetch{n}"] * (kind == "parse") for n in range(30) for kind in ("fetch", "parse")}
FAN = {
    **{f"page{n}": [] for n in range(300)},
    "index": [f"page{n}" for n in range(300)],
    "publish": ["index"],
}
LONG = {f"{chr(97 + n % 26)}{n}": [f"{chr(97 + (n - 1) % 26)}{n - 1}"] * (n > 0) for n in range(500)}


def drawn(graph, **tasks):
    """Fold and arrange jobs as the API describes them, with the first 20 edges of each."""
    jobs = [
        {
            "id": name,
            "state": "queued",
            "task": tasks.get(name, name.rstrip("0123456789")),
            "queue": "q",
            "after": after[:20],
            "after_count": len(after),
        }
        for name, after in graph.items()
    ]
    return of_node(CODE.replace("JOBS", json.dumps(jobs)))


def layers(found):
    return {name: layer for name, layer, _ in found["nodes"]}


def test_a_job_is_in_the_layer_behind_the_last_one_that_it_waits_for():
    assert layers(drawn(CHAIN)) == {"a": 0, "b": 1, "c": 2}
    assert layers(drawn(DIAMOND)) == {"a": 0, "b": 1, "c": 1, "d": 2}
    assert layers(drawn(LEAP)) == {"a": 0, "b": 1, "c": 2, "d": 3}
    assert layers(drawn({"b": ["elsewhere"], "c": ["b", "b"]})) == {"b": 0, "c": 1}


def test_jobs_of_one_task_with_the_same_neighbours_are_one_node():
    assert drawn(FAN)["nodes"] == [
        ["page x 300", 0, {}],
        ["index", 1, {"page x 300": 20}],
        ["publish", 2, {"index": 1}],
    ]
    assert drawn(PAIRS)["nodes"] == [["fetch x 30", 0, {}], ["parse x 30", 1, {"fetch x 30": 30}]]


def test_jobs_with_other_neighbours_are_other_nodes():
    two = {f"page{n}": [] for n in range(40)}
    two |= {f"sum{n}": [f"page{n}"] for n in range(20)} | {f"max{n}": [f"page{n}"] for n in range(20, 40)}
    names = sorted(name for name, *_ in drawn(two)["nodes"])
    assert names == ["max x 20", "page x 20", "page x 20", "sum x 20"]


def test_few_jobs_are_a_node_each():
    few = {f"page{n}": [] for n in range(8)}
    assert len(drawn(few)["nodes"]) == 8
    assert len(drawn({**few, "page8": []})["nodes"]) == 1


def test_a_graph_of_many_small_classes_is_folded_and_a_long_one_is_cut():
    small = {f"{chr(97 + kind)}{n}": [] for kind in range(26) for n in range(8)}
    assert len(drawn(small)["nodes"]) == 26
    long = drawn(LONG)
    assert (len(long["nodes"]), long["undrawn"]) == (200, 300)
    assert max(layers(long).values()) == 199


def test_a_cycle_that_no_script_stores_does_not_stop_the_page():
    assert len(drawn(CYCLE)["nodes"]) == 5


@pytest.mark.parametrize(
    "graph", [{}, CHAIN, DIAMOND, LEAP, CYCLE, PAIRS, FAN, LONG], ids=lambda one: str(len(one))
)
def test_nodes_do_not_overlap_and_each_edge_has_a_path(graph):
    found = drawn(graph)
    by_layer = {}
    for box in found["boxes"]:
        by_layer.setdefault(box["layer"], []).append(box)
        assert 0 <= box["y"] <= box["y"] + box["height"] <= found["height"]
        assert 0 <= box["x"] < found["width"]
    for boxes in by_layer.values():
        boxes.sort(key=lambda box: box["y"])
        assert all(above["y"] + above["height"] < below["y"] for above, below in pairwise(boxes))
        assert len({box["x"] for box in boxes}) == 1
    assert len(found["paths"]) == sum(len(before) for *_, before in found["nodes"])
    assert all("NaN" not in path and "undefined" not in path for path in found["paths"])


def test_an_edge_that_leaps_over_a_layer_does_not_pass_behind_its_node():
    found = drawn(LEAP)
    boxes = {box["name"]: box for box in found["boxes"]}
    (leap,) = (path for path in found["paths"] if path.count("C") == 3)
    heights = {float(x): float(y) for x, y in re.findall(r"C\S+ \S+ \S+ \S+ ([\d.]+) ([\d.]+)", leap)}
    for name in ("b", "c"):
        box = boxes[name]
        assert not box["y"] <= heights[box["x"]] <= box["y"] + box["height"]


def test_ten_thousand_jobs_with_fifty_thousand_edges_are_folded():
    names = [[f"s{layer}-{n}" for n in range(1000)] for layer in range(10)]
    graph = {}
    for layer, row in enumerate(names):
        for n, name in enumerate(row):
            graph[name] = [names[layer - 1][(n + k) % 1000] for k in range(5)] if layer else []
    found = drawn(graph, **{name: "step" for row in names for name in row})
    assert [layer for _, layer, _ in found["nodes"]] == list(range(10))
    assert found["nodes"][1][2] == {"step x 1000": 5000}
