"""Faults of the HTTP handlers, which hold no state: workers and producers on HTTP continue."""

from tests.faults.chaos.harness import LEASE, Harness
from tests.faults.chaos.scenario import scenario

BACK = 5.0
"""Seconds until work continues after a handler is back."""


@scenario("handlers-killed", recovery=BACK, quick=8, whole=25, own_server=False)
def handlers_killed(harness: Harness) -> None:
    """The only HTTP handler is killed repeatedly, and another one takes its port."""
    handler, port = harness.processes.start_api()
    harness.processes.env |= {"SUBLET_SOURCE": f"http://127.0.0.1:{port}"}
    harness.work(workers=2, rate=60)
    for _ in harness.rounds(every=4):
        with harness.fault("SIGKILL of the handler"):
            handler.kill()
            handler, _ = harness.processes.start_api(port)


@scenario("handlers-frozen", recovery=BACK, quick=8, whole=20, own_server=False)
def handlers_frozen(harness: Harness) -> None:
    """One of two HTTP handlers is frozen for longer than a lease, with requests in progress."""
    frozen, port = harness.processes.start_api()
    _, other = harness.processes.start_api()
    for n, each in enumerate((port, other)):
        harness.processes.env |= {"SUBLET_SOURCE": f"http://127.0.0.1:{each}"}
        harness.work(workers=1, rate=40) if n == 0 else harness.add_worker()
    for _ in harness.rounds(every=6):
        with harness.fault("SIGSTOP of the handler"):
            frozen.freeze()
            harness.wait(1.5 * LEASE)
            frozen.thaw()
