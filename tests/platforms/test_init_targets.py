"""`sublet init TARGET` writes all files of a platform into a project, or none, and replaces no existing file."""

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from sublet.cli.commands import COMMANDS
from sublet.cli.develop import init
from sublet.errors import JobsError
from tests.support.pages import blocks, check, command_on_path, run, steps
from tests.support.paths import ROOT

pytest_plugins = ["tests.support.empty_project"]
pytestmark = pytest.mark.usefixtures("project")
DEPLOY = ROOT / "deploy"
TARGETS = sorted(readme.parent.name for readme in DEPLOY.glob("*/README.md"))
APPLESS = {name: value for name, value in os.environ.items() if not name.startswith("SUBLET_")}
DEEP = "shop/work/jobs.py"


def templates(target, folder="/srv/sublet"):
    """A template's files as they are written into `folder`."""
    found = (path.relative_to(DEPLOY / target) for path in (DEPLOY / target).rglob("*") if path.is_file())
    return {
        f"{target}.md" if str(name) == "README.md" else str(name): re.sub(
            r"(/srv|\$HOME|~)/sublet\b", str(folder), (DEPLOY / target / name).read_text()
        )
        for name in found
        if "__pycache__" not in name.parts
    }


def tree(folder):
    """The text of each file in a folder, without Python's caches."""
    return {
        str(path.relative_to(folder)): path.read_text() if path.is_file() and not path.is_symlink() else None
        for path in folder.rglob("*")
        if (not path.is_dir() or path.is_symlink()) and "__pycache__" not in path.parts
    }


# ── the list ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_a_target_every_target_is_listed_with_its_title(ask):
    code, output, _ = ask()
    assert code == 0
    for target in TARGETS:
        title = (DEPLOY / target / "README.md").read_text().splitlines()[0].lstrip("# ")
        assert re.search(rf"^{target} +{re.escape(title)}$", output, re.MULTILINE), target
    code, output, _ = ask("--json")
    assert [one["target"] for one in json.loads(output)] == TARGETS


def test_the_help_fits_a_small_terminal_and_names_every_flag(ask):
    code, output, _ = ask("--help")
    assert code == 0
    assert len(output.splitlines()) <= 24
    assert max(map(len, output.splitlines())) <= 80
    flags = {flag for action in COMMANDS["init"].parser()._actions for flag in action.option_strings}
    assert not [flag for flag in flags if not re.search(rf"(?<!\S){flag}(?![\w-])", output)]


@pytest.mark.parametrize("target", TARGETS)
def test_a_listed_target_fits_a_line_of_a_terminal(target, ask):
    _, output, _ = ask()
    assert max(map(len, output.splitlines())) <= 100


# ── the written files ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("target", TARGETS)
def test_all_files_of_a_template_are_written_with_a_first_app(target, ask, project):
    code, output, _ = ask(target)
    assert code == 0
    written = tree(project)
    assert written.pop("tasks.py") == init.TASKS
    assert written == templates(target, project)
    assert all(name in output for name in written)
    assert "\nnext:\n  " in output, "its README has no block of commands"
    assert all(os.access(project / name, os.X_OK) == text.startswith("#!") for name, text in written.items())


@pytest.mark.parametrize("target", TARGETS)
def test_a_repeated_init_changes_nothing(target, ask, project):
    ask(target, "--to", "new/folder")
    before = {path: path.stat().st_mtime_ns for path in project.rglob("*")}
    code, output, _ = ask(target, "--to", "new/folder", "--json")
    output = json.loads(output)
    assert (code, output["written"], output["target"], output["folder"]) == (0, [], target, "new/folder")
    assert set(output["unchanged"]) >= {f"new/folder/{name}" for name in templates(target)}
    assert before == {path: path.stat().st_mtime_ns for path in project.rglob("*")}


@pytest.mark.parametrize("target", TARGETS)
def test_another_app_name_replaces_tasks_app(target, ask, project):
    path = project / DEEP
    path.parent.mkdir(parents=True)
    path.write_text("from sublet import App\n\nqueue = App()\n")
    code, output, _ = ask(target, "--app", "shop.work.jobs:queue", "--json")
    assert code == 0, output
    assert not (project / "tasks.py").exists()
    assert not [step for step in json.loads(output)["first"] if step.startswith("write ")]
    for name, text in tree(project).items():
        if name != DEEP:
            assert not re.search(r"\btasks:app\b|\btasks\.py\b|\b(from|import) tasks\b", text), name
            assert text.count("shop.work.jobs:queue") == templates(target)[name].count("tasks:app"), name


def test_a_missing_app_is_a_step_to_do(ask, project):
    _, output, _ = ask(TARGETS[0], "--app", "shop:queue")
    assert "write shop.py, with an App named queue" in output
    assert not (project / "shop.py").exists()
    assert not (project / "tasks.py").exists()


def test_an_app_may_be_a_package(ask, project):
    (project / "tasks").mkdir()
    (project / "tasks" / "__init__.py").write_text("from sublet import App\n\napp = App()\n")
    before = tree(project)
    assert ask("compose")[0] == 0
    assert "tasks.py" not in tree(project)
    assert before.items() <= tree(project).items()


def test_the_app_may_be_named_by_the_environment(ask, monkeypatch, project):
    monkeypatch.setenv("SUBLET_APP", "shop:queue")
    ask(TARGETS[0])
    assert any("shop:queue" in text for text in tree(project).values())


def test_the_first_app_runs(ask, project):
    ask(TARGETS[0])
    program = "import asyncio, tasks; print(asyncio.run(tasks.hello('you')))"
    done = subprocess.run([sys.executable, "-c", program], cwd=project, env=APPLESS | {"PYTHONPATH": f"{ROOT}:{project}"},
                          capture_output=True, text=True, timeout=60)  # fmt: skip
    assert done.stdout == "hello, you\n", done.stderr


def test_an_existing_app_and_requirements_are_kept(ask, project):
    target = next((one for one in TARGETS if "requirements.txt" in templates(one)), None)
    if target is None:
        pytest.skip("no template brings requirements")
    for name, text in (("tasks.py", "# mine\n"), ("requirements.txt", "requests\n")):
        (project / name).write_text(text)
    code, output, _ = ask(target)
    assert code == 0
    assert ((project / "tasks.py").read_text(), (project / "requirements.txt").read_text()) == (
        "# mine\n",
        "requests\n",
    )
    assert "add to requirements.txt: sublet" in output


@pytest.mark.parametrize(
    "line", ["sublet[http]", "sublet[otel,http]>=0.1", "./sublet-0.1.0-py3-none-any.whl[http]"]
)
def test_requirements_with_sublet_need_no_hint(line, ask, project):
    (project / "requirements.txt").write_text(f"requests\n{line}\n")
    _, output, _ = ask("compose")
    assert "add to" not in output


@pytest.mark.parametrize("line", ["sublet", "sublet-extras[http]", "# nothing", "mysublet[http]"])
def test_requirements_without_sublet_get_a_hint(line, ask, project):
    (project / "requirements.txt").write_text(f"{line}\n")
    _, output, _ = ask("compose")
    assert "\n  add to requirements.txt: sublet[http]\n" in output


@pytest.mark.parametrize("target", [one for one in TARGETS if "Dockerfile" in templates(one)])
def test_an_existing_dockerfile_is_kept_and_reported(target, ask, project):
    own = {"Dockerfile": "FROM mine\nEXPOSE 8377\n", ".dockerignore": ".env\n.git\n"}
    for name, text in own.items():
        (project / name).write_text(text)
    code, output, _ = ask(target)
    assert code == 0
    assert own.items() <= tree(project).items()
    (line,) = re.findall(
        r"^  Dockerfile: your file stays as it is; the template has: (.*)$", output, re.MULTILINE
    )
    assert 'CMD ["sublet", "serve"]' in line
    assert "EXPOSE 8377" not in line
    (line,) = re.findall(
        r"^  .dockerignore: your file stays as it is; the template has: (.*)$", output, re.MULTILINE
    )
    assert "**/__pycache__" in line.split()
    assert not {".env", ".git", "#"} & {*line.split()}


def test_the_commands_of_the_platforms_page_print_the_shown_output(tmp_path, project):
    page = (ROOT / "docs" / "platforms" / "index.md").read_text()
    env = APPLESS | {"PATH": command_on_path(tmp_path), "PYTHONPATH": str(ROOT)}
    here = [*steps(*(text for _, text in blocks("console", page)))]
    for step, answer in zip(here, run(here, project, env), strict=True):
        check(step, *answer)


# ── existing files ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["another file", "a folder", "a dangling link", "a pipe"])
def test_an_existing_path_is_not_replaced_and_nothing_is_written(kind, ask, project):
    taken = project / f"{TARGETS[-1]}.md"
    if kind == "another file":
        taken.write_text("mine\n")
    elif kind == "a folder":
        taken.mkdir()
    elif kind == "a pipe":
        os.mkfifo(taken)
    else:
        taken.symlink_to(project / "nowhere")
    code, output, error = ask(TARGETS[-1])
    assert (code, output) == (1, "")
    assert re.fullmatch(
        rf"sublet: nothing was written: {taken.name} is there already, with other content; .*\n", error
    )
    assert [path.name for path in project.iterdir()] == [taken.name]


def test_a_file_created_after_the_check_is_not_replaced(tmp_path):
    """Another process creates one of the files at this moment: its file stays, and the written ones are
    removed.
    """
    theirs = tmp_path / "b"
    theirs.write_text("theirs")
    with pytest.raises(JobsError, match="File exists; nothing was written"):
        init._write(tmp_path, [init.File(tmp_path / "new" / "a", "a"), init.File(theirs, "b")])
    assert tree(tmp_path) == {"b": "theirs", "project": None} or tree(tmp_path) == {"b": "theirs"}
    assert not (tmp_path / "new").exists()


# ── invalid arguments ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_unknown_target_is_refused_with_the_closest_name(ask, project):
    near = TARGETS[0][:-1]
    code, _, error = ask(near)
    assert code == 2
    assert f"there is no target '{near}', did you mean {TARGETS[0]}? See" in error
    code, _, error = ask("mainframe")
    assert f"there are {', '.join(TARGETS)}; see" in error
    assert not tree(project)


@pytest.mark.parametrize(
    "words", [["--to", "foo"], ["--to", "."], ["--app", "shop:app"], ["--json", "--to", "foo"]]
)
def test_a_missing_target_is_refused_with_the_list(words, ask, project):
    code, output, error = ask(*words)
    assert (code, output) == (2, "")
    assert f"TARGET is missing; there are {', '.join(TARGETS)}; see" in error
    assert not tree(project)


@pytest.mark.parametrize(
    ("name", "target"),
    [("k8s", "kubernetes"), ("lambda", "aws-sam"), ("aws", "aws-sam"), ("gcp", "cloud-run"), ("docker", "compose"),
     ("cron", "crontab"), ("cloudrun", "cloud-run"), ("Kubernetes", "kubernetes"), *init.OTHERS.items()],
)  # fmt: skip
def test_a_common_name_suggests_the_target(name, target, ask, project):
    code, _, error = ask(name)
    assert code == 2
    assert f"there is no target '{name}', did you mean {target}? See" in error
    assert target in TARGETS
    assert not tree(project)


@pytest.mark.parametrize("name", ["../kubernetes", ".", "..", "/etc", "", "README.md"])
def test_a_path_is_not_a_target(name, ask, project):
    ask(name)
    assert not tree(project)


@pytest.mark.parametrize(
    "app", ["tasks", "tasks:", ":app", "./tasks:app", "a b:app", "tasks:app:x", "tasks:1", "a..b:c", "x:y\n"]
)
def test_an_invalid_app_name_is_refused(app, ask, project):
    code, _, error = ask(TARGETS[0], "--app", app)
    assert (code, error.count("\n")) == (2, 1)
    assert "is not MODULE:APP with names that Python can import (letters, digits, _), e.g. tasks:app" in error
    assert not tree(project)


@pytest.mark.parametrize(
    ("to", "words"),
    [("file", "file is not a folder"), ("file/deeper/yet", "file is not a folder"), ("", "is empty")],
)
def test_an_invalid_folder_is_refused(to, words, ask, project):
    (project / "file").write_text("")
    code, _, error = ask(TARGETS[0], "--to", to)
    assert (code, error.count("\n")) == (2, 1)
    assert words in error
    assert [*tree(project)] == ["file"]


def test_a_read_only_folder_is_an_error(ask):
    """A place where not even the superuser can create a folder."""
    if not Path("/proc/self").exists():
        pytest.skip("no /proc")
    code, _, error = ask(TARGETS[0], "--to", "/proc/self/here")
    assert (code, error.count("\n")) == (1, 1)
    assert re.search(r"/proc/self/here cannot be written: .*; nothing was written", error)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_folder_without_write_permission_is_an_error(ask, project):
    project.chmod(0o500)
    try:
        code, _, error = ask(TARGETS[0])
    finally:
        project.chmod(0o700)
    assert code == 1
    assert "Permission denied; nothing was written" in error


def test_a_full_disk_leaves_no_partial_files(project):
    """No file may exceed a hundred bytes: the system refuses the first larger write."""
    done = subprocess.run(
        [sys.executable, "-m", "sublet", "init", TARGETS[0], "--to", "a/b"], env=APPLESS | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
    )  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "cannot be written: File too large; nothing was written" in done.stderr
    assert not tree(project)
    assert not [*project.iterdir()]


def test_ctrl_c_leaves_no_partial_files(monkeypatch, ask, project):
    opened = []

    def interrupted(*words):
        opened.append(words)
        if len(opened) > 1:
            raise KeyboardInterrupt
        return real(*words)

    real = os.open
    monkeypatch.setattr(init.os, "open", interrupted)
    code, *_ = ask(TARGETS[0], "--to", "new")
    monkeypatch.undo()
    assert code == 130
    assert not [*project.iterdir()]
