"""What every command that speaks to Redis begins with: the settings, and a client made of them."""

import os
from argparse import Namespace
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from sublet.cli.output import note
from sublet.client.client import SyncClient
from sublet.connection.settings import Settings, check
from sublet.errors import NotFound
from sublet.protocol import server_info
from sublet.protocol.plan import Plan, follow_sync

if TYPE_CHECKING:
    from sublet.app import App

T = TypeVar("T")


def settings_of(args: Namespace) -> Settings:
    """Flag, else environment, else default. Raises Invalid."""
    return Settings.read(args.redis_url, args.namespace)


def settings_for(args: Namespace, app: "App | None") -> Settings:
    """Flag, else what the app was given, else environment, else default. Raises Invalid."""
    said = settings_of(args)
    if app is None:
        return said
    changes = {name: getattr(said, name) for name in ("redis_url", "namespace") if getattr(args, name)}
    return replace(app.settings, **changes)


def client_of(settings: Settings) -> SyncClient:
    """A client that connects on first use. Raises Invalid for a URL that cannot be."""
    check(settings)
    return SyncClient(settings)


def read(client: SyncClient, plan: Plan[T], args: Namespace | None = None) -> T:
    """Carry out a plan that only reads; unlike the client's own methods it makes no namespace where there is none.

    A person whose command this is (`args`, without --json) is told on stderr that there is none.
    """
    there = follow_sync(
        client.transport.run, client.operations.exists()
    )  # or it would not see all, and say that there is no more
    none = "" if there else f"there is no namespace {client.transport.settings.namespace} yet"
    try:
        found = follow_sync(client.transport.run, plan)
    except NotFound as error:
        if none:
            error.add_note(none)
        raise
    if none and args and not args.json:
        note(none)
    return found


def server_time(client: SyncClient) -> datetime:
    """The moment, by the one clock."""
    return client.transport.run(server_info.clock())


def process_name(verb: str) -> str:
    """A name for this process, as Redis notes it with what it did."""
    host = "".join(c for c in os.uname().nodename if c.isalnum() or c in "_.-")[:64] or "host"
    return f"{verb}-{host}-{os.getpid()}"
