"""Small defects, made on purpose in copies of the code: each must be noticed by a test. See `docs/mutants.md`."""

from tests.mutants import clients, endings, leases, queues, upkeep

MUTANTS = (*leases.MUTANTS, *endings.MUTANTS, *queues.MUTANTS, *upkeep.MUTANTS, *clients.MUTANTS)
