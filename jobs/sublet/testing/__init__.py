"""Test tasks without a server and without waiting for real time.

Needs fakeredis: `pip install 'PATH/TO/THE/CHECKOUT[testing]'`.
"""

from sublet.testing.drain import Drained, Endless
from sublet.testing.fixtures import fixture
from sublet.testing.sandbox import Sandbox
from sublet.testing.standin import StandIn
from sublet.testing.work import WorkerDied

__all__ = ["Drained", "Endless", "Sandbox", "StandIn", "WorkerDied", "fixture"]
