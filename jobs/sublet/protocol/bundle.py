"""All scripts in one document, for clients in other languages, with recorded requests and replies to test them."""

import json
import re
from collections.abc import Callable
from typing import Any

from sublet.protocol.scripts import NAMES, script
from sublet.source_tree import data_folder

KINDS = {"error": "-", "integer": ":", "status": "+"}
"""The first byte, in Redis's protocol RESP2, of replies that are not strings or lists."""


def bundle() -> dict[str, Any]:
    """Return the document: `layout`, `verbs` (each name's script and its SHA-1) and `golden` (requests and
    replies as bytes of RESP2, written as text).
    """
    layout = re.findall(r"^local LAYOUT = '(\d+)'", script("init").text, re.MULTILINE)[0]
    stored = json.loads((data_folder("lua") / "golden.json").read_text("utf-8"))
    return {
        "layout": int(layout),
        "verbs": {name: {"sha": script(name).sha, "text": script(name).text} for name in NAMES},
        "golden": [exchange | {"steps": _steps(exchange)} for exchange in stored],
    }


def _steps(exchange: dict[str, Any]) -> list[dict[str, Any]]:
    def filled(text: str) -> str:
        return re.sub(r"<(\w+)>", lambda found: exchange["values"].get(found[1], found[0]), text)

    steps = []
    for step in exchange["steps"]:
        step = dict(step)
        if "send" in step:
            step["send"] = _encoded([_sha(filled(word)) for word in step["send"]], filled)
        if "reply" in step:
            step["reply"] = _encoded(step["reply"], filled)
        steps.append(step)
    return steps


def _sha(word: str) -> str:
    return script(word[1:]).sha if word[:1] == "$" and word[1:] in NAMES else word


def _encoded(value: Any, filled: Callable[[str], str]) -> str:
    if value is None:
        return "$-1\r\n"
    if isinstance(value, list):
        return f"*{len(value)}\r\n" + "".join(_encoded(item, filled) for item in value)
    if isinstance(value, dict):
        ((kind, text),) = value.items()
        return f"{KINDS[kind]}{filled(text)}\r\n"
    text = filled(value)
    return f"${len(text.encode())}\r\n{text}\r\n"
