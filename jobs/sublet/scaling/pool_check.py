"""`check_pool`. It is not in the invokers' package, which a submit must not wait for pydantic to import."""

from sublet.operations.pool import Pool, check
from sublet.scaling.invokers import check_target


def check_pool(pool: Pool) -> None:
    """Check a pool's settings, invoker and target. Raises Invalid."""
    check(pool)
    check_target(pool.invoker, pool.target)
