"""The protocol's pages are complete and correct: their tables agree with the scripts, their transcripts with real servers."""

import asyncio
import contextlib
import hashlib
import re
import subprocess

import pytest
import redis

from sublet import errors, model
from sublet.devtools.conformance.rules import GROUPS, RULES
from sublet.operations import statistics
from sublet.protocol import keys, scripts
from sublet.protocol.reads import TOTALS
from sublet.protocol.scripts import LIBRARIES, NAMES, script
from tests.protocol.limit_snippets import SNIPPETS
from tests.protocol.test_contract import arguments, body, header_lines
from tests.support.paths import ROOT
from tests.support.transcripts import Replay, lineage, transcripts

FOLDER = ROOT / "docs" / "reference" / "protocol"
PAGES = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.md"))}
WORKER, REFERENCE, SCHEDULES, POOLS, WORKFLOWS = (
    PAGES[name] for name in ("worker", "reference", "schedules", "pools", "workflows")
)
PAGE = "\n".join((WORKER, REFERENCE, SCHEDULES, POOLS, WORKFLOWS))
PROMISES = (ROOT / "README.md").read_text().partition("## Promises")[2].partition("\n## ")[0]
ALL = transcripts(PAGE)
NUMBERS_OF_A_SUM = {"ready", "running", "rate", "run", "need", "wanted", "crew", "summoned", "owed"}
"""The names in the reply of summon."""
LUA = {name: body(name) for name in (*LIBRARIES, *NAMES)}
CODE = "\n".join(LUA.values())


def section(title, page=PAGE):
    """The text under a heading of the page, with its subheadings."""
    found = re.search(
        rf"^(#+) `?{re.escape(title)}`?\n(.*?)(?=^#{{1,3}} |\Z)", page, re.MULTILINE | re.DOTALL
    )
    assert found, f"there is no section {title!r}"
    return found[2]


def tables(text):
    """The tables of a text: (the words of the head, the rows), each a list of cells."""
    found = []
    for block in re.findall(r"^\|.*\|$(?:\n\|.*\|$)+", text, re.MULTILINE):
        head, _, *rows = [
            [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in block.splitlines()
        ]
        found.append((head, rows))
    return found


def table(text, *head):
    """The rows of the one table whose head begins with these words."""
    found = [rows for words, rows in tables(text) if words[: len(head)] == list(head)]
    assert len(found) == 1, f"{len(found)} tables begin with {head}"
    return found[0]


def words(cell):
    """The words of a cell in backquotes."""
    return re.findall(r"`([^`]+)`", cell)


def bullet(name, kind):
    """The text of a verb's bullet, such as **Refuses**."""
    found = re.search(rf"^- \*\*{kind}[,:]?\*\*:?(.*(?:\n  .*)*)", section(name), re.MULTILINE)
    return found[1] if found else ""


def first_words(rows):
    return [word for row in rows for word in words(row[0])]


def constants():
    """Every constant of the scripts that is a number: name → value."""
    found = {}
    for text in LUA.values():
        for names, values in re.findall(r"^local ([A-Z_]+(?:, [A-Z_]+)*) = ([\d', ]+)$", text, re.MULTILINE):
            found.update(zip(names.split(", "), values.replace("'", "").strip().split(", "), strict=True))
    return found


# the transcripts


def test_every_verb_has_a_transcript():
    assert [name for name in NAMES if name not in ALL] == []
    for name in NAMES:
        assert f"```transcript {name}\n" in section(name)
        assert any(f"EVALSHA ${name} 1 {{sublet:0}}" in step.line for step in ALL[name].steps)


@pytest.fixture
def replay(base, elapse):
    """Replays a transcript and its predecessors with two clients, which are closed at the end."""
    with contextlib.ExitStack() as ends:

        def play(name, clients):
            for client in clients:
                ends.callback(client.close)
            output = Replay(clients, base, elapse)
            for transcript in lineage(ALL, name):
                output.play(transcript)

        yield play


@pytest.mark.parametrize("name", ALL)
def test_a_transcript_agrees_with_a_real_server(place, raw, base, replay, name):
    """The stored jobs have no field that the page does not list."""
    replay(name, (place.raw(), place.raw()))
    seen = {field for key in raw.scan_iter(match=keys.job(base, "*")) for field in raw.hkeys(key)}
    assert {re.sub(r"(?<=^step:).*", "<name>", re.sub(r"\d+", "<n>", field)) for field in seen} <= set(
        first_words(table(section("A job as it is stored"), "field"))
    )


@pytest.mark.real_server
@pytest.mark.parametrize("name", NAMES)
def test_resp3_gives_the_same_replies(place, replay, name):
    replay(
        name,
        [redis.Redis.from_url(place.settings.redis_url, protocol=3, decode_responses=True) for _ in range(2)],
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_scripts_are_loaded_as_the_page_describes(name):
    (command,) = re.findall(r"^(cat .+ claim\.lua) \| redis-cli -x SCRIPT LOAD$", PAGE, re.MULTILINE)
    command = command.replace("claim", name)
    text = subprocess.run(
        command, shell=True, cwd=ROOT / "lua", capture_output=True, check=True, timeout=10
    ).stdout
    assert hashlib.sha1(text).hexdigest() == script(name).sha


# the verbs


def test_verbs_sections_and_scripts_correspond():
    sections = re.findall(r"^### `(\w+)`$", PAGE, re.MULTILINE)
    assert sorted(sections) == sorted(NAMES)
    others = re.search(r"^- Other verbs:(.*(?:\n  .*)*)", REFERENCE, re.MULTILINE)[1]
    described = re.findall(r"^### `(\w+)`$", REFERENCE, re.MULTILINE)
    assert sorted(re.findall(r"\[`(\w+)`\]\(#\1\)", others)) == sorted(described)


@pytest.mark.parametrize("name", NAMES)
def test_a_verbs_arguments_are_those_of_its_header(name):
    if not arguments(name):
        return
    takes = bullet(name, "Takes")
    shown = words(takes) if takes else first_words(table(section(name), "argument"))
    shown = [word for word in shown if word != "*"]
    assert [word.removesuffix(" …") for word in shown] == arguments(name)
    assert [word.removesuffix(" …") for word in shown if word.endswith(" …")] == list(script(name).repeated)


@pytest.mark.parametrize("name", NAMES)
def test_a_verb_refuses_with_the_codes_of_its_header(name):
    """The pages say once that every verb refuses NO_NAMESPACE (but init) and WRONG_LAYOUT."""
    shown = {word for word in words(bullet(name, "Refuses")) if re.fullmatch(r"[A-Z_]{4,}", word)}
    of_all = {"WRONG_LAYOUT"} | ({"NO_NAMESPACE"} if name != "init" else set())
    assert shown | of_all == set(script(name).codes)


@pytest.mark.parametrize("name", NAMES)
def test_the_replies_of_a_verb_are_those_of_its_header(name):
    output = " ".join(header_lines(name, "REPLY"))
    rows = [rows for head, rows in tables(section(name)) if head[0] == "item"]
    shown = {word for row in rows for word in first_words(row)}
    if not rows:
        replies = re.sub(r"\([^()]*\)", "", bullet(name, "Replies"))
        numbers = NUMBERS_OF_A_SUM if name == "summon" else set()
        shown = {word for word in words(replies) if not word.startswith("[")} - numbers
    assert shown == set(re.findall(r'"([^"]+)"', output.replace('""', "")))
    assert "**Replies**" in section(name)
    assert "**Again" in section(name)


# what is stored


def test_the_layout_is_the_one_of_the_scripts():
    assert f"**Protocol {constants()['LAYOUT']}.**" in WORKER
    assert ALL["init"].steps[-1].reply == [f'"{constants()["LAYOUT"]}"']


def test_every_state_is_in_the_table_and_in_the_drawing():
    life = section("A job as it is stored")
    assert first_words([row[:1] for row in table(life, "state")]) == [state.value for state in model.State]
    drawing = re.search(r"```\n(.*?)```", section("Words"), re.DOTALL)[1]
    assert [state for state in model.State if not re.search(rf"\b{state}\b", drawing)] == []
    for state, structure, _ in table(life, "state"):
        shown = (
            [":queue:<name>", ":grouped:<name>"] if words(state) == ["queued"] else [f":{words(state)[0]}"]
        )
        assert words(structure) == shown


def test_the_catalogue_lists_exactly_the_existing_keys():
    ours = {
        "base", keys.job("", "<id>"), keys.queue("", "<name>"), *(keys.structure("", name) for name in keys.STRUCTURES),
        keys.queues(""), keys.backlog(""), keys.lock("", "<queue>", "<key>"), keys.claim("", "<claim id>"),
        keys.wake("", "<queue>"), keys.wake("", "<pattern>"), keys.alarm(""), keys.events(""), keys.audit(""), keys.ended(""), keys.workers(""), keys.worker("", "<name>"),
        keys.counts(""), keys.schedules(""), keys.schedule("", "<name>"), keys.pools(""), keys.pool("", "<name>"),
        keys.crew("", "<pool>"), keys.summons("", "<pool>"), keys.owner("", "<owner>"), keys.catalogue(""), keys.tasks(""),
        keys.minutes(""), keys.hours(""), keys.tags(""), keys.tag("", "<tag>"),
        keys.grouped("", "<queue>"), keys.waiting("", "<queue>", "<group>"), keys.turns("", "<queue>"), keys.full("", "<queue>"),
        keys.tokens("", "<queue>"), keys.places("", "<queue>"), keys.group_places("", "<queue>", "<group>"), keys.bucket("", "<queue>"),
        keys.flow("", "<queue>"), keys.groups("", "<queue>"), keys.workflow("", "<id>"), keys.members("", "<id>"),
        keys.upstream("", "<id>"), keys.downstream("", "<id>"), keys.broken("", "<id>"), keys.unsettled(""), keys.stream("", "<id>"),
    }  # fmt: skip
    rows = table(section("Keys"), "key", "type")
    shown = [word.replace("\\|", "|") for word in first_words(rows)] + [
        row[0] for row in rows if row[0] == "base"
    ]
    assert sorted(shown) == sorted(ours)
    spelled = set(re.findall(r"(?<!function )\bkey\('([a-z]+)", CODE))
    assert {re.sub(r":?(\w+).*", r"\1", word) for word in shown} - {"base", *keys.STRUCTURES} == spelled - {
        *keys.STRUCTURES
    }


def test_the_page_lists_exactly_the_fields_of_the_metadata():
    written = set(re.findall(r"(?:'H(?:SET|GET)', |add\()base, '(\w+)'", CODE)) | set(
        re.findall(r"\bcount\('(\w+)'", CODE)
    )
    written |= {state for state in keys.STRUCTURES if state in TOTALS}  # `place` counts by the state's name
    shown = first_words(table(section("Keys"), "field"))
    assert sorted(shown) == sorted(written)
    assert set(TOTALS) <= set(shown)


def test_the_page_lists_exactly_the_existing_counters():
    text = section("What is counted")
    shown = {words(what)[0]: classes for what, classes, _ in table(text, "what", "class")}
    timed = set(re.findall(r"tally\([^()]*(?:\[i\])?, '(\w+)'", CODE))
    assert (
        {what for what, classes in shown.items() if classes == "ms"}
        == timed
        == {"wait", "completed", "failed"}
    )
    assert {what for what, classes in shown.items() if words(classes) == ["jobs"]} == {"dead", "cancelled"}
    classes = [int(word) for word in words(text.partition("A class of ms")[2].partition(", or")[0])]
    assert tuple(classes) == statistics.BOUNDS


def fields():
    """Every field of a job's hash that a script names."""
    named = "|".join((r"(?:job\.)?hash", r"key\('job:' \.\. [\w.]+\)"))
    found, code = (
        set(),
        "\n".join(text for name, text in LUA.items() if name not in ("schedule", "fire")),
    )  # they have another hash
    for first, rest in re.findall(
        rf"'H(?:M?GET|SET|DEL|STRLEN)', (?:{named}), '([a-z_]+):?'((?:[^()]|\([^()]*\))*)", code
    ):
        found |= {first, *re.findall(r"(?<!\.\. )'([a-z_]+):?'(?! \.\. '\w)", rest)}
    found |= {"spec", *re.findall(r"return 'spec', header, '(\w+)'", CODE)}
    ending = re.search(r"place\(job, state, score, ending\.code,(.*?)\n\s+job\.ended", CODE, re.DOTALL)[1]
    found |= set(re.findall(r"'([a-z_]+)'", ending))
    found |= set(
        re.findall(r"ipairs\(\{((?:'\w+'(?:, )?)+)\}\) do\s+if job\[", CODE)[0].replace("'", "").split(", ")
    )
    return found - set(model.State)


def test_the_page_lists_exactly_the_fields_of_a_job():
    shown = {
        word.partition(":<")[0] for word in first_words(table(section("A job as it is stored"), "field"))
    }
    assert shown == fields()


def test_the_page_lists_exactly_the_fields_of_a_worker():
    calls = re.findall(r"'H(?:MGET|GET|SET|SETNX)', (?:card|key\('worker:' \.\. worker\)), ([^()]*)\)", CODE)
    found = {name for words in calls for name in re.findall(r"'(\w+)'", words)}
    shown = set(first_words(table(section("The register"), "field")))
    assert (
        found == shown == {"life", "worker_id", "about", "enlisted_at", "drain", "pool", "owner", "summoned"}
    )


def test_the_page_lists_exactly_the_fields_of_a_schedule():
    code = LUA["schedule"] + LUA["fire"] + LUA["pick"]
    named = r"(?:hash|key\('schedule:' \.\. [\w.]+\))"
    calls = re.findall(rf"'H(?:MGET|GET|SET|SETNX|STRLEN)', {named}, ((?:[^()]|\([^()]*\))*)", code)
    found = {name for words in calls for name in re.findall(r"'(\w{2,})'", words)}
    found |= set(re.findall(r"'(\w+)'", re.search(r"ipairs\(\{('fired'.*?)\}\)", LUA["fire"])[1]))
    assert found == set(first_words(table(section("As it is stored", SCHEDULES), "field")))


def test_the_page_lists_exactly_the_fields_of_a_pool():
    code = LUA["summon"] + LUA["complain"] + LUA["enlist"]
    calls = re.findall(r"(?:'H(?:MGET|GET|SET)', |add\()(?:memory|key\('pool:' \.\. pool\)), ([^()]*)", code)
    found = {name for words in calls for name in re.findall(r"'(\w+)'", words)}
    found |= set(re.findall(r"'(\w+)'", re.search(r"averages = \{(.*?)\}", code, re.DOTALL)[1]))
    assert found == set(first_words(table(section("As it is stored", POOLS), "field")))


def test_the_page_lists_exactly_the_settings_of_a_pool_with_defaults():
    shown = {words(name)[0]: default for name, default, _ in table(section("pool"), "setting")}
    known = re.findall(r"(\w+) = true", re.search(r"NUMBERS = \{(.*?)\}", LUA["pool"])[1])
    assert set(shown) == {*known, "queues", "invoker"}
    for name, default in re.findall(r"number\('(\w+)', (\d+)\)", LUA["summon"]):
        assert shown[name] == default
    invokers = re.findall(r"(\w+) = true", re.search(r"INVOKERS = \{(.*?)\}", LUA["pool"])[1])
    (row,) = [row for row in table(section("pool"), "setting") if words(row[0]) == ["invoker"]]
    assert set(words(row[2])) == set(invokers)


def test_the_page_lists_exactly_the_rules_with_defaults():
    shapes = re.search(r"shapes = \{(.*?)\}", LUA["lib/rules"], re.DOTALL)[1]
    known = dict.fromkeys(re.findall(r"(\w+) = ", shapes), "")
    unsaid = re.search(r"RULES = \{__index = \{(.*?)\}\}", LUA["lib/base"], re.DOTALL)[1]
    known |= {name: value.strip("'") for name, value in re.findall(r"(\w+) = ([\w:']+)", unsaid)}
    shown = {
        words(rule)[0]: "".join(words(default)) for rule, _, default, _ in table(section("Rules"), "rule")
    }
    assert shown == known


def test_the_page_lists_exactly_the_settings():
    known = dict(
        re.findall(
            r"(\w+) = '(queue|both|\*)'", re.search(r"KNOWN = \{(.*?)\}", LUA["configure"], re.DOTALL)[1]
        )
    )
    shown = {
        words(name)[0]: of if of == "both" else "*" if words(of) else "queue"
        for name, of, _ in table(section("configure"), "setting")
    }
    assert shown == known
    stored = next(row for row in table(section("Keys"), "key", "type") if words(row[0]) == [":queues"])[2]
    assert set(re.findall(r"\[(\w+)=", stored)) == {*known, "paused"}
    assert set(re.findall(r"setting\([\w.]+, '(\w+)'\)", CODE)) <= {
        *known,
        "paused",
    }  # those of a pool are in another table


def test_the_codes_of_attempts_are_those_of_scripts_and_worker():
    rows = table(section("The story"), "code", "set by")
    shown = {
        who: [words(code)[0] for code, said_by, _ in rows if who in said_by]
        for who in ("the script", "the worker")
    }
    assert [
        code for code in shown["the script"] if f"'{code}'" not in CODE and f"'^{code}'" not in CODE
    ] == []
    endings = LUA["lib/lifecycle"] + LUA["fail"] + LUA["release"] + LUA["suspend"]
    ended = set(re.findall(r"(?:code = |code == |\bor )'(\w{4,})'", endings))
    ended |= set(re.findall(r" = '(\w+)'", re.search(r"CODES = \{(.*?)\}", LUA["release"])[1]))
    ended -= {"queued", "none", "cancelled", "abandoned"}  # the last one is recorded as released
    ended |= set(re.findall(r"lose_lease\(job, '\w+', '(\w+)'", CODE))
    ended |= set(re.findall(r"return '(\w+_\w+)'", LUA["lib/due"]))
    assert ended | {"completed"} == set(shown["the script"])
    ours = set(
        re.findall(
            r'Failure\(lease, "([a-z_]+)"',
            (ROOT / "jobs" / "sublet" / "execution" / "attempt.py").read_text(),
        )
    )
    assert set(shown["the worker"]) == ours


def test_the_codes_of_events_are_those_of_the_scripts():
    shown = {word for code, *_ in table(section("Events"), "code") for word in words(code)}
    moves = set(
        re.findall(r"(?:place\(.*|event\(\w+, [\w']+), '(\w+)'(?:\)|,\s+'ready_at'|,\s+unpack\(wanted)", CODE)
    )
    moves |= set(re.findall(r"next_seq\(1\)\), '(\w+)', as_spec", CODE))
    assert moves <= shown
    ends = {
        "lease_expired",
        "timed_out",
        "crashed",
        "released",
        "suspended",
        "steps_full",
        "not_called",
        "unknown_task",
    }
    assert shown - moves == ends
    assert first_words(table(section("Events"), "field")) == re.findall(
        r"'(\w+)', (?:table|state|code)", LUA["lib/base"]
    )


# numbers


def limits():
    """The rows of the table of limits: what, how much."""
    return dict(table(section("Limits"), "what"))


def test_every_limit_of_the_page_has_its_value_in_the_scripts():
    assert list(limits()) == list(SNIPPETS)
    for what, limit in limits().items():
        snippet = SNIPPETS[what]
        assert snippet in CODE, f"{what}: {snippet} is not in the scripts"
        numbers = [*re.findall(r"\d+", limit), "13" if limit == "14 digits" else "-"]
        assert set(numbers) & set(re.findall(r"\d+", snippet)), f"{what}: {limit} is not in {snippet}"


def test_every_named_number_of_the_scripts_is_among_the_limits():
    shown = {word for snippet in SNIPPETS.values() for word in re.findall(r"\b[A-Z_]{3,}\b", snippet)}
    assert set(constants()) <= shown
    for name, value in constants().items():
        found = [limits()[what] for what, snippet in SNIPPETS.items() if re.search(rf"\b{name}\b", snippet)]
        assert any(re.search(rf"\b{value}\b", limit) for limit in found), f"{name} = {value}"


def test_every_bound_on_a_calls_items_is_among_the_limits():
    bounds = set(
        re.findall(
            r"(?:refused|too_many)\([^()]*(?:\([^()]*\)[^()]*)?, \d+\)",
            "\n".join(LUA[name] for name in NAMES),
        )
    )
    assert bounds - {"refused(1, 1)", "refused(0, 0)"} <= set(SNIPPETS.values())


# refusals, rules, promises


def test_the_table_lists_exactly_the_existing_refusals():
    replies = {
        word
        for name in NAMES
        for word in re.findall(r'"([A-Z]+(?:_[A-Z]+)*)\b', " ".join(header_lines(name, "REPLY")))
    }
    known = {code for name in NAMES for code in script(name).codes} | replies | set(errors.REFUSALS)
    ours, servers = [rows for head, rows in tables(section("Refusals")) if head[0] == "code"]
    assert sorted(first_words(ours)) == sorted(known)
    (away,), (denied,) = [
        [words(row[0]) for row in servers if row[0].startswith(code)] for code in ("`LOADING`", "`NOAUTH`")
    ]
    assert (set(away), set(denied)) == ({*scripts._AWAY, *scripts._DEMOTED}, {*scripts._DENIED, "NOPERM"})
    assert "NOSCRIPT" in first_words(servers)


def test_the_page_lists_exactly_the_rules_of_the_conformance_run():
    for text, optional in ((section("Conformance", WORKER), False), (section("Optional groups"), True)):
        shown = [(words(name)[0], level) for name, level, _ in table(text, "rule")]
        assert shown == [(rule.name, rule.level) for rule in RULES if bool(rule.group) == optional]
    assert first_words(table(section("Optional groups"), "group")) == list(GROUPS)


def test_the_page_repeats_every_promise_of_the_readme():
    promised = re.findall(r"^\d\. (\*\*[^*]+\*\*)", PROMISES, re.MULTILINE)
    assert re.findall(r"^\d\. (\*\*[^*]+\*\*)", section("What is promised"), re.MULTILINE) == promised
    assert len(promised) == 6


def test_the_commands_required_of_a_redis_user_are_those_that_scripts_call():
    (output,) = re.findall(r"The commands:(.*?);", section("Servers"), re.DOTALL)
    assert words(output) == sorted(set(re.findall(r"\b(?:call|peek)\('([A-Z]+)'", CODE)))


# the page


@pytest.mark.real_server
async def test_a_reply_past_its_deadline_is_read_as_that_of_the_next_call(place):
    """Why a client must close the connection: the reply of a call that it gave up comes first."""
    where = redis.Redis.from_url(place.settings.redis_url).connection_pool.connection_kwargs
    if "path" in where:
        reader, writer = await asyncio.open_unix_connection(where["path"])
    else:
        reader, writer = await asyncio.open_connection(where["host"], where["port"])
    writer.write(b"BLPOP {no-such-list} 0.2\r\n")
    writer.write(b"PING\r\n")
    assert [await reader.readline(), await reader.readline()] == [b"*-1\r\n", b"+PONG\r\n"]
    writer.close()
    calls = section("Calls", WORKER)
    assert "MUST close\nthe connection" in calls
    assert {row[0] for row in table(calls, "library")} == {
        "ioredis", "go-redis", "redis-rs", "lettuce", "redis-py",
    }  # fmt: skip
    assert "At the end" in section("Waiting", WORKER)


def anchors(page):
    titles = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", PAGES)
def test_links_within_and_between_the_pages_have_targets(name):
    for page, target in re.findall(r"\]\((?:(\w+)\.md)?#([^)]+)\)", PAGES[name]):
        assert target in anchors(PAGES[page or name]), f"{page}#{target}"


def test_the_page_for_workers_is_short_and_comes_first():
    """A port of a worker begins there: it needs no other page but the rules of a job."""
    assert len(WORKER.encode()) <= 25 * 1024
    assert set(re.findall(r"^### `(\w+)`$", WORKER, re.MULTILINE)) == {
        "init", "submit", "claim", "heartbeat", "complete", "fail", "release",
    }  # fmt: skip


def test_the_code_that_decodes_a_claim_works(place, raw, base):
    """On the reply of a real claim: jobs with and without a checkpoint, with a large payload, and without a timeout."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", WORKER, re.MULTILINE | re.DOTALL)
    scope: dict = {}
    exec(code, scope)  # noqa: S102  a page of this project
    client = place.sync_client() or redis.Redis.from_url(place.settings.redis_url)

    def call(name, *words):
        return client.execute_command("EVAL", script(name).text, 1, base, *words)

    large = b'"' + b"x" * 2000 + b'"'
    call("init", 1)
    call(
        "submit",
        "0-a",
        "q",
        "t",
        "timeout=none",
        b'{"a":1}\n',
        "0-b",
        "q",
        "t",
        "timeout=1500 key=a=b",
        large,
    )
    token, _, due, jobs = scope["decode"](call("claim", "c" * 22, "w", 30000, 1, "q"))
    assert (jobs[0]["id"], jobs[0]["payload"], jobs[0]["timeout"], due) == ("0-a", b'{"a":1}\n', None, False)
    assert (jobs[0]["attempt"], jobs[0]["checkpoint"], jobs[0]["last_code"]) == (1, None, "")
    call("note", "0-a", token, b'{"page":\n7}', "")
    call("release", "0-a", token, 0, "released", "")
    _, ms, _, jobs = scope["decode"](call("claim", "d" * 22, "w", 30000, 5, "q"))
    assert [(job["id"], job["attempt"], job["task"], job["queue"]) for job in jobs] == [
        ("0-a", 2, "t", "q"), ("0-b", 1, "t", "q"),
    ]  # fmt: skip
    assert (jobs[0]["checkpoint"], jobs[0]["last_code"]) == (b'{"page":\n7}', "released")
    assert (jobs[1]["payload"], jobs[1]["timeout"]) == (large, 1.5)
    assert 0 <= ms <= 2000
    client.close()


def test_prose_and_transcripts_fit_a_screen():
    assert [line for line in PAGE.splitlines() if len(line) > 130 and not line.startswith("|")] == []
