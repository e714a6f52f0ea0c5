"""The mutants as a page: `tests/faults/mutants/README.md` is what this makes of the list."""

from collections.abc import Sequence

from tests.faults.mutants.mutant import ROOT, Mutant

PAGE = ROOT / "tests" / "faults" / "mutants" / "README.md"
_HEAD = """\
# Mutants: what the suite would notice

A test that cannot fail proves nothing. Here are {count} small defects, made on purpose in a copy of the code, one at a time; for
each, one test that fails because of it. The suite applies all of them and asks their tests (`tests/faults/test_mutants.py`).

`python3 -m tests.faults.mutants` does the same by hand, with a line for each as it comes. Names (or parts of them) pick some; `--whole`
runs the fast part of the suite for each and names every test that notices; `--jobs N` says how many at a time; `--json` prints
the outcomes for programs. It runs with the interpreter that has the test dependencies. It ends with 1 if a mutant survived or
could not be tried, and says why.

To add one: an entry in one of the lists in `tests/faults/mutants/`, with the text that is replaced (it must stand in the file exactly
once) and the test that kills it; then `python3 -m tests.faults.mutants --write` writes this page anew. If no test kills it, the suite
has a hole: write the test first. When code moves on, its mutants say that their text is not there any more: give them the new
text, or another defect of the same kind.

| defect | in | what would go wrong | killed by |
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
