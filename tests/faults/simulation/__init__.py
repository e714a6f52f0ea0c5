"""A deterministic simulation of faults between Sublet's clients and Redis."""
