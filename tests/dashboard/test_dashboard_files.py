"""The dashboard's files: small, complete, and with nothing that its policy forbids."""

import gzip
import json
import re
import subprocess

from sublet_functions.dashboard.files import PAGE, static_files
from tests.support.node import STATIC, of_node
from tests.support.npm import packages

BYTES = 80_000
"""Most bytes of all files, compressed."""
LINES = 400
MODULES = {name: file.body.decode() for name, file in static_files().items() if name.endswith(".js")}
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|setHTML|createContextualFragment|DOMParser|document\.write|\beval\(|new Function|setAttribute\(\"style|localStorage"
)
COMPILER = {
    "checkJs": True,
    "allowJs": True,
    "noEmit": True,
    "strict": True,
    "noUncheckedIndexedAccess": True,
    "noUnusedLocals": True,
    "noUnusedParameters": True,
    "target": "es2023",
    "module": "esnext",
    "moduleResolution": "bundler",
    "lib": ["es2023", "dom", "dom.iterable"],
    "types": [],
}


def test_all_files_together_are_small():
    size = sum(len(gzip.compress(file.body)) for file in static_files().values())
    assert size <= BYTES, f"{size:,} bytes, compressed"


def test_modules_are_served_without_descriptions_and_otherwise_as_they_are():
    for name, served in MODULES.items():
        stored = (STATIC / name).read_text()
        assert "/**" not in served
        assert re.sub(r"/\*\*.*?\*/|\s", "", stored, flags=re.DOTALL) == re.sub(r"\s", "", served), name


def test_files_are_short():
    lengths = {path.name: len(path.read_bytes().splitlines()) for path in STATIC.iterdir()}
    assert {name: n for name, n in lengths.items() if n > LINES} == {}


def test_every_module_is_imported_and_exists():
    imported = {name for text in MODULES.values() for name in re.findall(r'from "\./([a-z-]+\.js)"', text)}
    assert imported | {"main.js"} == set(MODULES)


def test_no_module_writes_markup_or_runs_text():
    assert {name: found for name, text in MODULES.items() if (found := FORBIDDEN.findall(text))} == {}


def test_the_page_has_nothing_inline_and_nothing_from_elsewhere():
    page = static_files()[PAGE].body.decode()
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]*\ssrc=)", page)
    everything = "\n".join(file.body.decode() for file in static_files().values())
    assert set(re.findall(r"https?://[\w.]+", everything)) <= {"http://www.w3.org"}


def run(folder, program, *words):
    """Run a program of an npm package."""
    words = ["node", folder / program, *words]
    return subprocess.run(words, cwd=STATIC, capture_output=True, text=True, timeout=120)


def test_the_modules_have_correct_types(tmp_path):
    installed = packages(tmp_path, "typescript@5")
    (tmp_path / "tsconfig.json").write_text(
        json.dumps({"compilerOptions": COMPILER, "include": [str(STATIC / "*.js")]})
    )
    done = run(installed, "typescript/bin/tsc", "-p", str(tmp_path))
    assert done.returncode == 0, done.stdout


def test_the_linter_finds_nothing_in_the_modules(tmp_path):
    done = run(packages(tmp_path, "oxlint@1"), "oxlint/bin/oxlint", "--deny-warnings", ".")
    assert done.returncode == 0, done.stdout


def test_durations_sizes_and_fingerprints_are_written_for_people():
    code = """
    import { bytes, coarse, duration, fingerprint, visible } from "./format.js";
    console.log(JSON.stringify({
      durations: [0, 0.04, 3.21, 59, 61, 7500, 90000].map(duration),
      coarse: [0.4, 59, 61, 7500, 200000].map(coarse),
      sizes: [12, 2048, 300000, 5e6].map(bytes),
      same: [["order 17 of 'ada'", "order 9 of 'bob'"], ["at 0x7f3a", "at 0x11"], ["id deadbeef01", "id 0123456789ab"]]
        .map(([a, b]) => fingerprint(a) === fingerprint(b)),
      other: fingerprint("no such file") === fingerprint("no such host"),
      visible: visible("a\\u202eb\\u001b[31m\\tc\\n\\u0000 ✓ é 👩‍💻"),
    }));
    """
    assert of_node(code) == {
        "durations": ["0 ms", "40 ms", "3.2 s", "59 s", "1 min 1 s", "2 h 5 min", "1 d 1 h"],
        "coarse": ["0 s", "59 s", "1 min", "2 h", "2 d"],
        "sizes": ["12 B", "2.0 KiB", "293 KiB", "4.8 MiB"],
        "same": [True, True, True],
        "other": False,
        "visible": "a\\u202eb\\u001b[31m\tc\n\\u0000 ✓ é 👩‍💻",
    }
