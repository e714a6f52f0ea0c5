"""Trouble with the HTTP handlers, which hold nothing: workers and producers that come by HTTP go on."""

from tests.faults.chaos.scenario import scenario
from tests.faults.chaos.stage import LEASE, Stage

BACK = 5.0
"""Seconds in which work goes on after a handler is back."""


@scenario("handlers-killed", recovery=BACK, quick=8, whole=25, own_server=False)
def handlers_killed(stage: Stage) -> None:
    """The only HTTP handler dies by SIGKILL, again and again, and another takes its port."""
    handler, port = stage.crew.serve()
    stage.crew.env |= {"SUBLET_SOURCE": f"http://127.0.0.1:{port}"}
    stage.work(workers=2, rate=60)
    for _ in stage.rounds(every=4):
        with stage.trouble("SIGKILL of the handler"):
            handler.kill()
            handler, _ = stage.crew.serve(port)


@scenario("handlers-frozen", recovery=BACK, quick=8, whole=20, own_server=False)
def handlers_frozen(stage: Stage) -> None:
    """One of two HTTP handlers stands still for longer than a lease, with requests in hand."""
    frozen, port = stage.crew.serve()
    _, other = stage.crew.serve()
    for n, each in enumerate((port, other)):
        stage.crew.env |= {"SUBLET_SOURCE": f"http://127.0.0.1:{each}"}
        stage.work(workers=1, rate=40) if n == 0 else stage.hire()
    for _ in stage.rounds(every=6):
        with stage.trouble("SIGSTOP of the handler"):
            frozen.freeze()
            stage.wait(1.5 * LEASE)
            frozen.thaw()
