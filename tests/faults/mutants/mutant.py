"""What a mutant is: a small defect, and the test that must notice it."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
"""The checkout."""


class MovedOn(Exception):
    """The code is not any more what the mutant was made for."""


@dataclass(frozen=True)
class Mutant:
    """One defect. Its name is a sentence that says what the code does wrongly."""

    name: str
    file: str
    """Where it is made, from the checkout's root."""
    old: str
    """The text that is replaced; it stands there exactly once."""
    new: str
    danger: str
    """What would go wrong, in one clause."""
    killer: str
    """The test that fails: `test_x.py::test_y[…]`."""

    @property
    def test(self) -> str:
        """The killer, from the checkout's root."""
        return f"tests/{self.killer}"

    def applied(self, text: str) -> str:
        """The file's text with the defect in it. Raises MovedOn if there is no telling where it goes."""
        found = text.count(self.old)
        if found != 1:
            raise MovedOn(
                f"the text to replace stands {found} times in {self.file}, not once: {self.old.strip()!r}"
            )
        return text.replace(self.old, self.new)
