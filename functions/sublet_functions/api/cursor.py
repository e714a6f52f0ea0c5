"""Cursors as callers see them: one word, of which they need know nothing."""

import base64

from sublet_functions.api.response import Problem


def sealed(cursor: str | None) -> str | None:
    """A cursor as callers get it: one word, of which they need know nothing."""
    return base64.urlsafe_b64encode(cursor.encode()).decode().rstrip("=") if cursor else None


def opened(cursor: str | None) -> str | None:
    """The cursor that `sealed` has made. Raises Problem for one from elsewhere."""
    if cursor is None:
        return None
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except ValueError:
        fault = {"loc": ["query", "cursor"], "msg": "not a cursor of ours", "type": "value_error"}
        raise Problem(
            "invalid", "cursor: use the one of the page before, with the same filters", errors=[fault]
        ) from None
