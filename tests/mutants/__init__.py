"""Small defects, made on purpose in copies of the code: each must be noticed by a test. See `docs/mutants.md`."""

from tests.mutants import clients, counts, endings, hooks, leases, pools, queues, roll, slots, upkeep, workers

MUTANTS = (
    *leases.MUTANTS,
    *endings.MUTANTS,
    *queues.MUTANTS,
    *roll.MUTANTS,
    *upkeep.MUTANTS,
    *clients.MUTANTS,
    *workers.MUTANTS,
    *hooks.MUTANTS,
    *counts.MUTANTS,
    *slots.MUTANTS,
    *pools.MUTANTS,
)
