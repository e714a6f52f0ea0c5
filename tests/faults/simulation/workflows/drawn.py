"""The options of a run with workflows and steps: graphs of jobs, and the steps of tasks."""

AFTER = ("the last", "none", "the last two", "all", "an older one")
"""For which jobs of the graph, or of an earlier one, a new job waits."""
RULES = ("", "on_failure=run", "on_failure=hold", "tries=1", "delay=1500", "give_up=4000", "on_failure=run tries=1 priority=9",
         "backoff=200:1:200", "on_failure=hold give_up=60000")  # fmt: skip
WAYS = ("whole", "in two calls", "loose", "grows", "never sealed", "cancelled")
"""How a graph is stored: in one call or two, without a workflow, with a job that is added into it, or not to its end."""
SLEEPS, WAITS, CALLS = ("nap",), ("go",), ("print", "pack")
"""The names of steps that are sleeps, waits for a signal, and calls of other jobs. All others are done by the task."""
STORIES = (
    (),
    ("charge",),
    ("charge", "nap 3"),
    ("go 5",),
    ("go",),
    ("charge", "go 20", "ship"),
    ("nap 1", "go"),
    ("print",),
    ("charge", "print", "go 20", "pack"),
    ("pack", "nap 1"),
)
"""The steps of a task before its end: their names, with the seconds of a sleep, or after which a wait is given up."""
SIGNALS = (b"1", b"2")
CALLED = ("", "tries=1", "delay=1500", "priority=50", "backoff=200:1:200 tries=2")
"""The rules of a called job."""
FOLLOWING = (
    "nothing",
    "one job",
    "two jobs and a callback",
    "three jobs and a callback on any end",
    "four jobs, in two calls",
)
"""The jobs that follow a completed one."""
