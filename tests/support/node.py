"""Modules of the dashboard, run in node without a browser."""

import json
import shutil
import subprocess
from typing import Any

import pytest

from tests.support.paths import ROOT

STATIC = ROOT / "functions" / "sublet_functions" / "dashboard" / "static"


def of_node(code: str) -> Any:
    """Return the JSON that a module prints. It imports the dashboard's files as `./NAME.js`."""
    if not shutil.which("node"):
        pytest.skip("no node on PATH")
    words = ["node", "--input-type=module", "-"]
    done = subprocess.run(words, cwd=STATIC, input=code, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
