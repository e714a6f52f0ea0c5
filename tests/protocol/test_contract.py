"""The contract: a script's header, its code and the Python that calls it agree."""

import ast
import hashlib
import inspect
import re
import shutil
import subprocess

import pytest

from sublet import errors
from sublet.model import (
    Beat,
    Card,
    Completion,
    Description,
    Failure,
    Lease,
    Note,
    Release,
    Submission,
    Suspension,
)
from sublet.operations import pools, statistics
from sublet.operations.pools import Elsewhere
from sublet.protocol import flow, keys, scripts, verbs
from sublet.protocol.scripts import LIBRARIES, NAMES, script, source
from sublet.schedules import firing
from sublet.schedules.firing import FireRequest, Pick
from sublet.steps import calls as steps
from sublet.steps import chunks
from sublet.workflows import following, storing
from tests.support.paths import ROOT

LUA = ROOT / "lua"
CALLS = (verbs, flow, steps, chunks, storing, following, firing, pools)
"""The modules that make calls of scripts."""
WORDS = {"CANCEL_REQUESTED", "INVALID"}
"""Words of a reply that are not refusals: one is information, the other never reaches a Python caller as a
code."""
LEASE = Lease("ID", "TOKEN", 1, 2, "QUEUE", "TASK", 3, b"", "")
SAMPLES = {
    "init": (verbs.init("B", 4), {"partitions": 4}),
    "submit": (
        verbs.submit("B", [Submission("ID", "QUEUE", "TASK", "RULES", b"PAYLOAD")]),
        {"id": "ID", "queue": "QUEUE", "task": "TASK", "rules": "RULES", "payload": b"PAYLOAD"},
    ),
    "workflow": (
        storing.workflow("B", "FLOW", "seal", [storing.Linked(Submission("ID", "QUEUE", "TASK", "RULES", b"PAYLOAD"), ["X", "Y"], ["Z"])]),
        {"workflow": "FLOW", "how": "seal", "id": "ID", "queue": "QUEUE", "task": "TASK", "rules": "RULES", "payload": b"PAYLOAD",
         "after": "X Y", "into": "Z"},
    ),
    "claim": (
        verbs.claim("B", claim_id="CLAIM", worker="WORKER", lease=1.5, n=7, queues=["QUEUE"]),
        {"claim_id": "CLAIM", "worker": "WORKER", "lease": 1500, "n": 7, "queue": "QUEUE"},
    ),
    "heartbeat": (
        verbs.heartbeat("B", [Beat(LEASE, b"PROGRESS")], lease=2),
        {"lease": 2000, "id": "ID", "token": "TOKEN", "progress": b"PROGRESS"},
    ),
    "complete": (verbs.complete("B", [Completion(LEASE, b"RESULT")]), {"id": "ID", "token": "TOKEN", "result": b"RESULT"}),
    "proceed": (
        following.proceed(
            "B",
            Completion(LEASE, b"RESULT"),
            "FLOW",
            [storing.Linked(Submission("ID", "QUEUE", "TASK", "RULES", b"PAYLOAD"), ["X", "Y"], ["Z"])],
        ),
        {"id": "ID", "token": "TOKEN", "result": b"RESULT", "workflow": "FLOW", "job": "ID", "queue": "QUEUE", "task": "TASK",
         "rules": "RULES", "payload": b"PAYLOAD", "after": "X Y", "into": "Z"},
    ),
    "fail": (
        verbs.fail("B", [Failure(LEASE, "CODE", "MESSAGE", "DETAIL", again=False)]),
        {"id": "ID", "token": "TOKEN", "code": "CODE", "message": b"MESSAGE", "detail": b"DETAIL", "again": "no"},
    ),
    "release": (
        verbs.release("B", [Release(LEASE, 0.25, "REASON", "unknown_task")]),
        {"id": "ID", "token": "TOKEN", "delay": 250, "code": "unknown_task", "reason": b"REASON"},
    ),
    "cancel": (
        verbs.cancel("B", "ID", 5, "WHO", "all", "ORDER"),
        {"id": "ID", "revision": 5, "by": "WHO", "how": "all", "order": "ORDER"},
    ),
    "retry": (
        verbs.retry("B", "ID", 5, "WHO", "HOW", "ORDER"),
        {"id": "ID", "revision": 5, "by": "WHO", "how": "HOW", "order": "ORDER"},
    ),
    "promote": (
        verbs.promote("B", "ID", 5, "WHO", "ORDER"),
        {"id": "ID", "revision": 5, "by": "WHO", "order": "ORDER"},
    ),
    "reschedule": (
        verbs.reschedule("B", "ID", 5, "RULES", "WHO"),
        {"id": "ID", "revision": 5, "rules": "RULES", "by": "WHO"},
    ),
    "erase": (verbs.erase("B", "ID", 5, "WHO"), {"id": "ID", "revision": 5, "by": "WHO"}),
    "reap": (verbs.reap("B", limit=9, by="WORKER"), {"limit": 9, "by": "WORKER"}),
    "prune": (verbs.prune("B", limit=9), {"limit": 9}),
    "watch": (verbs.watch("B", ["ID"]), {"id": "ID"}),
    "pause": (verbs.pause("B", "QUEUE", 5, "WHO"), {"queue": "QUEUE", "revision": 5, "by": "WHO"}),
    "resume": (verbs.resume("B", "QUEUE", 5, "WHO"), {"queue": "QUEUE", "revision": 5, "by": "WHO"}),
    "configure": (
        verbs.configure("B", "QUEUE", 5, "jobs=9", "WHO"),
        {"queue": "QUEUE", "revision": 5, "settings": "jobs=9", "by": "WHO"},
    ),
    "group": (
        flow.group("B", "QUEUE", 5, "GROUP", "share=2", "WHO"),
        {"queue": "QUEUE", "revision": 5, "group": "GROUP", "settings": "share=2", "by": "WHO"},
    ),
    "spend": (flow.spend("B", [(LEASE, 7)]), {"id": "ID", "token": "TOKEN", "cost": 7}),
    "audit": (
        verbs.audit("B", "ORDER", "WHO", "VERB", "WHAT", "QUEUE", "OUTCOME"),
        {"order": "ORDER", "by": "WHO", "verb": "VERB", "what": "WHAT", "queue": "QUEUE", "outcome": "OUTCOME"},
    ),
    "note": (
        verbs.note("B", [Note(LEASE, b"CHECKPOINT", b"LOG")]),
        {"id": "ID", "token": "TOKEN", "checkpoint": b"CHECKPOINT", "log": b"LOG"},
    ),
    "emit": (
        chunks.emit("B", LEASE, chunks.Emission(7, [b"CHUNK"])),
        {"id": "ID", "token": "TOKEN", "before": 7, "chunk": b"CHUNK"},
    ),
    "step": (
        steps.step("B", LEASE, {"NAME": b"VALUE"}),
        {"id": "ID", "token": "TOKEN", "name": "NAME", "value": b"VALUE"},
    ),
    "call": (
        steps.call("B", LEASE, steps.CalledJob("NAME", Submission("ID", "QUEUE", "TASK", "RULES", b"PAYLOAD"))),
        {"id": "ID", "token": "TOKEN", "name": "NAME", "queue": "QUEUE", "task": "TASK", "rules": "RULES", "payload": b"PAYLOAD"},
    ),
    "suspend": (
        steps.suspend("B", [Suspension(LEASE, "sleep", "NAME", 0.25)]),
        {"id": "ID", "token": "TOKEN", "kind": "sleep", "name": "NAME", "delay": 250},
    ),
    "signal": (
        steps.signal("B", "ID", "NAME", b"VALUE", "WHO"),
        {"id": "ID", "name": "NAME", "value": b"VALUE", "by": "WHO"},
    ),
    "enlist": (
        verbs.enlist("B", Card("WORKER", "LIFE", "WORKER_ID", b"ABOUT", "POOL", "SUMMONS", "OWNER")),
        {"worker": "WORKER", "life": "LIFE", "worker_id": "WORKER_ID", "about": b"ABOUT", "pool": "POOL", "summons": "SUMMONS",
         "owner": "OWNER"},
    ),
    "drain": (verbs.drain("B", "WORKER", "LIFE", "WHO"), {"worker": "WORKER", "life": "LIFE", "by": "WHO"}),
    "reconcile": (
        verbs.reconcile("B", "WORKER", "LIFE", [("ID", 7)]),
        {"worker": "WORKER", "life": "LIFE", "id": "ID", "attempt": 7},
    ),
    "publish": (
        verbs.publish("B", [Description("TASK", "DIGEST", b"DESCRIPTION")], starting=True),
        {"starting": "yes", "task": "TASK", "digest": "DIGEST", "description": b"DESCRIPTION"},
    ),
    "sample": (verbs.sample("B", 7, 8), {"queued": 7, "due": 8}),
    "schedule": (
        firing.schedule(
            "B", "NAME", 5, was="6", plan=b"PLAN", queue="QUEUE", task="TASK", rules="RULES", overlap="skip", paused=True, occurrence=7,
            due=8, payload=b"PAYLOAD", by="WHO",
        ),
        {"name": "NAME", "revision": 5, "was": "6", "plan": b"PLAN", "queue": "QUEUE", "task": "TASK", "rules": "RULES",
         "overlap": "skip", "paused": 1, "occurrence": 7, "due": 8, "payload": b"PAYLOAD", "by": "WHO"},
    ),
    "pick": (firing.pick("B", 9, [("s", "2")]), {"limit": 9, "name": "s", "revision": "2"}),
    "fire": (
        firing.fire("B", "WORKER", [FireRequest(Pick("NAME", "5", 7, b"PLAN", "skip"), [7, 8], 3, 9, 10)]),
        {"by": "WORKER", "name": "NAME", "revision": "5", "occurrence": 7, "occurrences": "7 8", "missed": 3, "next": 9, "due": 10},
    ),
    "pool": (
        pools.pool("B", "POOL", 5, "SETTINGS", "TARGET", "WHO"),
        {"pool": "POOL", "revision": 5, "settings": "SETTINGS", "target": "TARGET", "by": "WHO"},
    ),
    "summon": (
        pools.summon("B", "POOL", summons="SUMMONS", n=3, leaver="WORKER", elsewhere=[Elsewhere("QUEUE", 1, 2, 3, 4, 5)]),
        {"pool": "POOL", "summons": "SUMMONS", "n": 3, "leaver": "WORKER", "queue": "QUEUE", "ready": 1, "running": 2,
         "finished": 3, "ended": 4, "took": 5},
    ),
    "complain": (
        pools.complain("B", "POOL", summons="SUMMONS", n=3, reason="REASON"),
        {"pool": "POOL", "summons": "SUMMONS", "n": 3, "reason": "REASON"},
    ),
    "repair": (verbs.repair("B", "look", [("job", "ID")]), {"how": "look", "seen_in": "job", "id": "ID"}),
    "recount": (
        verbs.recount("B", "mend", "STAMP", [("QUEUE", 3, 2, 1)]),
        {"how": "mend", "stamp": "STAMP", "queue": "QUEUE", "jobs": 3, "bytes": 2, "running": 1},
    ),
    "drop": (verbs.drop("B", 7, ["B:KEY"]), {"submitted": 7, "key": "B:KEY"}),
}  # fmt: skip
STRAIGHT = ("straight/submit", "straight/submit_many", "straight/claim", "straight/complete")
"""They stand in front of the libraries, so they use none of them: each has its own clock and keys."""


def header(name):
    """The comment above a script."""
    return re.match(r"(?:--.*\n)+", source(name))[0]


def header_lines(name, kind):
    """The text of a header under one keyword, with its continuation lines."""
    found = re.findall(rf"^-- {kind} +(.*(?:\n--  {{6,}}.*)*)", header(name), re.MULTILINE)
    return [re.sub(r"\n--\s+", " ", text) for text in found]


def arguments(name):
    """The names of a script's arguments, in the header's order."""
    return [
        word for line in header_lines(name, "ARGV") for word in line.split("  ")[0].replace("…", "").split()
    ]


def body(name):
    """A script's code, without comments."""
    return re.sub(r"--.*", "", source(name))


def functions():
    """The local functions of the libraries: name → body."""
    text = "".join(body(library) for library in LIBRARIES)
    return {
        part.split("(")[0].strip(): part
        for part in re.split(r"^local function ", text, flags=re.MULTILINE)[1:]
    }


def calls(name, library):
    """Whether this file uses a top-level name of that library."""
    theirs = re.findall(r"^local (?:function (\w+)|([\w, ]+?) *(?:=|$))", body(library), re.MULTILINE)
    code, words = (
        re.sub(r"'[^'\n]*'", "", body(name)),
        {word for pair in theirs for word in re.split(r"[, ]+", "".join(pair))},
    )
    return any(re.search(rf"(?<![.\w]){word}\b(?! = )", code) for word in words)


def reachable(name):
    """A script's code, with every library function whose answer it may return."""
    own = body(name).replace("not lease_answer(", "not (")  # used as a condition only
    texts, todo, known = [own], [own], functions()
    while todo:
        text = todo.pop()
        for function in [f for f in known if re.search(rf"(?<!local function )\b{f}\(", text)]:
            todo.append(known[function])
            texts.append(known.pop(function))
    return "\n".join(texts)


# files and functions


def test_every_script_is_a_verb_with_a_test_of_its_own():
    assert sorted(path.stem for path in LUA.glob("*.lua")) == sorted(NAMES)
    assert sorted(f"lib/{path.stem}" for path in (LUA / "lib").glob("*")) == sorted(LIBRARIES)
    straight = [
        library for name in NAMES for library in script(name).libraries if library.startswith("straight/")
    ]
    assert sorted(f"straight/{path.stem}" for path in (LUA / "straight").glob("*")) == sorted(straight)
    named = [
        {f"test_{name}.py", f"test_{name}_verb.py"} for name in NAMES
    ]  # test_schedule.py tests the calendar
    assert all(names & {path.name for path in (ROOT / "tests").rglob("test_*.py")} for names in named)


def test_every_verb_has_a_function_of_its_name_and_every_sample_a_verb():
    assert [
        name for name in NAMES if not any(callable(getattr(module, name, None)) for module in CALLS)
    ] == []
    assert list(SAMPLES) == list(NAMES)


# the header


@pytest.mark.parametrize("name", NAMES)
def test_a_header_has_the_documented_form(name):
    lines = header(name).splitlines()
    assert re.fullmatch(rf"-- {name}: [^A-Z].*\.", lines[0])
    assert lines[1] == "--"
    assert re.fullmatch(rf"-- LIBS  (straight/{name}(_\w+)?\.lua )*lib/\w+\.lua( lib/\w+\.lua)*", lines[2])
    assert (
        lines[3]
        == '-- KEYS  base         the partition\'s hash, e.g. {sublet:0}; every other key is base .. ":" .. name'
    )
    kinds = [line[3:7] for line in lines[4:] if not line.startswith("--       ")]
    assert kinds == sorted(kinds, key=["ARGV", "REPL", "CODE"].index)
    assert {"REPL", "CODE"} <= set(kinds)
    assert source(name)[len(header(name))] == "\n"


@pytest.mark.parametrize("name", [*LIBRARIES, *STRAIGHT])
def test_a_library_begins_with_its_name_and_purpose(name):
    assert re.match(rf"-- {name}: .+\n", source(name))


@pytest.mark.parametrize("name", NAMES)
def test_python_binds_each_argument_to_its_name(name):
    call, values = SAMPLES[name]
    assert list(values) == arguments(name)
    verb, sha, count, base, *bound = call.commands[0]
    assert (verb, sha, count, base) == ("EVALSHA", script(name).sha, 1, "B")
    assert [value if isinstance(value, bytes) else str(value) for value in bound] == [
        value if isinstance(value, bytes) else str(value) for value in values.values()
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_script_reads_as_many_arguments_as_its_header_names(name):
    ours = script(name)
    assert [*ours.fixed, *ours.repeated] == arguments(name)
    read = [int(n) for n in re.findall(r"ARGV\[(\d+)\]", body(name))]
    loop = re.search(r"for i = (\d+), #ARGV(?:, (\d+))?", body(name))
    assert set(read) - {int(loop[1]) if loop else 0} <= set(range(1, len(ours.fixed) + 1))
    if ours.repeated and loop:
        assert (int(loop[1]), int(loop[2] or 1)) == (len(ours.fixed) + 1, len(ours.repeated))


def test_python_takes_single_arguments_by_the_names_of_the_header():
    """`script("reap").call(base, read, limit=…)`: the keywords are the names in the header."""
    for call in (node for module in CALLS for node in ast.walk(ast.parse(inspect.getsource(module)))):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "call":
            name, given = (
                ast.literal_eval(call.func.value.args[0]),
                {keyword.arg for keyword in call.keywords},
            )
            assert (
                given <= set(script(name).fixed)
                if None not in given
                else given - {None} <= set(script(name).fixed)
            ), name
            assert None in given or given == set(script(name).fixed), name


def test_a_missing_or_extra_argument_raises_before_it_is_sent():
    for wrong in ({}, {"limit": 1, "other": 2}):
        with pytest.raises(TypeError, match="prune takes"):
            script("prune").call("B", list, **wrong)
    with pytest.raises(TypeError, match="groups of"):
        script("complete").call("B", list, ["id", "token"])


# refusals


@pytest.mark.parametrize("name", NAMES)
def test_every_refusal_that_a_script_can_answer_is_in_its_header(name):
    code = reachable(name)
    refusals = set(re.findall(r"refusal\('([A-Z_]+)'", code))
    if name == "init":
        refusals -= {"NO_NAMESPACE", "TOO_MANY"}  # it is called only if there is a layout, without items
    if re.search(r"refused\(1, 1\)", code):
        refusals -= {"TOO_MANY"}  # one item is never too many
    assert refusals == set(script(name).codes)
    words = set(re.findall(r"(?<!refusal\()'([A-Z]+(?:_[A-Z]+)+|INVALID)\b", code))
    promised = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b|\bINVALID\b", " ".join(header_lines(name, "REPLY"))))
    assert words == promised


def test_refusals_and_exception_classes_correspond():
    codes = {code for name in NAMES for code in script(name).codes}
    replies = {
        word
        for name in NAMES
        for word in re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", " ".join(header_lines(name, "REPLY")))
    }
    assert (codes | replies) - WORDS == set(errors.REFUSALS) - {"OOM"}


def test_the_drawn_tree_of_errors_is_correct():
    """The tree at the top of errors.py names each class with its code."""
    drawn = dict(re.findall(r"^ +(\w+) +([A-Z_]{3,})(?:  .*)?$", errors.__doc__, re.MULTILINE))
    assert drawn == {cls.__name__: code for code, cls in errors.REFUSALS.items()}


# the keys


def test_the_straight_paths_have_the_numbers_of_the_libraries():
    """Their bounds, and what they write in full: a rank of priority 0, the usual tries, timeout and retention."""
    code = "\n".join(body(name) for name in STRAIGHT)
    constants = dict(
        re.findall(r"^local ([A-Z_]+) = '?(\d+)'?", "".join(map(body, (*LIBRARIES, "claim"))), re.MULTILINE)
    )
    unsaid = dict(
        re.findall(r"(\w+) = (\d+)", re.search(r"RULES = \{__index = \{(.*?)\n", body("lib/base"))[1])
    )
    rank = re.search(r"\(100 - priority\) \* (\d+)", body("lib/queue"))[1]
    wanted = {
        f"namespace[1] == '{constants['LAYOUT']}'", f"HLEN', counts) < {constants['COUNTS']}", f"+ n <= {constants['KEEP']}",
        f"kept <= {constants['KEEP']}", f"HLEN', known) <= {constants['KEEP_QUEUES']}", f"'~', '{constants['KEEP_EVENTS']}'",
        f"i, math.min(i + {int(constants['EVENT_IDS']) - 1}, ", f"soon = now + {constants['CAP']}", f"'PX', '{constants['MEMO']}'",
        f"{int(unsaid['timeout']) + int(constants['GRACE'])})", f"'tries_left', '{int(unsaid['tries']) - 1}'",
        f"now + {unsaid['retention']}", f"{100 * int(rank)} + seq",
    }  # fmt: skip
    assert {words for words in wanted if words not in code} == set()


def test_lua_and_python_spell_every_key_alike():
    spelled = set()
    for name in (*LIBRARIES, *NAMES):
        spelled |= set(re.findall(r"(?<!function )\bkey\(('[a-z:]+'(?: \.\.)?)", body(name)))
    ours = {
        keys.job("B", "X"), keys.queue("B", "X"), keys.queues("B"), keys.lock("B", "X", "Y"), keys.claim("B", "X"),
        keys.wake("B", "X"), keys.alarm("B"), keys.events("B"), keys.audit("B"), keys.ended("B"), keys.structure("B", "running"), keys.structure("B", "cancelled"),
        keys.backlog("B"), keys.structure("B", "scheduled"), keys.structure("B", "completed"), keys.workers("B"),
        keys.worker("B", "X"), keys.counts("B"), keys.schedules("B"), keys.schedule("B", "X"), keys.pools("B"),
        keys.pool("B", "X"), keys.crew("B", "X"), keys.summons("B", "X"), keys.owner("B", "X"), keys.catalogue("B"), keys.tasks("B"),
        keys.minutes("B"), keys.hours("B"), keys.tags("B"), keys.tag("B", "X"),
        keys.grouped("B", "X"), keys.waiting("B", "X", "Y"), keys.turns("B", "X"), keys.full("B", "X"), keys.tokens("B", "X"),
        keys.places("B", "X"), keys.group_places("B", "X", "Y"), keys.bucket("B", "X"), keys.flow("B", "X"),
        keys.groups("B", "X"), keys.workflow("B", "X"), keys.members("B", "X"), keys.upstream("B", "X"), keys.downstream("B", "X"),
        keys.broken("B", "X"), keys.unsettled("B"), keys.stream("B", "X"),
    }  # fmt: skip
    assert all(key.startswith("B:") for key in ours)
    assert {word.strip("'. ") for word in spelled} == {re.sub(r"X(\|Y)?$", "", key[2:]) for key in ours}


def test_the_structures_are_those_of_the_libraries():
    looked_at = re.search(r"local sizes = \{(.*?)\}", body("lib/base"))[1]
    assert tuple(re.findall(r"(\w+) = 0", looked_at)) == keys.STRUCTURES


def test_lua_and_python_have_the_same_bounds_of_times():
    classes = re.findall(r"took <= (\d+) and (\d+)", functions()["observe"])
    assert all(bound == name for bound, name in classes)
    assert tuple(int(bound) for bound, _ in classes) == statistics.BOUNDS
    for name in ("straight/claim", "straight/complete"):
        bounds = re.search(r"BOUNDS = \{(.*?)\}", body(name))[1]
        assert tuple(map(int, bounds.split(", "))) == statistics.BOUNDS


async def test_the_keys_used_in_a_jobs_life_are_spelled_by_python(desk):
    lease = await desk.running("a", rules="key=k", claim_id="C" * 22)
    await desk.submit("b", rules="delay=500")
    await desk.ask(worker="w")
    await desk.submit("c", "d", "e")
    await desk.watch("a")
    await desk.enlist("w")
    _, gone = await desk.claim(2)
    await desk.fail(gone, again=False)
    stored = {
        key
        for key in desk.everything()
        if not key.startswith(keys.claim(desk.base, "")) or key.endswith(":" + "C" * 22)
    }
    await desk.complete(lease)
    b = desk.base
    assert stored == {
        b, keys.job(b, "a"), keys.job(b, "b"), keys.job(b, "c"), keys.job(b, "d"), keys.job(b, "e"), keys.queue(b, "q"),
        keys.lock(b, "q", "k"), keys.claim(b, "C" * 22), keys.queues(b), keys.wake(b, "q"), keys.alarm(b), keys.events(b),
        keys.structure(b, "running"), keys.structure(b, "scheduled"), keys.structure(b, "dead"), keys.backlog(b),
        keys.workers(b), keys.worker(b, "w"), keys.counts(b),
    }  # fmt: skip


# the text


@pytest.mark.parametrize("name", NAMES)
def test_the_client_sends_the_concatenated_files(name):
    """`cat lib/base.lua … <verb>.lua | sha1sum`, with the libraries of the header, is the SHA that the client sends."""
    text = b"".join(
        (LUA / part).read_bytes() for part in [*header_lines(name, "LIBS")[0].split(), f"{name}.lua"]
    )
    assert script(name).sha == hashlib.sha1(text).hexdigest()
    assert script(name).text.encode() == text


@pytest.mark.parametrize("name", NAMES)
def test_a_script_names_the_libraries_that_it_needs_and_no_other(name):
    """The script, or another named library, calls each named library; every called library is named. The order is right."""
    named = script(name).libraries
    needed = [own for own in LIBRARIES if any(calls(part, own) for part in (*named, name) if part != own)]
    assert [library for library in named if not library.startswith("straight/")] == needed


@pytest.mark.skipif(
    not shutil.which("luacheck"), reason="luacheck is not installed (apt-get install lua-check)"
)
@pytest.mark.parametrize("name", NAMES)
def test_luacheck_finds_nothing(name):
    config = str(ROOT / ".luacheckrc")
    done = subprocess.run(
        ["luacheck", "--config", config, "--no-color", "-"],
        input=script(name).text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "word",
    ["cjson", "cmsgpack", "struct.", "bit.", "math.random", "os.", "io.", "#!", "KEYS[2]", "pcall", "_G"],
)
def test_scripts_use_only_functions_common_to_all_servers(word):
    assert [
        name for name in (*LIBRARIES, *NAMES) if re.search(rf"(?<![\w.]){re.escape(word)}", body(name))
    ] == []


def test_the_clock_is_read_once_and_keys_are_built_in_one_place():
    texts = {name: body(name) for name in (*LIBRARIES, *NAMES)}
    assert sum(text.count("'TIME'") for text in texts.values()) == 1
    assert [name for name, text in texts.items() if "redis." in text or "KEYS" in text] == ["lib/base"]


def test_no_script_creates_a_global():
    for name in (*LIBRARIES, *NAMES):
        assert re.findall(r"^(?!local\b)\w+ *=", source(name), re.MULTILINE) == []
        assert re.findall(r"^function ", source(name), re.MULTILINE) == []


def test_scripts_are_found_beside_the_package_and_read_once():
    assert script("claim") is script("claim")
    assert scripts.source("lib/base").startswith("-- lib/base:")
