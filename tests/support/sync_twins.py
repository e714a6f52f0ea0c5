"""Generate the sync twins of async modules: `.venv/bin/python -m tests.support.sync_twins --write`.

A twin is the text of its description without `async` and `await`, with some other names and one other phrase.
"""

import re
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

FOLDER = ROOT / "jobs" / "sublet" / "client"
TWINS = {name: f"sync_{name}" for name in ("client.py", "handle.py", "schedules.py", "workflow.py")}
"""Each description, and the file that is generated from it."""
HEAD = "# Generated from {} by `.venv/bin/python -m tests.support.sync_twins --write`: do not edit.\n"
CHANGES = {
    r"\b(async|await) ": "",
    r"\b__a(enter|exit)__\b": r"__\1__",
    r"\baclos(e|ing)\b": r"clos\1",
    r"\bAsync(Generator|Iterator)\b": r"\1",
    r"\b(Client|Handle|Schedules|Store|Summoner|Workflow)\b(?! [a-z])": r"Sync\1",
    r"\bsublet\.(client|scaling|store)\.(client|handle|schedules|store|summoner|workflow)\b": r"sublet.\1.sync_\2",
    r"\btask\.handle\(": "task.handle_sync(",
    r"\bfor one event loop\b": "without an event loop; threads may share it",
}
"""Each pattern, and the text of a twin instead. Before a small letter, `Store` and `Handle` are verbs."""


def twin(name: str) -> str:
    """The text of the twin of a description."""
    text = (FOLDER / name).read_text("utf-8")
    for pattern, replacement in CHANGES.items():
        text = re.sub(pattern, replacement, text)
    return formatted(HEAD.format(name) + text, FOLDER / TWINS[name])


def formatted(text: str, path: Path) -> str:
    """The text with its imports in order, in the format of the project."""
    for command in (["check", "--select", "I", "--fix", "--quiet"], ["format"]):
        line = [sys.executable, "-m", "ruff", *command, "--no-cache", "--stdin-filename", str(path), "-"]
        text = subprocess.run(line, cwd=ROOT, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main() -> None:
    """Print the twins, or write their files."""
    for description, name in TWINS.items():
        text = twin(description)
        if "--write" in sys.argv:
            (FOLDER / name).write_text(text, "utf-8")
        else:
            print(text)


if __name__ == "__main__":
    main()
