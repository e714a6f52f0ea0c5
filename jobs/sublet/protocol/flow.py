"""Flow control: the calls that set a group's limits and correct a cost."""

from collections.abc import Mapping, Sequence

from sublet.errors import Invalid
from sublet.model import Lease
from sublet.protocol.reads import SECONDS
from sublet.protocol.scripts import Call, script


def words(settings: Mapping[str, float | str | None]) -> str:
    """Encode settings for a script (`per`, in seconds, as ms); omit those that are None. Raises Invalid."""
    found = []
    for name, value in settings.items():
        text = value
        if isinstance(value, int | float) and name in SECONDS:
            text = round(value * 1000)
        elif isinstance(value, float):
            if value != int(value):
                raise Invalid(f"{name}={value}: use a whole number")
            text = int(value)
        found += [f"{name}={text}"] if text is not None else []
    return " ".join(found)


def group(base: str, queue: str, revision: int, name: str, settings: str, by: str = "") -> Call[str]:
    """Replace all settings of a queue's group (`concurrency=N rate=N per=MS burst=N share=N`). Returns them
    as stored. Raises Changed if the queue has another `revision`.
    """
    return script("group").call(
        base, bytes.decode, queue=queue, revision=revision, group=name, settings=settings, by=by
    )


def spend(base: str, costs: Sequence[tuple[Lease, int]]) -> Call[list[str]]:
    """Replace the costs that up to 100 running attempts have taken from their rates. Returns per lease `spent`, LEASE_LOST or NOT_FOUND."""
    return script("spend").call(
        base, _words, [f for lease, cost in costs for f in (lease.id, lease.token, cost)]
    )


def _words(reply: list[bytes]) -> list[str]:
    return [word.decode() for word in reply]
