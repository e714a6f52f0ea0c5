"""The queues that a token is limited to."""

from __future__ import annotations

from dataclasses import dataclass

from sublet.protocol.keys import is_name, is_pattern

ENTRIES_MAX = 100


@dataclass(frozen=True, slots=True)
class Scope:
    """The queues that a token may use: names, and patterns such as `tenant-*`."""

    names: frozenset[str]
    beginnings: tuple[str, ...]
    """The patterns, without their stars."""

    @classmethod
    def parse(cls, text: str) -> Scope | None:
        """Parse names and patterns, separated by commas; None if one is invalid, or there are over 100."""
        entries = set(text.split(","))
        names = frozenset(filter(is_name, entries))
        patterns = set(filter(is_pattern, entries))
        if len(entries) > ENTRIES_MAX or entries != names | patterns:
            return None
        return cls(names, tuple(sorted(pattern[:-1] for pattern in patterns)))

    def __contains__(self, entry: object) -> bool:
        return isinstance(entry, str) and (
            entry in self.names or entry.removesuffix("*").startswith(self.beginnings)
        )

    @property
    def entries(self) -> list[str]:
        """The names and patterns, sorted."""
        return sorted([*self.names, *(f"{beginning}*" for beginning in self.beginnings)])

    def __str__(self) -> str:
        return ", ".join(self.entries)
