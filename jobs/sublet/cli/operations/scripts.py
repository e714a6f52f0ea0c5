"""`scripts`: list the Lua scripts, or load them."""

from argparse import Namespace

from sublet.cli.output import Cell, document, note, table
from sublet.cli.session import client_of, settings_of
from sublet.client.sync_client import SyncClient
from sublet.errors import Invalid, Unavailable
from sublet.protocol import server_info
from sublet.protocol.bundle import bundle
from sublet.protocol.scripts import NAMES, Call, script

LOADED = {True: Cell("yes", "green"), False: Cell("no"), None: Cell("no server", "yellow")}


def scripts(args: Namespace) -> int:
    """List the scripts with their SHA-1, and whether the first partition's server has them; with --load, load
    them into all servers first. With --text, print them as one JSON document.
    """
    if args.text:
        if not args.json or args.load:
            raise Invalid(
                "--text prints a JSON document and asks no server: use it with --json, without --load"
            )
        document(bundle())
        return 0
    ours = [script(name) for name in NAMES]
    shas = [each.sha for each in ours]
    with client_of(settings_of(args)) as client:
        if args.load:
            for base in client.store.operations.bases:
                for each in ours:
                    commands = (
                        ("HGET", base, "layout"),
                        ("SCRIPT", "LOAD", each.text),
                    )  # the key names the server
                    client.store.transport.run(Call(commands, len))
        loaded = _loaded(client, shas)
    if args.json:
        document(
            [
                {"name": name, "sha": sha, "loaded": yes}
                for name, sha, yes in zip(NAMES, shas, loaded, strict=True)
            ]
        )
        return 0
    table(
        ["SCRIPT", "SHA-1", "LOADED"],
        [[n, s, LOADED[yes]] for n, s, yes in zip(NAMES, shas, loaded, strict=True)],
    )
    note(
        "a script is the libraries that its header names (LIBS), then its own file; the server loads it at its first use"
    )
    return 0


def _loaded(client: SyncClient, shas: list[str]) -> list[bool] | list[None]:
    try:
        return client.store.transport.run(server_info.known(shas))
    except Unavailable:
        return [None] * len(shas)
