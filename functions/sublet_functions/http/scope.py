"""The queues that a token is limited to."""

from __future__ import annotations

import re
from dataclasses import dataclass

ENTRIES_MAX = 100

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_PATTERN = re.compile(r"[A-Za-z0-9_.:-]{0,127}\*")


@dataclass(frozen=True, slots=True)
class Scope:
    """The queues that a token may use: names, and patterns such as `tenant-*`."""

    names: frozenset[str]
    beginnings: tuple[str, ...]
    """Its patterns without the star."""

    @classmethod
    def parse(cls, text: str) -> Scope | None:
        """Parse names and patterns, separated by commas; None if one is invalid, or there are over 100."""
        entries = set(text.split(","))
        names = frozenset(filter(_NAME.fullmatch, entries))
        patterns = set(filter(_PATTERN.fullmatch, entries))
        if len(entries) > ENTRIES_MAX or entries != names | patterns:
            return None
        return cls(names, tuple(sorted(pattern[:-1] for pattern in patterns)))

    def __contains__(self, entry: object) -> bool:
        return isinstance(entry, str) and (
            entry in self.names or entry.removesuffix("*").startswith(self.beginnings)
        )

    @property
    def entries(self) -> list[str]:
        """Names and patterns, sorted."""
        return sorted([*self.names, *(f"{beginning}*" for beginning in self.beginnings)])

    def __str__(self) -> str:
        return ", ".join(self.entries)
