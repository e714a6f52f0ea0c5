"""The running server held to its own description, by schemathesis: all checks, and answers that say no more than is described.

`SUBLET_TEST_DRAWN=500` draws that many requests per operation, `SUBLET_TEST_SEED=7` others.
"""

import asyncio
import json
import os
import sys

from sublet_functions.handlers.worker_host import WorkerHost
from tests.support.http_server import ADMIN, ROOT, SECRET, ask, serving
from tests.support.tasks import app

pytest_plugins = ["tests.support.http_settings"]

DRAWN = os.environ.get("SUBLET_TEST_DRAWN", "5")
SEED = os.environ.get("SUBLET_TEST_SEED", "1")
SECONDS = 120 + 10 * int(DRAWN)
CONFIG = """
[checks.negative_data_rejection]
expected-statuses = ["400", "401", "403", "404", "405", "409", "413", "414", "415", "422", "429", "431"]
"""
"""Its own list lacks 413, 414 and 431: what is drawn too long may be refused as that, too."""


def tightened(described, tokens):
    """The description, with answers that may have no field which is not in it. A server without tokens asks nobody for one.

    Nobody draws a durability that the server, which has no replica and no file, must answer with 503.
    """
    described["components"]["schemas"]["NewJob"]["properties"]["durability"]["anyOf"][0]["enum"] = ["none"]
    for schema in described["components"]["schemas"].values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    for path in described["paths"].values():
        for operation in path.values():
            operation["security"] = operation["security"] if tokens else []
    return described


async def hold(settings, folder, *words, tokens="", drawn="1"):
    """Run schemathesis against a server; which answers each operation gave."""
    with app.using(settings):
        return await _hold(settings, folder, *words, tokens=tokens, drawn=drawn)


async def _hold(settings, folder, *words, tokens, drawn):
    async with serving(settings, tokens=tokens, worker_host=WorkerHost(app, seconds=1)) as url:
        described = tightened((await ask(url, "GET", "/openapi.json")).json(), tokens)
        (folder / "api.json").write_text(json.dumps(described))
        (folder / "config.toml").write_text(CONFIG)
        env = os.environ | {"PYTHONPATH": str(ROOT), "SCHEMATHESIS_HOOKS": "tests.support.schemathesis_hooks"}
        env |= {"DRAWN_URL": url, "DRAWN_TOKEN": SECRET if tokens else "", "DRAWN_SEEN": str(folder / "seen")}
        command = [
            sys.executable,
            "-m",
            "schemathesis.cli",
            "--config-file",
            "config.toml",
            "--no-color",
            "run",
            "api.json",
        ]
        command += [
            "--url",
            url,
            "--checks",
            "all",
            "--seed",
            SEED,
            "--max-examples",
            drawn,
            "--continue-on-failure",
        ]
        command += [
            "--generation-database",
            "none",
            *(["--header", f"Authorization: Bearer {SECRET}"] if tokens else []),
            *words,
        ]
        process = await asyncio.create_subprocess_exec(
            *command, cwd=folder, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        try:
            async with asyncio.timeout(SECONDS):
                said, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0, said.decode()[-30_000:]
    return described, {tuple(line.split()) for line in (folder / "seen").read_text().splitlines()}


def operations(described):
    return {operation["operationId"] for path in described["paths"].values() for operation in path.values()}


async def test_a_server_with_tokens_does_what_its_description_says(settings, tmp_path):
    described, seen = await hold(settings, tmp_path, tokens=ADMIN, drawn=DRAWN)
    untried = operations(described) - {name for name, status in seen if status.startswith("2")}
    assert not untried, "none of these was ever answered with a success"


async def test_so_does_one_without(settings, tmp_path):
    _, seen = await hold(settings, tmp_path, "--phases", "examples,coverage", "--mode", "positive")
    assert not {status for _, status in seen} & {"401", "403", "500", "503"}
