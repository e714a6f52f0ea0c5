"""The next steps that `sublet init TARGET` prints: they can be pasted, and they use the user's own app."""

import json
import os
import re
import subprocess
import sys
import zipfile

import pytest

from sublet.cli import main
from sublet.cli.develop import init_steps
from tests.support.paths import ROOT

pytest_plugins = ["tests.support.empty_project"]
pytestmark = pytest.mark.usefixtures("project")
TARGETS = sorted(readme.parent.name for readme in (ROOT / "deploy").glob("*/README.md"))
APP = """from sublet import App

queue = App()


@queue.task(queue="post")
async def mail(to: str, times: int = 1) -> None: ...
"""


@pytest.fixture
def steps_of(capsys):
    """The preparations and the commands that `sublet init …` prints."""

    def call(*words):
        assert main.run(["init", *words, "--json"]) == 0
        output = json.loads(capsys.readouterr().out)
        return output["first"], output["next"]

    return call


@pytest.mark.parametrize("target", TARGETS)
def test_the_example_job_uses_a_task_of_the_users_app(target, steps_of, project):
    hello = sum("hello" in step for step in steps_of(target, "--to", "new")[1])
    (project / "shop.py").write_text(APP)
    _, steps = steps_of(target, "--app", "shop:queue")
    assert not any("hello'" in step or "hello " in step or '"task": "hello"' in step for step in steps)
    tried = [step for step in steps if "mail" in step]
    assert len(tried) == hello
    for step in tried:
        assert re.search(
            r"""mail '{"to": "hello"}' --queue post|"task": "mail", "queue": "post", "payload": {"to": "hello"}""",
            step,
        )
    assert not any('["default"]' in step for step in steps)


@pytest.mark.parametrize("text", [None, "raise SystemExit\n", "from sublet import App\n\nqueue = App()\n"])
def test_without_a_known_task_the_example_job_has_placeholders(text, steps_of, project):
    if text:
        (project / "shop.py").write_text(text)
    _, steps = steps_of("compose", "--app", "shop:queue")
    assert any("""submit YOUR_TASK '{"YOUR": "ARGUMENTS"}' --wait""" in step for step in steps)


@pytest.mark.parametrize("target", TARGETS)
def test_a_repeated_init_prints_the_same_steps(target, steps_of):
    assert steps_of(target) == steps_of(target)


@pytest.mark.parametrize(("to", "first"), [(".", None), ("shop", "cd shop"), ("a b/c", "cd 'a b/c'")])
def test_the_steps_begin_with_cd_if_needed(to, first, steps_of, project):
    _, steps = steps_of("crontab", "--to", to)
    assert [step for step in steps if step.startswith("cd ")] == ([first] if first else [])
    assert first is None or steps[0] == first
    assert steps_of("crontab", "--to", str(project))[1][0] != f"cd {project}"


def test_a_command_of_several_lines_is_kept():
    readme = "# x\n\n```sh\ntrue\nsublet \\\n  work\n```\n\n```yaml\na: b\n```\n\n```console\n$ ls\n```\n"
    assert init_steps.commands(readme) == ["true", "sublet \\\n  work", "ls"]


def test_before_a_release_the_requirements_name_a_wheel(steps_of, project):
    """The printed line is run; then the commands of the Dockerfile run without an index."""
    first, steps = steps_of("compose")
    assert [line for line in first if "until a release is published" in line]
    build, _, named = steps[0].partition(" && ")
    assert build == f"pip wheel --no-deps -w . {ROOT}"
    subprocess.run(named, shell=True, cwd=project, check=True)
    line = (project / "requirements.txt").read_text().strip()
    made = re.fullmatch(r"\./(sublet-([\d.]+)-py3-none-any\.whl)\[http\]", line)
    assert made, line
    write_wheel(project / made[1], made[2])
    has_pip = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode == 0
    pip = f"{sys.executable if has_pip else 'python3'} -m pip -q "
    for words in re.findall(
        r"^RUN (?:--mount=\S+ )?(.*)$", (project / "Dockerfile").read_text(), re.MULTILINE
    ):
        command = words.replace("/opt/sublet", "opt").replace("pip ", pip, 1)
        if words.startswith("pip "):
            subprocess.run(
                command,
                shell=True,
                cwd=project,
                check=True,
                timeout=60,
                env=os.environ | {"PIP_NO_INDEX": "1"},
            )
        else:
            subprocess.run(
                [sys.executable, *words.replace("/opt/sublet", "opt").split()[1:]],
                cwd=project,
                check=True,
                timeout=60,
            )
    assert [*(project / "opt").glob(f"lib/*/site-packages/sublet-{made[2]}.dist-info")]
    first, steps = steps_of("compose")
    assert not [line for line in [*first, *steps] if "wheel" in line or "release" in line], (
        "no step about the wheel remains"
    )


def write_wheel(path, version):
    """An empty wheel with this name and the extra `http`."""
    info = f"sublet-{version}.dist-info"
    texts = {
        "METADATA": f"Metadata-Version: 2.1\nName: sublet\nVersion: {version}\nProvides-Extra: http\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "".join(f"{info}/{name},,\n" for name in ("METADATA", "WHEEL", "RECORD")),
    }
    with zipfile.ZipFile(path, "w") as file:
        for name, text in texts.items():
            file.writestr(f"{info}/{name}", text)


def test_existing_requirements_get_a_hint_about_the_wheel(steps_of, project):
    (project / "requirements.txt").write_text("sublet[http]\nrequests\n")
    first, steps = steps_of("compose")
    (hint,) = first
    assert re.search(
        r"has to name the package that the first command below builds: \./sublet-[\d.]+-py3-none-any\.whl\[http\]$",
        hint,
    )
    assert steps[0] == f"pip wheel --no-deps -w . {ROOT}"


@pytest.mark.parametrize(
    "name", ["sublet.py", "sublet_functions.py", "sublet/__init__.py", "sublet_functions/mine.py"]
)
def test_modules_with_the_names_of_our_packages_cause_a_warning(name, steps_of, project):
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_text("")
    (hint,) = [line for line in steps_of("compose")[0] if line.startswith("rename ")]
    package = re.match(r"\w+", name)[0]
    assert re.fullmatch(rf"rename {package}(\.py)?: Sublet's package has the same name, and .*", hint)


def test_an_app_in_a_module_with_our_name_causes_a_warning(steps_of):
    assert any(
        line.startswith("rename sublet_functions:")
        for line in steps_of("compose", "--app", "sublet_functions.mine:app")[0]
    )


def test_folders_without_python_cause_no_warning(steps_of, project):
    (project / "sublet").mkdir()
    (project / "sublet" / "main.js").write_text("")
    assert not [line for line in steps_of("compose")[0] if line.startswith("rename ")]
    assert not init_steps.hidden(ROOT, "tasks"), "the checkout's own packages"
