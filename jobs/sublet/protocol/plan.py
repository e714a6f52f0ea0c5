"""`Plan`: an operation of several calls, for the async and the sync transport."""

from collections.abc import Generator
from typing import Any, TypeVar

from sublet.protocol.scripts import Call

T = TypeVar("T")

Plan = Generator[Call[Any], Any, T]
"""An operation of several calls: a generator that yields calls, receives their replies, and returns the result."""
