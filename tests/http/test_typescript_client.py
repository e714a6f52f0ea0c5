"""A TypeScript client, generated from the OpenAPI document with default settings, compiles and works."""

import asyncio
import json
import subprocess

import pytest

from sublet_functions.api.openapi import document
from sublet_functions.api.routes import ROUTES
from tests.support.http_server import serving
from tests.support.npm import packages
from tests.support.paths import ROOT

pytest_plugins = ["tests.support.http_settings"]
pytestmark = pytest.mark.timeout(300)

CLIENT = ROOT / "tests" / "support" / "client.ts"
PACKAGES = ("openapi-typescript@7", "openapi-fetch@0.17", "typescript@5", "@types/node@20")
COMPILER = {
    "strict": True,
    "module": "nodenext",
    "target": "es2022",
    "lib": ["es2022", "dom", "dom.iterable"],
    "types": ["node"],
    "outDir": "made",
}
PRINTED = """\
submitted true
batch 201 201
lease string 300
completed completed true
refused true
read 1 0
listed 2 null
schedule active
pool 10
worker false
tasks 1
cancel 409
invalid #/priority
"""


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A folder with the generator, the compiler and the client's source."""
    made = tmp_path_factory.mktemp("typescript")
    installed = packages(made, *PACKAGES)
    if not (made / "node_modules").exists():
        (made / "node_modules").symlink_to(installed)
    (made / "package.json").write_text('{"type": "module"}')
    (made / "tsconfig.json").write_text(json.dumps({"compilerOptions": COMPILER, "files": ["client.ts"]}))
    (made / "client.ts").write_text(CLIENT.read_text())
    (made / "api.json").write_text(json.dumps(document(ROUTES)))
    return made


def run(folder, program, *words):
    """Run a program in the folder; return its output."""
    done = subprocess.run(
        ["node", folder / program, *words], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def test_a_generated_client_compiles_and_works(folder, settings):
    generator = "node_modules/openapi-typescript/bin/cli.js"
    await asyncio.to_thread(run, folder, generator, "api.json", "-o", "api.ts")
    await asyncio.to_thread(run, folder, "node_modules/typescript/bin/tsc", "-p", ".")
    async with serving(settings) as url:
        assert await asyncio.to_thread(run, folder, "made/client.js", url) == PRINTED
