"""The folder of the project in the files that `init` writes: templates name an example folder instead."""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from sublet.errors import Invalid

EXAMPLE = re.compile(r"(?:/srv|\$HOME|~)/sublet((?:/[\w.-]+)*)(?![\w-])")
"""Matches the example folder in a template; group 1 is the path of a file in it."""
UNQUOTABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff\"'`\\$%]|\s$")
UNSEEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")


def with_folder(text: str, folder: Path) -> str:
    """Return a template's text with the absolute path of `folder` in place of the example folder.

    Raises Invalid if the text names the example folder, and the path has a character of UNQUOTABLE ($, …).
    """
    if not EXAMPLE.search(text):
        return text
    path = os.path.abspath(folder)
    if UNQUOTABLE.search(path):
        raise Invalid(
            f"the folder {path!r} cannot be written into the files of this target: a path there must not have quotes, "
            "a backslash, $, %, a backtick, a control character, or a space at its end: rename the folder, or use another (--to)"
        )
    return "".join(EXAMPLE.sub(_replacement(line, path), line) for line in text.splitlines(keepends=True))


def _replacement(line: str, path: str) -> Callable[[re.Match[str]], str]:
    quote = '"' if line.startswith("ExecStart=") and re.search(r"\s", path) else ""
    return lambda found: f"{quote}{path}{found[1]}{quote}"


def unseen(folder: Path, texts: Iterable[str]) -> list[str]:
    """Return [a warning] if units of systemd among `texts` cannot see `folder`; else []."""
    paths = [Path(os.path.abspath(folder)), folder.resolve()]
    if not any("ProtectHome=yes" in text for text in texts):
        return []
    return [
        f"the units do not see {paths[0]}, which is below {top} (ProtectHome=yes, PrivateTmp=yes): run init again in a "
        "folder elsewhere, e.g. below /srv"
        for top in UNSEEN
        if any(path.is_relative_to(top) for path in paths)
    ][:1]
