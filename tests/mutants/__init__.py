"""Small defects, made on purpose in copies of the code: each must be noticed by a test. See `tests/mutants/README.md`."""

from tests.mutants import (
    clients,
    counts,
    durability,
    endings,
    hooks,
    leases,
    memory,
    pools,
    queues,
    repairs,
    roll,
    slots,
    upkeep,
    workers,
)

MUTANTS = (
    *leases.MUTANTS,
    *endings.MUTANTS,
    *memory.MUTANTS,
    *queues.MUTANTS,
    *roll.MUTANTS,
    *upkeep.MUTANTS,
    *clients.MUTANTS,
    *workers.MUTANTS,
    *hooks.MUTANTS,
    *counts.MUTANTS,
    *slots.MUTANTS,
    *pools.MUTANTS,
    *repairs.MUTANTS,
    *durability.MUTANTS,
)
