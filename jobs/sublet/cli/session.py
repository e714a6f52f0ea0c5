"""A command's settings and Redis client."""

import os
from argparse import Namespace
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from sublet.cli.output import note
from sublet.client.sync_client import SyncClient
from sublet.connection.settings import Settings, check
from sublet.errors import NotFound
from sublet.protocol import server_info
from sublet.protocol.plan import Plan

if TYPE_CHECKING:
    from sublet.app import App

T = TypeVar("T")


def settings_of(args: Namespace) -> Settings:
    """Return the settings of the environment, changed by --redis-url and --namespace. Raises Invalid."""
    return Settings.read(args.redis_url, args.namespace)


def settings_for(args: Namespace, app: "App | None") -> Settings:
    """Return the app's settings, changed by --redis-url and --namespace; `settings_of` without an app. Raises
    Invalid.
    """
    settings = settings_of(args)
    if app is None:
        return settings
    changes = {name: getattr(settings, name) for name in ("redis_url", "namespace") if getattr(args, name)}
    return replace(app.settings, **changes)


def client_of(settings: Settings) -> SyncClient:
    """Return a client, which connects at first use; the caller closes it. Raises Invalid for an invalid URL."""
    check(settings)
    return SyncClient(settings)


def read(client: SyncClient, plan: Plan[T], args: Namespace | None = None) -> T:
    """Run a plan that stores no job; return its result. If the namespace does not exist, that is noted on
    stderr (with `args`, without --json) and in the error NotFound.
    """
    there = client.store.follow_existing(client.store.operations.exists())
    none = (
        ""
        if there
        else f"there is no namespace {client.store.settings.namespace} yet: the first job creates it"
    )
    try:
        found = client.store.follow_existing(plan)
    except NotFound as error:
        if none:
            error.add_note(none)
        raise
    if none and args and not args.json:
        note(none)
    return found


def server_time(client: SyncClient) -> datetime:
    """Return the Redis server's time, which decides all deadlines."""
    return client.store.transport.run(server_info.clock())


def replace_ages(args: Namespace, client: SyncClient) -> None:
    """Replace ages (seconds) in --since and --until by times of the server's clock."""
    for name in ("since", "until"):
        age = getattr(args, name)
        if isinstance(age, float):
            setattr(args, name, server_time(client) - timedelta(seconds=age))


def process_name(verb: str) -> str:
    """Return VERB-HOST-PID, under which Redis records the maintenance that this process does."""
    host = "".join(c for c in os.uname().nodename if c.isalnum() or c in "_.-")[:64] or "host"
    return f"{verb}-{host}-{os.getpid()}"
