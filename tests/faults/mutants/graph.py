"""Mutants of the dashboard's page of a workflow, and of its graph."""

from tests.faults.mutants.mutant import Mutant

STATIC = "functions/sublet_functions/dashboard/static/"
GRAPH = "dashboard/test_dashboard_graph.py::"
PAGE = "dashboard/test_dashboard_workflows.py::"
LARGE = "test_of_a_large_workflow_the_first_thousand_jobs_are_read_and_the_failed_ones"

MUTANTS = (
    Mutant(
        "the first edges of a job tell its upstreams apart",
        f"{STATIC}graph.js",
        ".filter(isWhole)",
        "",
        "20 pages of 10,000 are a node of their own, as if the callback waited for these alone",
        f"{GRAPH}test_jobs_of_one_task_with_the_same_neighbours_are_one_node",
    ),
    Mutant(
        "jobs are alike whatever waits for them",
        f"{STATIC}graph.js",
        ", around((downs.get(id) ?? []).filter(isWhole))]",
        "]",
        "two fan-outs of one task are drawn as one",
        f"{GRAPH}test_jobs_with_other_neighbours_are_other_nodes",
    ),
    Mutant(
        "a graph has a node for each job",
        f"{STATIC}graph.js",
        "const most = size > NODES ? 1 : ALONE;",
        "const most = Infinity;",
        "10,000 nodes freeze the browser",
        f"{GRAPH}test_few_jobs_are_a_node_each",
    ),
    Mutant(
        "edges pass behind nodes",
        f"{STATIC}graph.js",
        "layer < node.layer && bends < BENDS",
        "layer < 0 && bends < BENDS",
        "an edge over a layer looks like one to the node in it",
        f"{GRAPH}test_an_edge_that_leaps_over_a_layer_does_not_pass_behind_its_node",
    ),
    Mutant(
        "the failed jobs of a large workflow are read last",
        f"{STATIC}workflow-view.js",
        "      await readPage({ state: FAILED });\n",
        "",
        "of 10,000 jobs the page does not draw the three for which it was opened",
        f"{PAGE}{LARGE}",
    ),
    Mutant(
        "a large workflow is read again with each event",
        f"{STATIC}workflow-view.js",
        "performance.now() - readAt > REST && ",
        "",
        "an open page reads 10,000 jobs every two seconds",
        f"{PAGE}{LARGE}",
    ),
    Mutant(
        "events do not move the states of a large workflow",
        f"{STATIC}workflow-view.js",
        "if (job.state !== state) members.set(",
        "if (false) members.set(",
        "the page shows jobs that have run as waiting, for up to a minute",
        f"{PAGE}{LARGE}",
    ),
    Mutant(
        "a page that was left reads on",
        f"{STATIC}workflow-view.js",
        " && location.href === address",
        "",
        "a look at a large workflow costs 50 requests, however short",
        f"{PAGE}test_a_page_that_is_left_reads_no_more_of_the_workflow",
    ),
    Mutant(
        "an order for a workflow ends with its first page",
        f"{STATIC}workflow-view.js",
        "} while (cursor);",
        "} while (false);",
        "200 of 10,000 jobs are cancelled, and the page reports success",
        f"{PAGE}test_an_order_goes_on_until_no_cursor_is_left_and_says_where_it_stopped",
    ),
    Mutant(
        "a held job looks like one that will run",
        "jobs/sublet/workflows/reading.py",
        '"awaits", "last_error")',
        '"last_error")',
        "a workflow stands still, and its page does not say why",
        f"{PAGE}test_alike_jobs_are_one_node_that_counts_them_and_a_held_one_says_so",
    ),
    Mutant(
        "the page of a workflow offers orders to readers",
        f"{STATIC}workflow-view.js",
        'can("POST", `/workflows/{id}/${verb}`)',
        "Boolean(verb)",
        "a reader presses a button that is refused",
        f"{PAGE}test_a_reader_sees_the_workflow_without_orders",
    ),
)
