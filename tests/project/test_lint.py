"""The type checker, the linter and the formatter find nothing in the checkout."""

import subprocess
import sys

import pytest

from tests.support.paths import ROOT

CHECKS = {"types": ["mypy"], "lint": ["ruff", "check", "."], "format": ["ruff", "format", "--check", "."]}


@pytest.mark.parametrize("words", CHECKS.values(), ids=CHECKS)
def test_the_code_is_clean(words):
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
