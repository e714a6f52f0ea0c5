"""Reads the templates and the pages of the platforms, to compare them with the code."""

import ast
import re
import shlex
from functools import cache
from pathlib import Path

import yaml

from sublet.cli import main
from sublet.cli.commands import COMMANDS
from sublet_functions.api.routes import ROUTES
from tests.support.pages import blocks
from tests.support.paths import ROOT

DEPLOY = ROOT / "deploy"
TARGETS = sorted(path.name for path in DEPLOY.iterdir() if path.is_dir())
PAGES = {
    "aws": ["aws-sam"],
    "google": ["cloud-run"],
    "knative": ["knative"],
    "kubernetes": ["kubernetes"],
    "systemd": ["systemd", "crontab"],
    "compose": ["compose"],
    "asgi": [],
}
"""The page of each platform, and the targets that it describes."""

OPERATORS = re.compile(r"[();<>|&]+")
OURS = re.compile(r"(?:^|(?<=[\s/`\"'(=]))sublet(?= +[^\s])", re.MULTILINE)
FLAGGED = re.compile(r"(?:^|\s)--?\w\S*\s+$")
"""Words before an option's value: `kubectl -n sublet get pods`."""
URL = re.compile(
    r"""(https?://[^\s/'"`<>)]+ | \$\{?\w*(?:URL|SOURCE|API|HOST|SUBLET)\w*\}? | \bURL)
        (/[^\s'"`?)<>,;…]*)""",
    re.VERBOSE,
)
FOREIGN = re.compile(
    r"https?://(?!127\.|localhost|\[?\$|\[?\{)[\w-]+(?:\.(?!svc\b)[\w-]+)*\.(?:io|com|org|dev|net)$"
)
"""Hosts of other parties; `$URL`, a bare name, or an example's host is ours."""
METHOD = re.compile(r"(?:-X|--request|--http-method|--method)[= ]?\"?([A-Z]+)")
POSTED = re.compile(r"\s(?:--json|--data\S*|-d)\b|--message-body")


def files_of(target):
    """A template's files."""
    found = (
        path for path in (DEPLOY / target).rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )
    return sorted(found)


class Loader(yaml.SafeLoader):
    """Reads YAML with any tag: `!Sub` and its kind are read as the value behind them."""


def _any(loader, tag, node):
    if isinstance(node, yaml.ScalarNode):
        return loader.construct_scalar(node)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_mapping(node, deep=True)


Loader.add_multi_constructor("!", _any)


def documents(text):
    """The documents of a YAML file."""
    return [one for one in yaml.load_all(text, Loader) if one is not None]


def within(value):
    """A value of YAML, and all values in it."""
    yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from within(one)


# ── our commands ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def words_of(line):
    """The words of a shell command, up to the next command; a variable is read as 1."""
    plain = re.sub(r"\$\([^)]*\)|\$\$?\{[^}]*\}|\$\$?\w+|%[A-Za-z]\b", "1", line)
    lexer = shlex.shlex(plain, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found = []
    try:
        for word in lexer:
            if OPERATORS.fullmatch(word):
                break
            found.append(word)
    except ValueError:  # a quotation that ends elsewhere: the words until then are the command
        pass
    return found


def spoken(text):
    """Our command lines in a text: (the words before, its words without `sublet`)."""
    text = text.replace("\\\n", " ")
    for found in OURS.finditer(text):
        line = text[found.end() :].partition("\n")[0]
        before = text[: found.start()].rpartition("\n")[2]
        closing = "`" if before.count("`") % 2 else ""
        yield before, words_of(line.partition(closing)[0] if closing else line)


def commands(path):
    """All our command lines in a file, without `sublet`."""
    text = path.read_text()
    if path.suffix in (".yaml", ".yml"):
        for value in (one for document in documents(text) for one in within(document)):
            yield from _of_yaml(value)
    for line in re.findall(r"^(?:CMD|ENTRYPOINT) (\[.*\])", text, re.MULTILINE):
        words = yaml.safe_load(line)
        if Path(words[0]).name == "sublet":
            yield words[1:]
    if path.suffix == ".md":
        for before, words in spoken(typed(text)):
            is_import = words[:1] == ["import"]  # `from sublet import App`
            if words and re.fullmatch(r"[a-z]+", words[0]) and not FLAGGED.search(before) and not is_import:
                yield words
    else:
        text = "\n".join(
            line for line in text.splitlines() if not line.lstrip().startswith("#") or "`" in line
        )
    for before, words in spoken(text):
        is_meant = re.search(r"(?:bin/|`|=|\$ )$", before) is not None
        if (
            words
            and not FLAGGED.search(before)
            and (words[0] in COMMANDS or (is_meant and re.fullmatch(r"[a-z]+", words[0])))
        ):
            yield words


def typed(page):
    """The commands that a page lists."""
    return "\n".join(text for kind in ("sh", "console") for _, text in blocks(kind, page))


def _of_yaml(value):
    if isinstance(value, dict):
        both = [word for key in ("command", "args") for word in _listed(value.get(key))]
        if both and (Path(both[0]).name == "sublet" or both[0] in COMMANDS):
            yield [str(word) for word in both[both[0] not in COMMANDS :]]
    if (
        isinstance(value, list)
        and value
        and isinstance(value[0], str)
        and Path(value[0]).name == "sublet"
        and len(value) > 1
    ):
        yield [str(word) for word in value[1:]]
    if isinstance(value, str):
        yield from (words for _, words in spoken(value) if words and words[0] in COMMANDS)


def _listed(value):
    return (
        value
        if isinstance(value, list)
        else shlex.split(value)
        if isinstance(value, str) and "\n" not in value
        else []
    )


def parse(words):
    """Parse a command line as the program does, and run nothing. Raises Invalid, or KeyError for an unknown
    command.
    """
    name, rest = main.split(words)
    if not COMMANDS[name].passes_arguments and "--help" not in rest:
        COMMANDS[name].read(rest)


# ── our routes, variables and functions ──────────────────────────────────────────────────────────────────────────────────


def routes(text):
    """The requests to our API in a text, also where it is mounted in another one: (the method if it is given,
    the path).
    """
    for prefix in re.findall(r'Mount\("(/\w+)"', text):
        text = text.replace(f"{prefix}/", "/")
    for line in re.sub(r"\$\([^)]*\)", "1", text.replace("\\\n", " ")).splitlines():
        for found in URL.finditer(line):
            if not FOREIGN.match(found[1]) and found[2] != "/":
                shown, is_in_body = METHOD.search(line), line[: found.start()].endswith('": "')
                method = (
                    None if is_in_body else shown[1] if shown else "POST" if POSTED.search(line) else None
                )
                yield method, found[2].rstrip(".:")


def probed(document):
    """The paths that a YAML document requests: probes, targets of events, routes of a gateway."""
    for value in (one for one in within(document) if isinstance(one, dict)):
        if isinstance(value.get("httpGet"), dict):
            yield "GET", value["httpGet"]["path"]
        if str(value.get("uri", "")).startswith("/"):
            yield "POST", value["uri"].partition("?")[0]
        if "Method" in value and "{" not in value.get("Path", "{"):
            yield value["Method"], value["Path"]


def is_route(method, path):
    """Whether the route table has this path."""
    parts = path.rstrip("/").split("/")
    for route in ROUTES:
        for shape in filter(None, (route.path, route.alias)):
            own = shape.split("/")
            same = len(own) == len(parts) and all(
                a == b or a[:1] == "{" for a, b in zip(own, parts, strict=True)
            )
            if same and method in (None, route.method, "ANY"):
                return True
    return False


@cache
def variables():
    """The environment variables that exist: those of the settings page, and those that the code names."""
    code = "".join(
        path.read_text() for folder in ("jobs", "functions") for path in (ROOT / folder).rglob("*.py")
    )
    return {*re.findall(r"\b(SUBLET_\w+)\b", code)}


def named_variables(text):
    """Our variables that a text names."""
    return set(re.findall(r"\bSUBLET_[A-Z_]*[A-Z]\b", text))


def named_objects(text):
    """Our modules that a text names: (module, name)."""
    return set(re.findall(r"\b(functions\.\w+)[.:]([a-z]\w*)", text)) | {
        (module, name.strip())
        for module, names in re.findall(r"^from (functions\.\w+) import ([\w, ]+)", text, re.MULTILINE)
        for name in names.partition(" as ")[0].split(",")
    }


def has_object(module, name):
    """Whether the module has this name."""
    path = ROOT / f"{module.replace('.', '/')}.py"
    if name == "py" or not path.is_file():
        return name == "py" and path.is_file()
    for node in ast.parse(path.read_text()).body:
        names = [
            getattr(node, "name", None),
            *(getattr(one, "id", None) for one in getattr(node, "targets", ())),
        ]
        names += (
            [node.target.id] if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else []
        )
        if name in names:
            return True
    return False


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────────

FILE = re.compile(
    r"(?<![\w$*{])((?:[\w@.~-]*/)*(?:[\w@-][\w@.-]*\.(?:yaml|yml|service|timer|target|path|txt|py|toml|conf|sh)|Dockerfile|crontab))(?![\w*(/-])"
)


def named_files(text):
    """The files that a text names, by their last part; an instance of a unit counts as its pattern."""
    return {re.sub(r"@\w+\.", "@.", Path(name).name) for name in FILE.findall(text)}


def made_in(page):
    """The files that a page creates: its named blocks, and the targets of its here-documents and redirections."""
    named = [
        name.split()[0]
        for kind in ("python", "yaml", "json", "toml", "ini")
        for name, _ in blocks(kind, page)
        if name
    ]
    return {Path(name).name for name in [*named, *re.findall(r">\s*([\w./-]+)", page)]}
