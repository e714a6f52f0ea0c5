"""Tasks that run a program.

No argument for a template can become code, a second word or another program: an argv template is split before its fields
are filled in, and a shell's script contains only names of variables. A value can become an option of the program, unless
the template puts `--` before it.
"""

import inspect
import keyword
import math
import os
import re
import shlex
import string
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from sublet.context import Context, Discard
from sublet.errors import Invalid
from sublet.tasks.programs.program import PATIENCE, SHELL, Output, ProgramCall, run
from sublet.tasks.programs.shell_quoting import QuoteScanner

NAME = "command"
CONTEXT = "_context"
PATIENCE_BY_REASON = {"lost": 0.0, "stopping": PATIENCE / 2}
"""Seconds from SIGTERM to SIGKILL if not PATIENCE, by `Context.ending`: none after a lost lease, since
another worker may run the job.
"""

Word = list[tuple[str, str | None]]
"""A word of a template: its pieces of text, each with the name of the field that follows, or None."""


def function(
    template: str, *, shell: bool = False, cwd: str | Path | None = None, env: Mapping[str, str] | None = None
) -> Callable[..., Awaitable[Output]]:
    """Make the function of a task that runs the program of this template; with `shell`, by /bin/sh. Its
    parameters are the template's fields (`{path}`). `env`: variables besides the worker's.

    Raises Invalid for a wrong template or `env`.
    """
    words = [_pieces(template, template)] if shell else _words(template)
    name = _program(template, words)
    script = _script(template, words[0]) if shell else ""
    given = _given(template, env or {})
    fields = list(dict.fromkeys(field for word in words for _, field in word if field))
    signature = _signature(fields)

    async def call(context: Context, /, *args: Any, **kwargs: Any) -> Output:
        bound = signature.bind(context, *args, **kwargs).arguments
        values = {field: _text(bound[field]) for field in fields}
        own = {f"sublet_{field}": value for field, value in values.items()} if shell else {}
        argv = [SHELL, "-c", script] if shell else ["".join(_fill(word, values)) for word in words]
        return await run(_program_call(context, argv, given | own, str(cwd) if cwd else None))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Run: {template}"
    call.__signature__ = signature  # type: ignore[attr-defined]  # what `inspect.signature` looks at first
    call.__annotations__ = {CONTEXT: Context, **dict.fromkeys(fields, Value), "return": Output}
    return call


def _program_call(
    context: Context, argv: list[str], env: Mapping[str, str], cwd: str | None, text: str = ""
) -> ProgramCall:
    return ProgramCall(
        argv,
        environment(context, env),
        cwd,
        text,
        lambda: PATIENCE_BY_REASON.get(context.ending, PATIENCE),
        context.keep_output,
    )


def environment(context: Context, given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program: the worker's without SUBLET_* and REDIS_URL, then the variables
    `given`, then SUBLET_JOB_ID, _ATTEMPT, _FENCE and _TASK; later ones replace earlier ones.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SUBLET_") and name != "REDIS_URL"
    }
    about = {
        "SUBLET_JOB_ID": context.id,
        "SUBLET_ATTEMPT": str(context.attempt),
        "SUBLET_FENCE": str(context.fence),
        "SUBLET_TASK": context.task,
    }
    return inherited | dict(given) | about


def _value(value: Any) -> Any:
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(value, str | int | float):
        raise PydanticCustomError(
            "argument",
            "an argument of a command must be text, a number, true or false, as must a value in env",
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise PydanticCustomError(
            "argument", "an argument of a command must be a finite number, as must a value in env"
        )
    if isinstance(value, str) and "\0" in value:
        raise PydanticCustomError("argument", "a NUL byte cannot be passed to a program: leave it out")
    if isinstance(value, str):
        value.encode()  # raises a ValueError for an unpaired surrogate
    return value


def _name(name: str) -> str:
    if not name or "=" in name or "\0" in name:
        raise PydanticCustomError(
            "argument", "the name of an environment variable must not be empty or contain '=' or a NUL byte"
        )
    return name


Value = Annotated[Any, AfterValidator(_value)]
Text = Annotated[str, AfterValidator(_value)]
Variable = Annotated[str, AfterValidator(_name)]


async def any_program(
    context: Context,
    *,
    argv: list[Text] | None = None,
    shell: Text | None = None,
    cwd: Text | None = None,
    env: dict[Variable, Text] | None = None,
    input: Text = "",
) -> Output:
    """Run the program `argv`, or the shell script `shell`, with `input` as standard input. Raises
    ProgramFailed, and Discard unless exactly one of the two is given. Workers have this task only with
    `commands=True`: its submitters can run anything.
    """
    if bool(argv) is bool(shell):
        raise Discard('the payload must have either "argv", a list of words, or "shell", a script')
    return await run(_program_call(context, argv or [SHELL, "-c", shell or ""], env or {}, cwd, input))


_ARGV = {"argv": {"type": "array", "minItems": 1, "prefixItems": [{"type": "string", "minLength": 1}]}}
_SCRIPT = {"shell": {"type": "string", "minLength": 1}}
NEEDS: dict[str, Any] = {
    "anyOf": [
        {"required": ["argv"], "properties": {**_ARGV, "shell": {"type": "null"}}},
        {"required": ["shell"], "properties": {**_SCRIPT, "argv": {"type": "null"}}},
    ]
}
any_program.payload_schema = NEEDS  # type: ignore[attr-defined]  # read by `Arguments.schemas`


def _text(value: Any) -> str:
    checked = _value(value)
    return str(checked).lower() if isinstance(checked, bool) else str(checked)


def _fill(word: Word, values: Mapping[str, str]) -> list[str]:
    return [text + (values[field] if field else "") for text, field in word]


def _signature(fields: list[str]) -> inspect.Signature:
    first = inspect.Parameter(CONTEXT, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return inspect.Signature(
        [first, *(inspect.Parameter(field, inspect.Parameter.POSITIONAL_OR_KEYWORD) for field in fields)]
    )


def _words(template: str) -> list[Word]:
    try:
        words = [_pieces(template, word) for word in shlex.split(template)]
    except ValueError as error:
        raise Invalid(
            f"command {template!r}: {error}: close quotes, and write \\\\ for a backslash"
        ) from None
    if words and any(field for _, field in words[0]):
        raise Invalid(f"command {template!r}: the program's name must be fixed: write it without a field")
    return words


def _program(template: str, words: list[Word]) -> str:
    first = words[0][0][0].split() if words and words[0] else []
    if not first or "\0" in template:
        raise Invalid(
            f"command {template!r}: it must begin with the name of a program and contain no NUL byte"
        )
    return Path(first[0]).name


def _given(template: str, env: Mapping[str, str]) -> dict[str, str]:
    try:
        return {_name(name): _text(value) for name, value in env.items()}
    except ValueError as error:
        raise Invalid(f"command {template!r}: env: {error}") from None


def _pieces(template: str, text: str) -> Word:
    word: Word = []
    try:
        parsed = list(string.Formatter().parse(text))
    except ValueError as error:
        raise Invalid(f"command {template!r}: {error}; write {{{{ and }}}} for braces") from None
    for literal, field, form, conversion in parsed:
        if field is not None and (form or conversion or not re.fullmatch("[A-Za-z][A-Za-z0-9_]*", field)):
            raise Invalid(
                f"command {template!r}: a field must be a plain name such as {{path}}: write {{{{ and }}}} for braces"
            )
        if field is not None and keyword.iskeyword(field):
            raise Invalid(
                f"command {template!r}: {field!r} is a keyword of Python: use another name for the field"
            )
        word.append((literal, field))
    return word


def _script(template: str, pieces: Word) -> str:
    if not any(field for _, field in pieces):
        return "".join(literal for literal, _ in pieces)
    script, literal, scanner = "", "", QuoteScanner()
    for text, field in [*pieces, ("", "")]:
        literal += text
        if field is None:  # an escaped brace divides a literal
            continue
        try:
            scanner.read(literal)
        except ValueError as error:
            raise Invalid(f"command {template!r}: a script with fields cannot have {error}") from None
        if field and scanner.quoted:
            raise Invalid(
                f"command {template!r}: write {{{field}}} without quotes or a backslash: it is always one word"
            )
        script, literal = script + literal + (f'"${{sublet_{field}}}"' if field else ""), ""
        scanner.field()
    if scanner.quoted:
        raise Invalid(
            f"command {template!r}: it ends within quotes, or in a backslash: close the quotes, or add what follows"
        )
    return script
