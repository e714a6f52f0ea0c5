"""Settings and client of a command."""

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
    """Return the settings: flag, else environment, else default. Raises Invalid."""
    return Settings.read(args.redis_url, args.namespace)


def settings_for(args: Namespace, app: "App | None") -> Settings:
    """Return the settings: flag, else the app's, else environment, else default. Raises Invalid."""
    settings = settings_of(args)
    if app is None:
        return settings
    changes = {name: getattr(settings, name) for name in ("redis_url", "namespace") if getattr(args, name)}
    return replace(app.settings, **changes)


def client_of(settings: Settings) -> SyncClient:
    """Return a client that connects at first use. Raises Invalid for an invalid URL."""
    check(settings)
    return SyncClient(settings)


def read(client: SyncClient, plan: Plan[T], args: Namespace | None = None) -> T:
    """Run a plan that only reads. Unlike the methods of the client, it does not create a missing namespace.

    With `args` (and without --json), a note on stderr reports a namespace that does not exist.
    """
    there = follow_sync(client.transport.run, client.operations.exists())
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
    """Return the server's time, the only clock that counts."""
    return client.transport.run(server_info.clock())


def process_name(verb: str) -> str:
    """Return this process's name, stored with its actions."""
    host = "".join(c for c in os.uname().nodename if c.isalnum() or c in "_.-")[:64] or "host"
    return f"{verb}-{host}-{os.getpid()}"
