"""Serve the dashboard's page and its files. They carry no data and need no token."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files as package_files
from typing import Any

from sublet_functions.handlers.call import Call
from sublet_functions.http.problems import Problem
from sublet_functions.http.response import Response
from sublet_functions.schemas.query import AnyQuery, Empty

MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
PAGE = "index.html"
ROOT, MODULES = "{root}", "{modules}"
_DESCRIPTION = rb"/\*\*(?:(?!\*/).)*\*/"
_DESCRIPTIONS = re.compile(rb"^[ \t]*%b[ \t]*\n|%b" % (_DESCRIPTION, _DESCRIPTION), re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file with its entity tag."""

    name: str
    body: bytes
    tag: str

    @classmethod
    def of(cls, name: str, body: bytes) -> "StaticFile":
        """Make a file, tagged by its content."""
        return cls(name, body, f'"{hashlib.sha256(body).hexdigest()[:20]}"')


@cache
def static_files() -> Mapping[str, StaticFile]:
    """Return the dashboard's files by name, modules without `/** … */` comments."""
    folder = package_files("sublet_functions.dashboard") / "static"
    found = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    return {
        name: StaticFile.of(name, _DESCRIPTIONS.sub(b"", body) if name.endswith(".js") else body)
        for name, body in sorted(found.items())
    }


@cache
def _page(root: str) -> StaticFile:
    modules = "\n".join(
        f'<link rel="modulepreload" href="{root}ui/static/{name}">'
        for name in static_files()
        if name.endswith(".js")
    )
    text = static_files()[PAGE].body.decode().replace(MODULES, modules).replace(ROOT, root)
    return StaticFile.of(PAGE, text.encode())


async def get_page(call: Call[Empty, AnyQuery]) -> Response:
    """Return the dashboard: one HTML page, whose script shows the view for the path below `/ui`. `/ui/` is
    redirected to `/ui`.
    """
    if call.request.path == "/ui/":
        return Response(307, headers={"Location": "../ui"})  # relative: a gateway's prefix is unknown
    depth = call.request.path.count("/") - 1
    return _response(call, _page("../" * depth or "./"))


async def get_file(call: Call[Empty, Empty]) -> Response:
    """Return a file of the dashboard."""
    name = call.path["file"]
    found = static_files().get(name) if name != PAGE else None
    if found is None:
        raise Problem("not-found", f"the dashboard has no file {name}: reload /ui")
    return _response(call, found)


def _response(call: Call[Any, Any], file: StaticFile) -> Response:
    headers = {"ETag": file.tag, "Cache-Control": "no-cache", "Content-Security-Policy": POLICY}
    known = call.request.headers.get("if-none-match", "")
    if any(tag.strip().removeprefix("W/") in (file.tag, "*") for tag in known.split(",")):
        return Response(304, headers=headers)
    media_type = MEDIA_TYPES[file.name.rpartition(".")[2]]
    return Response(200, file.body, {"Content-Type": media_type, **headers})
