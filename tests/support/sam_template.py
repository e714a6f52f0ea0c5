"""A template as AWS's own tools read it: a plugin, and the program that runs them.

They require an old release of pydantic, so they have an environment of their own, made once per run.
"""

import json
import subprocess
import sys
import venv
from pathlib import Path

TOOLS = ("cfn-lint>=1", "aws-sam-translator>=1.100")
REGION = "eu-central-1"


class Sam:
    """The tools, in their environment."""

    def __init__(self, python):
        self._python = python

    def _run(self, verb, file):
        words = [self._python, __file__, verb, file]
        return subprocess.run(
            words, env={"AWS_DEFAULT_REGION": REGION}, capture_output=True, text=True, timeout=90
        )

    def template(self, file):
        """A template as it is written."""
        return json.loads(self._run("load", file).stdout)

    def expanded(self, text, folder):
        """The CloudFormation template that SAM makes, after `sam package` has put the code into a bucket."""
        (folder / "template.yaml").write_text(text)
        done = self._run("expand", folder / "template.yaml")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def lint(self, file):
        """The exit code and the output of cfn-lint."""
        done = self._run("lint", file)
        return done.returncode, done.stdout + done.stderr


def pip():
    """A Python that has pip."""
    own = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode == 0
    return [sys.executable if own else "python3", "-m", "pip", "-q", "--disable-pip-version-check"]


def plain(value):
    """A template without source positions."""
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    return (
        [plain(one) for one in value]
        if isinstance(value, list)
        else str(value)
        if isinstance(value, str)
        else value
    )


def expand(file):
    from samtranslator.translator.transform import transform

    class NoPolicies:
        def load(self):
            return {}

    template = load(file)
    template["Globals"]["Function"]["CodeUri"] = "s3://bucket/code.zip"
    return transform(template, {}, NoPolicies())


def load(file):
    from cfnlint.decode import cfn_yaml

    return plain(cfn_yaml.load(file))


def main(verb, file):
    if verb == "lint":
        from cfnlint.runner.cli import main as lint

        sys.argv = ["cfn-lint", file]
        return lint()
    print(json.dumps(expand(file) if verb == "expand" else load(file)))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
else:
    import pytest

    @pytest.fixture(scope="session")
    def sam(tmp_path_factory):
        """AWS's own tools for templates."""
        folder = Path(tmp_path_factory.mktemp("sam")) / "venv"
        venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
        subprocess.run(
            [*pip(), "--python", folder / "bin" / "python", "install", *TOOLS], check=True, timeout=300
        )
        return Sam(folder / "bin" / "python")
