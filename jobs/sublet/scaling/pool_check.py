"""Check a pool's settings and target. Apart from the invokers, which must not import pydantic."""

from sublet.operations.pool import Pool, check
from sublet.scaling.invokers import check_target


def check_pool(pool: Pool) -> None:
    """Raise Invalid unless a pool's settings are valid and `check_target` accepts its target."""
    check(pool)
    check_target(pool.invoker, pool.target)
