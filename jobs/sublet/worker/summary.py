"""What a worker has done: endings counted by kind, and said in words."""

from dataclasses import dataclass

from sublet.model import Completion, Ending, Failure, Release

_EVENTS: dict[type, str] = {Completion: "completed", Failure: "failed", Release: "released"}
_GHOSTS = ("LEASE_LOST", "NOT_FOUND")


@dataclass
class Summary:
    """What a worker has done: endings accepted by kind, ghosts (endings refused, for the lease was lost), and seconds."""

    completed: int = 0
    failed: int = 0
    released: int = 0
    refused: int = 0
    seconds: float = 0.0
    dismissed: bool = False
    """Its pool could spare it; else, whatever is left is for others who are to be summoned."""
    stalled: bool = False
    """It had work, and finished none for too long: its platform should replace it."""
    stuck: int = 0
    """Tasks that would not end though they were told to: an orderly exit of this process would wait for them for ever."""

    def count(self, ending: Ending, answer: str) -> str:
        """Count an ending by what the source answered. What it counts as: an event of a worker."""
        event = "refused" if answer in _GHOSTS else _EVENTS[type(ending)]
        setattr(self, event, getattr(self, event) + 1)
        return event


def told(ending: Ending, answer: str) -> str:
    """An ending and its answer in words."""
    if isinstance(ending, Completion):
        return answer
    why = f"{ending.code} {ending.message}".strip() if isinstance(ending, Failure) else ending.reason
    return f"{why}: {answer}"
