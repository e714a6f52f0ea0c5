"""What a run with workflows and steps draws: graphs of jobs, and the steps of tasks."""

AFTER = ("the last", "none", "the last two", "all", "an older one")
"""For which jobs of the graph, or of an earlier one, a new job waits."""
RULES = ("", "on_failure=run", "on_failure=hold", "tries=1", "delay=1500", "give_up=4000", "on_failure=run tries=1 priority=9",
         "backoff=200:1:200", "on_failure=hold give_up=60000")  # fmt: skip
WAYS = ("whole", "in two calls", "loose", "grows", "never sealed", "cancelled")
"""How a graph is stored: in one call or two, without a workflow, with a job that is added into it, or not to its end."""
SLEEPS, WAITS = ("nap",), ("go",)
"""The names of steps that are sleeps, and of those that are waits for a signal. All others are done by the task."""
STORIES = (
    (),
    ("charge",),
    ("charge", "nap 3"),
    ("go 5",),
    ("go",),
    ("charge", "go 20", "ship"),
    ("nap 1", "go"),
)
"""What a task does before its end: names of steps, with the seconds of a sleep, or after which a wait is given up."""
SIGNALS = (b"1", b"2")
