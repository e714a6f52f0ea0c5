"""Test tasks without a server and without sleeping: `with Sandbox(app) as sandbox: … await sandbox.drain()`.

Needs fakeredis: `pip install 'sublet[testing]'` (from a checkout: `'.[testing]'`). Told in docs/guides/testing.md.
"""

from sublet.testing.drain import Drained, Endless
from sublet.testing.fixtures import fixture
from sublet.testing.sandbox import Sandbox
from sublet.testing.standin import StandIn
from sublet.testing.work import WorkerDied

__all__ = ["Drained", "Endless", "Sandbox", "StandIn", "WorkerDied", "fixture"]
