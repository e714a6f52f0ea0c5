"""The mutants as a page: `tests/faults/mutants/README.md` is generated from the list."""

from collections.abc import Sequence

from tests.faults.mutants.mutant import ROOT, Mutant

PAGE = ROOT / "tests" / "faults" / "mutants" / "README.md"
_HEAD = """\
# Mutants: defects that the suite detects

A test that cannot fail proves nothing. This page lists {count} small defects, each with a test that fails because of it. The suite
plants them in copies of the code, one at a time, and runs their tests (`tests/faults/test_mutants.py`).

`python3 -m tests.faults.mutants` does the same, and prints a line for each. Names (or parts of them) select some;
`--whole` runs the fast part of the suite for each and names every test that fails; `--jobs N` sets how many run in parallel; `--json`
prints the outcomes for programs. It needs the interpreter with the test dependencies. It exits with 1 if a mutant survived or could
not be tried, and prints the reason.

To add one: write an entry in one of the lists in `tests/faults/mutants/`, with the replaced text (the file must contain it exactly
once) and the test that kills it; then run `python3 -m tests.faults.mutants --write` to regenerate this page. If no test kills it, the
suite has a gap: write the test first. When the code changes, a mutant whose text is gone fails: give it the new text, or another
defect of the same kind.

| defect | in | consequence | killed by |
|---|---|---|---|
"""


def page(mutants: Sequence[Mutant]) -> str:
    """The whole page."""
    return _HEAD.format(count=len(mutants)) + "".join(map(_row, mutants))


def _row(mutant: Mutant) -> str:
    file, _, test = mutant.killer.partition("::")
    name, bracket, variant = test.removeprefix("test_").partition("[")
    sentence = name.replace("_", " ") + (f" [{variant}" if bracket else "")
    return f"| {mutant.name} | `{mutant.file}` | {mutant.danger} | `tests/{file}`: {sentence.replace('|', '/')} |\n"
