"""Test tasks without a server and without sleeping: `with Sandbox(app) as sandbox: … await sandbox.drain()`.

Needs fakeredis: `pip install 'sublet[testing]'` (from a checkout: `'.[testing]'`). Told in docs/testing.md.
"""

from jobs.testing.drain import Drained, Endless
from jobs.testing.fixtures import fixture
from jobs.testing.sandbox import Sandbox
from jobs.testing.standin import StandIn
from jobs.testing.work import WorkerDied

__all__ = ["Drained", "Endless", "Sandbox", "StandIn", "WorkerDied", "fixture"]
