"""Find the whole id of a job from the end of it that a user types."""

import re
from collections.abc import Collection

from sublet.client.sync_client import SyncClient
from sublet.errors import Invalid, NotFound
from sublet.model import State
from sublet.operations.id_search import COMPARED, last_ids, lost_in, own_ids

SHORTEST, SURE = 4, 11
"""How many characters of an id a user must type; how many if not all ids can be compared."""
NAMED = 3
_GENERATED = re.compile(r"[0-9]{1,5}-[0-9A-HJKMNP-TV-Z]{26}")


def typed(word: str) -> str:
    """Return the word without the … or ... before an id's end, as a worker prints it."""
    return word.removeprefix("…").removeprefix("...")


class IdFinder:
    """Finds jobs in some states by the ends of their ids. It does not close `client`."""

    def __init__(self, client: SyncClient, states: Collection[State] = tuple(State)) -> None:
        self._client, self._states = client, states
        self._read: tuple[set[str], bool] | None = None

    def find(self, word: str, missing: NotFound) -> str:
        """Return the id `<partition>-<word>`, in any state, else the only one in the finder's states that
        ends with `word`. Raises Invalid if several do, or may; `missing` if none does, or `word` has fewer
        than 4 characters; NotFound if only the id is left of a job.
        """
        store = self._client.store
        if not store.follow_existing(store.operations.exists()):
            raise missing
        self._refuse_lost(word, missing)
        if _GENERATED.fullmatch(word):
            raise missing
        own = store.follow_existing(own_ids(store.operations.bases, word))
        if own:
            return self._only(word, own)
        if len(word) < SHORTEST:
            missing.add_note(f"write at least {SHORTEST} characters of the end of an id")
            raise missing
        if self._read is None:
            self._read = store.follow_existing(last_ids(store.operations.bases, self._states))
        ids, complete = self._read
        upper = word.upper()
        ending = sorted(job_id for job_id in ids if job_id.endswith(word)) or sorted(
            job_id for job_id in ids if _GENERATED.fullmatch(job_id) and job_id.endswith(upper)
        )
        bound = "" if complete else f" among the last {COMPARED:,} of each state and queue"
        if not ending:
            missing.add_note(f"no {self._kind()}'s id ends so{bound}")
            raise missing
        found = self._only(word, ending)
        self._refuse_lost(found, missing)
        if not complete and len(word) < SURE:
            raise Invalid(
                f"{found} ends in {word}, but only the last {COMPARED:,} jobs of each state and queue were compared: "
                f"write at least {SURE} characters of the end"
            )
        return found

    def _refuse_lost(self, job_id: str, missing: NotFound) -> None:
        store = self._client.store
        place = store.follow_existing(lost_in(store.operations.base_of_job(job_id), job_id))
        if place:
            raise NotFound(
                f"the data of job {job_id} are inconsistent: {place} contains its id, but its hash is missing: "
                "sublet doctor --repair removes the id"
            ) from missing

    def _only(self, word: str, ids: list[str]) -> str:
        if len(ids) == 1:
            return ids[0]
        named = ", ".join(ids[:NAMED]) + (f" and {len(ids) - NAMED:,} more" if len(ids) > NAMED else "")
        raise Invalid(f"{len(ids):,} ids end in {word}: {named}; write more of the id")

    def _kind(self) -> str:
        *first, last = [state.value for state in self._states]
        return (
            "job"
            if len(self._states) == len(State)
            else f"{', '.join(first)}{' or ' if first else ''}{last} job"
        )
