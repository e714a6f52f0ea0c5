"""What is asked in the end: whether all that is stored agrees with itself."""

from jobs.client import SyncClient
from jobs.recount import recount
from jobs.repair import audit
from jobs.transport import follow_sync


def disagreements(client: SyncClient) -> list[str]:
    """What is stored and does not agree with itself, in words; nothing is changed."""
    seen = follow_sync(client.transport.run, audit(client.layout.bases))
    wrong = [f"{fault.name}: {fault.words}" for fault in seen.faults]
    for base in client.layout.bases:
        counted = follow_sync(client.transport.run, recount(base, "look"))
        wrong += [f"{name}: {words}" for name, words in counted.found]
    return wrong
