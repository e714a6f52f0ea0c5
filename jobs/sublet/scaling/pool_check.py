"""Check of a pool before it is stored. Not in the invokers: they must not import pydantic at a submit's start."""

from sublet.operations.pool import Pool, check
from sublet.scaling.invokers import check_target


def check_pool(pool: Pool) -> None:
    """Check a pool's settings, its invoker and its target. Raises Invalid."""
    check(pool)
    check_target(pool.invoker, pool.target)
