"""The class of a mutant: a small defect, and the test that must fail because of it."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
"""The checkout."""


class MovedOn(Exception):
    """The text that the mutant replaces is not in the code any more."""


@dataclass(frozen=True)
class Mutant:
    """One defect. Its name is a sentence with the wrong behaviour."""

    name: str
    file: str
    """The file, from the checkout's root."""
    old: str
    """The text that is replaced; the file contains it exactly once."""
    new: str
    danger: str
    """The consequence for users, in one clause."""
    killer: str
    """The test that fails: `test_x.py::test_y[…]`."""

    @property
    def test(self) -> str:
        """The killer, from the checkout's root."""
        return f"tests/{self.killer}"

    def applied(self, text: str) -> str:
        """The file's text with the defect. Raises MovedOn if the replaced text is not there exactly once."""
        found = text.count(self.old)
        if found != 1:
            raise MovedOn(
                f"the text to replace occurs {found} times in {self.file}, expected once: {self.old.strip()!r}"
            )
        return text.replace(self.old, self.new)
