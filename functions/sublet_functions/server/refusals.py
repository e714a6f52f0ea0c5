"""Last responses of a connection: for requests that do not reach the application."""

from typing import Any

from aiohttp.http_exceptions import LineTooLong

from sublet_functions.http.limits import Limits
from sublet_functions.http.problems import Problem
from sublet_functions.http.response import Response
from sublet_functions.server.writer import encode_response


def encode_last(response: Response) -> bytes:
    """Encode the last response of a connection as bytes."""
    assert isinstance(response.body, bytes)
    return encode_response(response, response.body, keep=False)


def close(problem: Problem) -> Response:
    """Return a problem as a response after which the connection is closed."""
    response = problem.response()
    response.headers["Connection"] = "close"
    return response


def refusal(slug: str, detail: str) -> Response:
    """Return a response with the problem `slug`, after which the connection is closed."""
    return close(Problem(slug, detail))


def malformed(error: BaseException | None, limits: Limits) -> Response:
    """Return the last response for malformed or too large HTTP."""
    if isinstance(error, Problem):
        return close(error)
    args: tuple[Any, ...] = error.args if error else ()
    if isinstance(error, LineTooLong):
        if args[1:2] == (limits.line,):
            return refusal(
                "uri-too-long", f"the URL has more than {limits.line:,} bytes, the limit: shorten it"
            )
        return refusal(
            "too-many-headers", f"a header has more than {limits.field:,} bytes, the limit: shorten it"
        )
    if args and "Too many headers" in str(args[0]):
        return refusal(
            "too-many-headers", f"the request has more than {limits.headers} headers, the limit: send fewer"
        )
    return refusal(
        "bad-request",
        "the request is not valid HTTP/1.1 (RFC 9112): check its request line, headers and body length",
    )
