"""Small defects, planted in copies of the code: a test must fail for each. See `tests/faults/mutants/README.md`."""

from tests.faults.mutants import (
    apps,
    clients,
    commands,
    counts,
    durability,
    endings,
    hooks,
    leases,
    maintenance,
    memory,
    occurrences,
    pools,
    queues,
    repairs,
    roll,
    workers,
)

MUTANTS = (
    *leases.MUTANTS,
    *endings.MUTANTS,
    *memory.MUTANTS,
    *queues.MUTANTS,
    *roll.MUTANTS,
    *maintenance.MUTANTS,
    *clients.MUTANTS,
    *workers.MUTANTS,
    *apps.MUTANTS,
    *hooks.MUTANTS,
    *counts.MUTANTS,
    *occurrences.MUTANTS,
    *pools.MUTANTS,
    *repairs.MUTANTS,
    *durability.MUTANTS,
    *commands.MUTANTS,
)
