"""Makes `lua/golden.json` from the transcripts of the protocol's pages: `python -m tests.support.golden --write`.

It has the words of each request and the value of each reply, as printed there. `sublet scripts --json --text` makes bytes
of them, with the present SHA of each script.
"""

import json
import re
import shlex
import sys

from tests.support.paths import ROOT
from tests.support.transcripts import Transcript, transcripts

FILE = ROOT / "lua" / "golden.json"
FOLDER = ROOT / "docs" / "reference" / "protocol"
PAGES = ("worker", "reference", "schedules", "pools", "workflows")
MOMENT = 1_767_225_600_000
"""The first moment (ms) in the file: the beginning of 2026."""
FENCES = {"token": 1, "next_token": 2}
LATER = re.compile(r"(\d+) s later")


def _value(text: str) -> object:
    """A line of redis-cli without its number."""
    if text.startswith("(integer) "):
        return {"integer": text[10:]}
    if text.startswith("(error) "):
        return {"error": text[8:]}
    if text == "OK":
        return {"status": text}
    if text in ("(nil)", "(empty array)"):
        return None if text == "(nil)" else []
    return text[1:-1].replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\")


def _reply(lines: list[str]) -> object:
    """What redis-cli printed: one value, or numbered lines, which may be lists themselves."""
    if not re.match(r" *\d+\) ", lines[0]):
        return _value(lines[0])
    width, items = len(re.match(r" *\d+\) ", lines[0])[0]), []
    for line in lines:
        if line[:width].strip():
            items.append([line[width:]])
        else:
            items[-1].append(line[width:])
    return [_reply(item) for item in items]


def _exchange(transcript: Transcript) -> dict[str, object]:
    steps, names, claim = [], {}, ""
    for who, line, reply in transcript.steps:
        step: dict[str, object] = {"on": "waiter"} if "waiter" in (who[:-1], *line.split()) else {}
        if later := LATER.fullmatch(line):
            steps.append({"later": int(later[1])})
            continue
        if who != "#":
            step["send"] = shlex.split(line)
            claim = step["send"][4] if step["send"][1] == "$claim" else claim
        text = "\n".join(reply)
        for name in re.findall(r"<(\w+)>", text):
            names.setdefault(name, claim)
        steps.append(step | {"reply": _reply(reply)})
    return {"name": transcript.name, "after": transcript.after or None, "values": names, "steps": steps}


def golden() -> list[dict[str, object]]:
    """All exchanges, with a text for each of the words that vary."""
    page = "\n".join((FOLDER / f"{name}.md").read_text() for name in PAGES)
    found = {name: _exchange(transcript) for name, transcript in transcripts(page).items()}
    for exchange in found.values():
        chain, known = exchange, {}
        while chain["after"]:
            chain = found[chain["after"]]
            known = chain["values"] | known
        values = exchange["values"]
        for name, claim in values.items():
            if name in FENCES:
                values[name] = f"{MOMENT * 1000 + FENCES[name]}.{claim}"
            elif name == "entry":
                values[name] = f"{MOMENT}-0"
            elif name in ("wait", "until_due"):
                values[name] = "1234"
            else:
                values[name] = str(MOMENT + sum(map(ord, name)))
        exchange["values"] = known | values
    return list(found.values())


def text() -> str:
    """The file: one line per step."""
    rows = []
    for exchange in golden():
        head = {name: value for name, value in exchange.items() if name != "steps"}
        steps = ",\n  ".join(json.dumps(step, ensure_ascii=False) for step in exchange["steps"])
        rows.append(json.dumps(head)[:-1] + f', "steps": [\n  {steps}\n]}}')
    return "[\n" + ",\n".join(rows) + "\n]\n"


if __name__ == "__main__":
    if "--write" in sys.argv:
        FILE.write_text(text())
    else:
        sys.exit("use --write")
