"""`serve`: run the HTTP API."""

import asyncio
import logging
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from sublet.cli.output import document, write
from sublet.cli.session import client_of, settings_for, settings_of
from sublet.cli.workers.event_loop import calm_collector, loop_factory
from sublet.cli.workers.worker_events import log_to_stderr
from sublet.connection.held_secrets import hold_secrets
from sublet.devtools.bootstrap import missing
from sublet.errors import Invalid
from sublet.execution.app_loader import load_app
from sublet.scaling.signing import Secrets
from sublet.source_tree import install_command
from sublet_functions.http.auth import Tokens

if TYPE_CHECKING:
    from sublet.app import App
    from sublet_functions.handlers.worker_host import WorkerHost

HOST, PORT = "127.0.0.1", 8377
NEEDED = ("aiohttp>=3.14.1", "prometheus-client>=0.22")


def serve(args: Namespace) -> int:
    """Serve HTTP until SIGTERM, SIGHUP or Ctrl-C."""
    _require_packages()
    hold_secrets()
    app = _app(args)
    settings = app.settings if app else settings_of(args)
    # refuses an invalid URL
    with client_of(settings):
        pass
    tokens, secrets = Tokens.read(args.tokens_file), Secrets.read()
    host = args.host or os.environ.get("SUBLET_HOST") or HOST
    port = _port() if args.port is None else args.port
    log_to_stderr(args.json, args.debug)
    logging.getLogger("sublet_functions").setLevel(logging.DEBUG if args.debug else logging.INFO)
    from sublet_functions.handlers.worker_host import WorkerHost
    from sublet_functions.serve import serve as run

    worker_host = WorkerHost(app, seconds=WorkerHost.seconds_of()) if app else None
    api = run(
        settings,
        host,
        port,
        tokens,
        _announcement(args.json, tokens),
        worker_host=worker_host,
        secrets=secrets,
        check_tasks=args.check_tasks or "",
        summon_first=os.environ.get("SUBLET_SUMMON_FIRST", "") not in ("", "0"),
    )
    _run(api, worker_host)
    return 0


def _require_packages() -> None:
    lacking = missing(NEEDED)
    if lacking:
        raise Invalid(f"serving HTTP needs {' and '.join(lacking)}: {install_command('http')}")


def _announcement(as_json: bool, tokens: Tokens) -> Callable[[str], None]:
    def announce(url: str) -> None:
        if as_json:
            document({"url": url, "pid": os.getpid(), "tokens": len(tokens)})
        else:
            write(f"serving {url} · dashboard {url}/ui · {_access(tokens)}")
        sys.stdout.flush()

    return announce


def _run(api: Coroutine[Any, Any, None], worker_host: "WorkerHost | None") -> None:
    from sublet.cli.workers.work import exit_despite_running_tasks

    threads = ThreadPoolExecutor(thread_name_prefix="asyncio")
    calm_collector()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        if worker_host:
            runner.get_loop().set_default_executor(threads)
        runner.run(api)
        if worker_host:
            threads.shutdown(wait=False, cancel_futures=True)
            exit_despite_running_tasks(worker_host.stuck, 0)


def _app(args: Namespace) -> "App | None":
    if not args.app:
        return None
    for flag, variable in (("redis_url", "SUBLET_REDIS_URL"), ("namespace", "SUBLET_NAMESPACE")):
        if getattr(args, flag):
            os.environ[variable] = getattr(args, flag)
    app = load_app(args.app)
    app.settings = settings_for(args, app)
    return app


def _port() -> int:
    for name in ("SUBLET_PORT", "PORT"):
        value = os.environ.get(name)
        if value:
            if not value.isdecimal() or not value.isascii() or int(value[:9]) > 65_535:
                raise Invalid(f"{name}={value[:40]!r}: use 0 to 65535; 0 finds a free port")
            return int(value)
    return PORT


def _access(tokens: Tokens) -> str:
    if not tokens.needed:
        return "this machine alone, no token needed"
    known = "one token" if len(tokens) == 1 else f"{len(tokens)} tokens"
    return (
        f"{known} · open to all for {' and '.join(sorted(tokens.open_roles))}" if tokens.open_roles else known
    )
