"""Schemathesis checks the running server against its OpenAPI document, with all checks and without
undocumented fields in responses.

`SUBLET_TEST_DRAWN=500` sets the number of requests per operation, `SUBLET_TEST_SEED=7` another seed.
"""

import asyncio
import json
import os
import sys

from sublet_functions.handlers.worker_host import WorkerHost
from tests.support.draws import few
from tests.support.http_server import ADMIN, SECRET, ask, serving
from tests.support.paths import ROOT
from tests.support.tasks import app

pytest_plugins = ["tests.support.http_settings"]

DRAWN = os.environ.get("SUBLET_TEST_DRAWN", f"{few(8)}")
SEED = os.environ.get("SUBLET_TEST_SEED", "1")
SECONDS = 120 + 10 * int(DRAWN)
CONFIG = """
[checks.negative_data_rejection]
expected-statuses = ["400", "401", "403", "404", "405", "409", "413", "414", "415", "422", "429", "431"]
"""
"""Its default list lacks 413, 414 and 431, which refuse oversized data."""


def tightened(described, tokens):
    """The document without additional fields in responses, and without security for a server without tokens.

    Durability is limited to `none`: the server has neither a replica nor a file and would answer 503.
    """
    for model in ("NewJob", "WorkflowJob"):
        durability = described["components"]["schemas"][model]["properties"]["durability"]
        durability["anyOf"][0]["enum"] = ["none"]
    for schema in described["components"]["schemas"].values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    for path in described["paths"].values():
        for operation in path.values():
            operation["security"] = operation["security"] if tokens else []
    return described


async def check(settings, folder, *words, tokens="", drawn="1"):
    """Run schemathesis against a server, and return the responses of each operation."""
    with app.using(settings):
        return await _check(settings, folder, *words, tokens=tokens, drawn=drawn)


async def _check(settings, folder, *words, tokens, drawn):
    async with serving(
        settings, tokens=tokens, worker_host=WorkerHost(app, seconds=1), check_tasks="off"
    ) as url:
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
                output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0, output.decode()[-30_000:]
    return described, {tuple(line.split()) for line in (folder / "seen").read_text().splitlines()}


def operations(described):
    return {operation["operationId"] for path in described["paths"].values() for operation in path.values()}


async def test_a_server_with_tokens_conforms_to_its_openapi_document(settings, tmp_path):
    described, seen = await check(settings, tmp_path, tokens=ADMIN, drawn=DRAWN)
    untried = operations(described) - {name for name, status in seen if status.startswith("2")}
    assert untried <= {"getFile"}, (
        "no request to these operations succeeded; no drawn name is one of the dashboard's files"
    )


async def test_a_server_without_tokens_conforms_to_its_openapi_document(settings, tmp_path):
    _, seen = await check(settings, tmp_path, "--phases", "examples,coverage", "--mode", "positive")
    assert not {status for _, status in seen} & {"401", "403", "500", "503"}
