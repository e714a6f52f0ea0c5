"""`check_pool`, apart from the invokers: they must not import pydantic at a submit's start."""

from sublet.operations.pool import Pool, check
from sublet.scaling.invokers import check_target


def check_pool(pool: Pool) -> None:
    """Check a pool's settings, invoker and target. Raises Invalid."""
    check(pool)
    check_target(pool.invoker, pool.target)
