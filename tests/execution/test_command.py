"""Tasks that run programs: templates, environments and output, with real programs."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from sublet import App, Invalid
from sublet.execution.attempt import ending_of
from sublet.model import Failure
from sublet.tasks.programs import program
from sublet.tasks.programs.command import any_program
from sublet.tasks.programs.program import ProgramFailed
from tests.support.processes import on_linux
from tests.support.program_runs import LEASE

pytest_plugins = ["tests.support.program_fixtures"]
PYTHON = f'"{sys.executable}" -I -S -c '
NASTY = [
    "; touch TRAP",
    "$(touch TRAP)",
    "`touch TRAP`",
    "' ; touch TRAP ; '",
    '" ; touch TRAP ; "',
    "'\"'; touch TRAP; #",
    "line one\ntouch TRAP",
    "   two leading and one trailing ",
    "a b\tc",
    "*",
    "{src}{0}",
    "${HOME} $HOME %s \\",
    "",
    "ünï ☃",
]


def test_a_task_has_the_programs_name_also_in_an_app_with_qualified_names():
    assert App(qualified_names=True).command("gzip --keep -- {path}").name == "gzip"


def test_a_tasks_arguments_are_the_templates_fields():
    task = App().command("convert {src} --out={dst} {src}")
    assert task.name == "convert"
    assert json.loads(task.job("a b", dst="c").payload) == {"src": "a b", "dst": "c"}
    assert json.loads(task.job(Path("a"), 0.5).payload) == {"src": "a", "dst": 0.5}
    for args, more, words in [
        (("a",), {}, "missing a required argument: 'dst'"),
        (("a", "b"), {"size": 1}, "unexpected keyword argument 'size'"),
        (("a", ["b"]), {}, "dst: an argument of a command must be text, a number, true or false"),
        (("a", None), {}, "dst: an argument of a command must be text"),
        (("a", float("nan")), {}, "dst: an argument of a command must be a finite number"),
        (("a\0", "b"), {}, "src: a NUL byte cannot be passed to a program"),
        (("\ud800", "b"), {}, "src: "),
    ]:
        with pytest.raises(Invalid, match=words):
            task.job(*args, **more)


@pytest.mark.parametrize(
    ("template", "how", "words"),
    [
        ("", {}, "must begin with the name of a program"),
        ("   ", {"shell": True}, "must begin with the name of a program"),
        ("'' {src}", {}, "must begin with the name of a program"),
        ("a\0b", {}, "contain no NUL byte"),
        ("{program} x", {}, "the program's name must be fixed"),
        ("x{program} x", {}, "the program's name must be fixed"),
        ("{program} x", {"shell": True}, "must begin with the name of a program"),
        ("cat 'x", {}, "No closing quotation"),
        ("cat {src.__class__}", {}, "a field must be a plain name"),
        ("cat {src[0]}", {}, "a field must be a plain name"),
        ("cat {src!r}", {}, "a field must be a plain name"),
        ("cat {src:>9}", {}, "a field must be a plain name"),
        ("cat {}", {}, "a field must be a plain name"),
        ("cat {0}", {}, "a field must be a plain name"),
        ("cat {_context}", {}, "a field must be a plain name"),
        ("cat {src", {}, "write {{ and }} for braces"),
        ("cat ${HOME:-x}", {"shell": True}, "write {{ and }} for braces"),
        ("cat {in}", {}, "'in' is a keyword of Python"),
        ("cat '{src}'", {"shell": True}, "write {src} without quotes"),
        ('cat "x {src}"', {"shell": True}, "write {src} without quotes"),
        ("cat \\{src}", {"shell": True}, "write {src} without quotes"),
        ('cat "\\"{src}"', {"shell": True}, "write {src} without quotes"),
        ('# it\'s "\ncat "{src}"', {"shell": True}, "write {src} without quotes"),
        ('cat a;#it\'s\ncat "{src}"', {"shell": True}, "write {src} without quotes"),
        ("x=\"a#b'\"; cat '{src}'", {"shell": True}, "write {src} without quotes"),
        ("cat a#'b' \"{src}\"", {"shell": True}, "write {src} without quotes"),
        pytest.param(
            'cat "$(echo "{src}")"', {"shell": True}, "cannot have backquotes, or a $(…)", id="nested quotes"
        ),
        (
            'cat "$(case x in a) echo "{src}" ;; esac)"',
            {"shell": True},
            "of more than plain words, in double quotes: write v=$(…) before",
        ),
        (
            'cat "$((1 + {src}))"',
            {"shell": True},
            "of more than plain words, in double quotes: write v=$(…) before",
        ),
        (
            'cat "${{x:-"a"}}" {src}',
            {"shell": True},
            "of more than plain words, in double quotes: write v=$(…) before",
        ),
        (
            'cat "`echo "x"`" {src}',
            {"shell": True},
            "of more than plain words, in double quotes: write v=$(…) before",
        ),
        ("cat ${{x:-$(echo }}) #'}} '{src}'", {"shell": True}, "cannot have $(…) within ${…}"),
        ("cat <<EOF\nit's {src}\nEOF", {"shell": True}, "cannot have a here-document: use printf"),
        ("cat `echo '{src}'`", {"shell": True}, "cannot have backquotes: use $(…)"),
        ("cat $'it\\'s' '{src}'", {"shell": True}, "cannot have $'…'"),
        (
            'cat {src} "$(true #it\'s\n)"',
            {"shell": True},
            "of more than plain words, in double quotes: write v=$(…) before",
        ),
        ("cat {src} 'x", {"shell": True}, "it ends within quotes"),
        ("cat {src} \\", {"shell": True}, "it ends within quotes, or in a backslash"),
        ("cat {src}", {"env": {"A": "x\0y"}}, "env: a NUL byte"),
        ("cat {src}", {"env": {"A=B": "x"}}, "env: the name of an environment variable"),
        ("FOO=1 cat", {"shell": True}, "of A-Z"),
        ("cat {src}", {"retries": 3}, "unknown option retries"),
    ],
)
def test_an_invalid_template_is_refused_when_it_is_declared(template, how, words):
    with pytest.raises(Invalid) as refused:
        App().command(template, **how)
    assert words in str(refused.value)


@pytest.mark.parametrize("shell", [False, True], ids=["argv", "shell"])
async def test_no_value_becomes_code_or_a_second_argument(run, worker, tmp_path, shell):
    for number, form in enumerate(NASTY):
        trap = tmp_path / f"trap{number}"
        value = form.replace("TRAP", str(trap))
        if shell:
            done = await run(
                "printf '[%s]' {src} --out={src} $(printf '%s' {src} | wc -c)", value, shell=True
            )
            assert done.stdout == f"[{value}][--out={value}][{len(value.encode())}]"
        else:
            done = await run("printf [%s] {src} --out={src} 'x {src}'", value)
            assert done.stdout == f"[{value}][--out={value}][x {value}]"
        assert not list(tmp_path.iterdir()), value


@pytest.mark.parametrize(
    "template",
    [
        pytest.param("# it's one comment\nprintf '[%s]' {src}", id="a comment"),
        "true # it's another \"\nprintf '[%s]' {src} # and don't forget {src}",
        "true;# \"\nprintf '[%s]' {src}",
        "x='a#b'; printf '[%s]' {src} | head -c ${{#x}}4096",
        'x="$(date +%F) $((1 + 2)) ${{HOME}} \\" # $#"; printf \'[%s]\' {src}',
        "x=${{x:-a #'b'}}; printf '[%s]' {src}",
        "printf '[%s]' \\\n{src}",
        "(printf '[%s]' {src};); case {src} in a) true ;; esac",
        "printf '[%s]' $(true; printf '%s' {src} | tr -d '\\n' | head -c 0){src}",
    ],
)
async def test_a_field_of_a_script_is_one_word_after_comments_and_quotes(run, worker, template):
    assert (await run(template, "two  words *", shell=True)).stdout == "[two  words *]"


async def test_a_script_without_fields_may_have_every_construct(run, worker):
    script = 'cat <<EOF\nit\'s $(echo "a")\nEOF\necho `echo "b"` "$(echo "c")" # don\'t'
    assert (await run(script, shell=True)).stdout == "it's a\nb c\n"


async def test_values_are_written_as_json_writes_them(run, worker):
    done = await run("printf %s, {a} {b} {c} {d}", True, 7, 0.5, d=False)
    assert done.stdout == "true,7,0.5,false,"


async def test_braces_and_variables_of_the_shell_are_its_own(run, worker):
    done = await run("x=1; f() {{ printf '%s' ${{x}}{tail} $# ; }}; f a b", "é", shell=True)
    assert done.stdout == "1é2"


# environment of a program


async def test_a_program_sees_its_job_but_not_our_secrets(run, worker, monkeypatch):
    monkeypatch.setenv("SUBLET_REDIS_URL", "redis://:hunter2@127.0.0.1:6379")
    monkeypatch.setenv("REDIS_URL", "redis://:hunter2@127.0.0.1:6379")
    monkeypatch.setenv("ORDINARY", "is seen")
    done = await run("env", env={"REDIS_URL": "its own", "MORE": "of it"})
    seen = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert {name: value for name, value in seen.items() if name.startswith("SUBLET_")} == {
        "SUBLET_JOB_ID": "job-7",
        "SUBLET_ATTEMPT": "2",
        "SUBLET_FENCE": "4711",
        "SUBLET_TASK": "t",
    }
    assert (seen["ORDINARY"], seen["MORE"], seen["REDIS_URL"]) == ("is seen", "of it", "its own")
    assert "hunter2" not in done.stdout
    assert "secret-token" not in done.stdout
    assert "hunter2" not in (await run("env")).stdout


@on_linux
async def test_a_program_inherits_three_descriptors_and_leads_a_group_of_its_own(run, worker):
    done = await run("ls -l /proc/self/fd")
    (read, *others) = [line.split()[-3:] for line in done.stdout.splitlines()[1:]]
    assert read == ["0", "->", "/dev/null"], "some programs would search a pipe instead of the folder"
    assert [number for number, _, _ in others] == ["1", "2", "3"]  # the last is the folder that it reads
    script = "import os; print(os.getpgid(0) == os.getsid(0) == os.getpid() != int({parent}))"
    assert (await run(PYTHON + f"'{script}'", str(os.getpid()))).stdout == "True\n"


async def test_a_program_runs_in_the_given_folder(run, worker, tmp_path):
    (tmp_path / "tool").write_text("#!/bin/sh\npwd -P\n")
    (tmp_path / "tool").chmod(0o755)
    assert (await run("./tool", cwd=tmp_path)).stdout == f"{tmp_path.resolve()}\n"


async def test_stdin_is_empty_or_the_given_input(context, worker):
    assert (await any_program(context, argv=["cat"])).stdout == ""
    assert (await any_program(context, argv=["cat"], input="\nüber\n")).stdout == "\nüber\n"
    assert (await any_program(context, argv=["true"], input="x" * 200_000)).code == 0
    read = await any_program(context, shell="head -c 3; wc -c", input="x" * 200_000)
    assert read.stdout.startswith("xxx")


# output


async def test_a_failure_has_the_exit_code_and_the_end_of_stderr(run, worker):
    with pytest.raises(ProgramFailed) as failed:
        await run("seq 5000 >&2; echo last words >&2; echo >&2; exit 3", shell=True)
    ending = ending_of(LEASE, failed.value)
    assert isinstance(ending, Failure)
    assert (ending.lease, ending.code, ending.message, ending.again) == (LEASE, "exit_3", "last words", True)
    assert ending.detail.endswith("4999\n5000\nlast words")
    assert len(ending.detail) <= 4096


async def test_a_failure_keeps_the_ends_of_both_streams(run, worker):
    """Of long ones half of the detail each; a short one leaves its part to the other."""

    async def detail(script):
        with pytest.raises(ProgramFailed) as failed:
            await run(script, shell=True)
        return failed.value.detail

    assert await detail("echo out; echo err >&2; exit 3") == "stdout:\nout\nstderr:\nerr"
    assert await detail("echo out; exit 3") == "stdout:\nout"
    assert await detail("kill -9 $$") == ""
    both = await detail("seq 5000; seq 6000 >&2; exit 3")
    out, err = both.removeprefix("stdout:\n").split("stderr:\n")
    assert (out[-10:], err[-9:]) == ("4999\n5000\n", "5999\n6000")
    assert 2000 < len(out) < 2048 > len(err) > 2000
    long = await detail("seq 5000; echo err >&2; exit 3")
    assert long.endswith("5000\nstderr:\nerr")
    assert 4080 < len(long) <= 4096
    wide = await detail("i=0; while [ $i -lt 3000 ]; do printf ü; i=$((i+1)); done; echo; echo end; exit 3")
    assert wide.endswith("ü\nend")
    assert 4080 < len(wide.encode()) <= 4096


@pytest.mark.parametrize(
    ("script", "code", "message"),
    [
        ("kill -9 $$", "killed_SIGKILL", "killed by SIGKILL"),
        ("echo ouch >&2; kill -SEGV $$", "killed_SIGSEGV", "ouch"),
        ("echo said on stdout; exit 1", "exit_1", "said on stdout"),
        ("exit 255", "exit_255", "exited with code 255"),
    ],
)
async def test_a_killed_program_is_reported_with_its_signal(run, worker, script, code, message):
    with pytest.raises(ProgramFailed) as failed:
        await run(script, shell=True, env={"LC_ALL": "C"})
    assert (failed.value.code, failed.value.message) == (code, message)


async def test_a_program_that_cannot_be_started_fails_with_the_reason(run, context, worker, tmp_path):
    (tmp_path / "text").write_text("no program")
    for template, how, words in [
        ("no-such-program", {}, "program 'no-such-program' is not on this worker's PATH"),
        ("-x", {}, "program '-x' is not on"),
        (f"{tmp_path}/text", {}, "is not an executable file"),
        (f"{tmp_path}/nothing", {}, "is not an executable file"),
        (f"{tmp_path}", {}, "is not an executable file"),
        ("true", {"cwd": tmp_path / "nowhere"}, "nowhere, in which true should start, does not exist"),
        ("true", {"env": {"PATH": str(tmp_path)}}, "program 'true' is not on"),
        (
            "true " + "x" * 200_000,
            {},
            "the system refused to start true: Argument list too long: check the length of its arguments",
        ),
    ]:
        with pytest.raises(ProgramFailed) as failed:
            await run(template, **how)
        assert failed.value.code == "not_started"
        assert words in failed.value.message
    with pytest.raises(ProgramFailed, match="program '' is not on"):
        await any_program(context, argv=[""])


async def test_the_error_without_a_shell_names_the_shell(run, worker, monkeypatch):
    monkeypatch.setattr(program, "SHELL", "/nowhere/sh")
    with pytest.raises(ProgramFailed, match="started through /nowhere/sh, which this worker does not have"):
        await run("true")


async def test_output_is_bounded_and_states_how_much_is_missing(run, worker):
    done = await run("seq 1 30000; seq 30000 -1 1 >&2", shell=True)
    size = len("".join(f"{n}\n" for n in range(1, 30001)))
    for text, first, last in (
        (done.stdout, "1\n2\n", "29999\n30000\n"),
        (done.stderr, "30000\n29999\n", "2\n1\n"),
    ):
        assert text.startswith(first)
        assert text.endswith(last)
        assert f"\n… {size - program.KEPT:,} bytes left out …\n" in text
        assert program.KEPT < len(text) < program.KEPT + 100
    whole = await run("head -c {n} /dev/zero | tr '\\0' x", program.KEPT, shell=True)
    assert whole.stdout == "x" * program.KEPT


@pytest.mark.parametrize("byte", ["000", "377", "042", "033"])
async def test_any_output_fits_into_a_result(context, worker, byte):
    """Invalid UTF-8 is replaced, and a smaller part is kept of characters that JSON escapes."""
    task = App().command("x")
    script = f"head -c 300000 /dev/zero | tr '\\000' '\\{byte}' | tee /dev/stderr"
    done = await any_program(context, shell=script)
    assert len(task.arguments.dump_result(done)) < 256 * 1024
    assert "bytes left out" in done.stdout
    assert len(done.stdout) > 16_000


async def test_a_flood_neither_blocks_the_loop_nor_fills_memory(run, worker, marker):
    """A program that prints without end is ended like any other; meanwhile the loop turns and little is kept."""
    turns = 0

    async def turn():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    turning = asyncio.create_task(turn())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await run("yes", env={"MARK": marker})
    turning.cancel()
    assert turns > 50
    kept = program.OutputBuffer()
    for _ in range(2000):
        kept.add(b"y\n" * 32768)
    assert len(kept._head) + len(kept._tail) <= 2 * program.KEPT
    assert kept.text().count("y") == program.KEPT // 2 + 1  # and that of "bytes"
