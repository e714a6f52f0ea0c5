"""The demo: the standard library's files as jobs, three workers, one of them killed and one frozen; nothing may get lost."""

import dataclasses
import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

from rich.markup import escape

from jobs.cli.parser import program
from jobs.client import SyncClient
from jobs.config import Settings
from jobs.demo import acts
from jobs.demo.cast import Cast, Stuck
from jobs.demo.corpus import Corpus
from jobs.demo.ending import play, sums
from jobs.demo.screen import Member, Numbers, Screen
from jobs.demo.tally import count
from jobs.demo.tasks import analyse
from jobs.embedded import EmbeddedServer
from jobs.model import State
from jobs.options import Options

FOLDER = Path(".sublet", "demo")
"""Where the demo keeps its data, under the current folder."""
WORKERS, SLOTS = 3, 2
KILL_AT, FREEZE_AT = 0.25, 0.4
"""Shares of the work after which a worker is killed, and another one frozen."""
LOOK = 0.05
"""Seconds between two looks at how far the work is."""
STALL_SECONDS = 30.0
"""How long nothing may get done."""
