"""Kubernetes documents, checked against the schemas that npm packages publish: a plugin.

    def test_a_cluster_accepts_it(manifest_faults):
        assert manifest_faults(documents(path)) == []

(PYTEST_DONT_REWRITE: its functions are imported before its fixture is requested, and pytest would warn
about that.)
"""

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.npm import packages

PACKAGES = ("kubernetes-models", "@kubernetes-models/knative", "@kubernetes-models/keda")
SECONDS = 60

Document = dict[str, Any]
Check = Callable[[Sequence[Document]], list[str]]
"""Returns the faults of some documents. A kind without a schema is a fault."""


def documents(*paths: Path) -> list[Document]:
    """All documents of some YAML files, in their order."""
    return [one for path in paths for one in yaml.safe_load_all(path.read_text()) if one is not None]


def kind_of(documents: Sequence[Document], kind: str, name: str | None = None) -> Document:
    """The one document of a kind, or of a kind and name. Fails if there are none, or several."""
    (one,) = [d for d in documents if d["kind"] == kind and name in (None, d["metadata"]["name"])]
    return one


@pytest.fixture(scope="session")
def manifest_faults(tmp_path_factory: pytest.TempPathFactory) -> Check:
    """A check by the schemas in packages of npm."""
    folder = packages(tmp_path_factory.mktemp("schemas"), *PACKAGES)

    def check(documents: Sequence[Document]) -> list[str]:
        words = ["node", str(Path(__file__).with_suffix(".mjs")), str(folder)]
        done = subprocess.run(
            words, input=json.dumps(documents), capture_output=True, text=True, timeout=SECONDS
        )
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout))

    return check
