"""Pagination cursors: a position in a list, in base64."""

import base64

from sublet_functions.http.problems import Problem, invalid_value


def encode_cursor(cursor: str | None) -> str | None:
    """Encode a position as a cursor; None for None or empty."""
    return base64.urlsafe_b64encode(cursor.encode()).decode().rstrip("=") if cursor else None


def decode_cursor(cursor: str | None, where: str = "query") -> str | None:
    """Decode a cursor to a position; None stays None. Raises Problem if it is not base64; `where`: its part
    of the request.
    """
    if cursor is None:
        return None
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except ValueError:
        error = invalid_value("not a cursor of this API", where, "cursor")
        raise Problem(
            "invalid", "cursor: use the one of the previous page, with the same filters", errors=[error]
        ) from None
