"""Rules for all templates of `deploy/` and their pages: short, without secrets, and consistent with the code."""

import re
import secrets
import tomllib
from itertools import pairwise

import pytest

from sublet.errors import Invalid
from tests.support import templates as read
from tests.support.pages import blocks

ROOT, DEPLOY, TARGETS, PAGES = read.ROOT, read.DEPLOY, read.TARGETS, read.PAGES
FILES = [path for target in TARGETS for path in read.files_of(target)]
TOP = [path for path in (ROOT / "compose.yaml", ROOT / "Dockerfile") if path.exists()]
DOCS = [path for path in (ROOT / "docs" / "platforms" / f"{name}.md" for name in PAGES) if path.exists()]
INDEX = ROOT / "docs" / "platforms" / "index.md"
PAGE_OF = {target: name for name, targets in PAGES.items() for target in targets}
EVERY = [*FILES, *TOP]


def named(path):
    return str(path.relative_to(ROOT))


def of_each(paths):
    return pytest.mark.parametrize("path", paths, ids=named)


def readme(target):
    return (DEPLOY / target / "README.md").read_text()


def test_every_target_has_a_page_and_every_page_exists():
    assert sorted(PAGE_OF) == TARGETS
    assert [path.stem for path in DOCS] == [*PAGES]


# ── each README ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("target", TARGETS)
def test_a_readme_has_at_most_ten_lines_a_title_and_commands(target):
    lines = [line for line in readme(target).splitlines() if line.strip()]
    assert len(lines) <= 10
    assert re.match(r"# \w", lines[0])
    assert len(lines[0]) <= 82
    assert blocks("sh", readme(target)), "the commands must be in a block ```sh"


@pytest.mark.parametrize("target", TARGETS)
def test_the_files_that_a_readme_names_are_in_the_template(target):
    """With the names that `sublet init` gives them."""
    there = {path.name for path in read.files_of(target)} | {"tasks.py", f"{target}.md"}
    assert not read.named_files(readme(target)) - there - read.made_in(readme(target))


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_is_in_both_tables_and_has_a_page(target):
    page = f"{PAGE_OF[target]}.md"
    assert (ROOT / "docs" / "platforms" / page).is_file()
    assert re.search(rf"^\|[^\n]*`{target}`[^\n]*\]\({page}", INDEX.read_text(), re.MULTILINE)
    assert re.search(
        rf"^\|[^\n]*`{target}`[^\n]*\]\(docs/platforms/{page}", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    assert f"`docs/platforms/{page}` in Sublet's repository" in readme(target), (
        "a README names its page, which the wheel does not contain"
    )


@pytest.mark.parametrize(
    "target", [target for target in TARGETS if ROOT / "docs" / "platforms" / f"{PAGE_OF[target]}.md" in DOCS]
)
def test_a_page_shows_the_init_command_of_its_template(target):
    assert f"sublet init {target}" in (ROOT / "docs" / "platforms" / f"{PAGE_OF[target]}.md").read_text()


# ── each template ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("target", TARGETS)
def test_a_template_has_a_redis_a_tick_and_workers(target):
    text = "".join(path.read_text() for path in read.files_of(target))
    assert "SUBLET_REDIS_URL" in text
    assert "tasks:app" in text
    assert re.search(r"\btick\b", text)
    assert re.search(r"\bwork", text)


@of_each(EVERY)
def test_yaml_json_and_toml_files_can_be_parsed(path):
    if path.suffix in (".yaml", ".yml", ".json"):
        assert read.documents(path.read_text())
    elif path.suffix == ".toml":
        tomllib.loads(path.read_text())
    assert path.read_text().endswith("\n")
    assert "\t" not in path.read_text() or path.name == "Makefile"


@of_each([path for path in EVERY if path.name == "Dockerfile"])
def test_an_image_contains_the_whole_project(path):
    """`sublet init --app shop.jobs:app` uses another file than tasks.py: none is copied by name. Secrets
    are excluded.
    """
    assert not re.search(r"^COPY .*tasks", path.read_text(), re.MULTILINE)
    left_out = {line.removeprefix("**/") for line in (path.parent / ".dockerignore").read_text().splitlines()}
    assert "*" in left_out or {".env", ".git"} <= left_out


@of_each([*EVERY, *DOCS, INDEX])
def test_every_sublet_command_can_be_parsed(path):
    for words in read.commands(path):
        try:
            read.parse(words)
        except (Invalid, KeyError) as error:
            raise AssertionError(f"sublet {' '.join(words)}: {error}") from None


@of_each([*EVERY, *DOCS, INDEX])
def test_every_variable_is_used_by_the_code(path):
    assert not read.named_variables(path.read_text()) - read.variables()


@of_each([*EVERY, *DOCS, INDEX])
def test_every_named_function_exists(path):
    assert not [pair for pair in read.named_objects(path.read_text()) if not read.has_object(*pair)]


@of_each([*EVERY, *DOCS, INDEX])
def test_every_request_is_an_existing_route(path):
    text = path.read_text()
    asked = [*read.routes(read.typed(text) if path.suffix == ".md" else text)]
    if path.suffix in (".yaml", ".yml"):
        asked += [found for document in read.documents(text) for found in read.probed(document)]
    assert not [found for found in asked if not read.is_route(*found)]


# ── secrets ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

KINDS = (
    re.compile(r"whsec_[A-Za-z0-9+/]{8,}"),
    re.compile(r"://[^/\s:@'\"]*:(?![A-Z_]+@|[$<{%…])[^@\s/'\"]+@"),
    re.compile(r"\b\w+:(?:submit|work|read|tick|admin)(?:,\w+)*:(?![A-Z_]+\b|[$<{%…])\S{8,}"),
    re.compile(
        r"(?i)\b(?:password|secret|token)\w*[\"']?\s*[:=]\s*[\"']?(?![\w/.-]*(?:secret|token|file)|[A-Z_]+\b)(?=\w{8,})\w*\d\w*"
    ),
)
"""Signing secrets, passwords in URLs, tokens, and values named secret."""


def is_random(word):
    """Do letters, capitals and digits alternate as often as in random text? (WordsThatAreWrittenLikeThis do
    not.)
    """
    word = re.sub(r"[A-Z](?=[a-z]{2})", "x", word)
    kinds = ["d" if c.isdigit() else "u" if c.isupper() else "l" for c in word if c.isalnum()]
    changes = sum(a != b for a, b in pairwise(kinds))
    return len(kinds) >= 20 and changes > 0.3 * len(kinds)


def leaks(text):
    """Strings in a text that look like secrets."""
    return [found[0] for kind in KINDS for found in kind.finditer(text)] + [
        word
        for word in re.findall(r"[\w+/=-]{20,}", text)
        if any(is_random(part) for part in re.split(r"[/_=-]", word))
    ]


@of_each([*EVERY, *DOCS, INDEX])
def test_no_file_contains_a_secret(path):
    assert not leaks(path.read_text())


@pytest.mark.parametrize(
    "secret",
    [
        "SUBLET_SIGNING_SECRETS=whsec_" + "c2VjcmV0c2VjcmV0",
        "redis://default:hunter2@redis.example:6379",
        "SUBLET_TOKENS: me:submit,read:" + "correcthorse",
        "password: " + "correct4horse",
    ],
)
def test_a_secret_is_found(secret):
    assert leaks(secret)


def test_random_words_are_found():
    """Most of them: a random word may look like a normal one, and a test must not fail by chance."""
    for make in (secrets.token_hex, secrets.token_urlsafe):
        assert sum(bool(leaks(f"key: {make(32)}")) for _ in range(50)) >= 30


@pytest.mark.parametrize(
    "text",
    [
        "redis://:$PASSWORD@redis:6379 rediss://USER:PASSWORD@HOST:6379/0 ${SUBLET_REDIS_URL}",
        "SUBLET_TOKENS=me:admin:$(openssl rand -hex 24) ci:submit,read:SECRET SUBLET_SIGNING_SECRETS=whsec_…",
        "terminationGracePeriodSeconds: 30 MaximumEventAgeInSeconds AWS::Serverless-2016-10-31",
        "arn:aws:secretsmanager:region:account:secret:name",
        "secretKeyRef: {name: sublet, key: redis-url}",
    ],
)
def test_other_values_are_not_found(text):
    assert leaks(text) == []


# ── each page ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@of_each(DOCS)
def test_the_files_named_by_commands_of_a_page_exist(path):
    page = path.read_text()
    there = {one.name for target in PAGES[path.stem] for one in read.files_of(target)}
    there |= {
        "tasks.py",
        "requirements.txt",
        *(f"{target}.md" for target in PAGES[path.stem]),
    } | read.made_in(page)
    lacking = read.named_files(read.typed(page)) - there
    assert not [name for name in lacking if not [*ROOT.glob(name), *ROOT.glob(f"examples/{name}")]]


@of_each([*DOCS, INDEX])
def test_a_page_contains_the_essential_facts(path):
    page = path.read_text()
    everywhere = ("SUBLET_REDIS_URL", "SUBLET_TOKENS", "noeviction") if path == INDEX else ()
    own = () if path == INDEX else ("maxclients",)  # the index has its limits on a separate page
    for word in ("tick", "limits", "documented", *own, *everywhere):
        assert word.lower() in page.lower(), word
