"""A deterministic simulation of everything that may go wrong between Sublet's clients and Redis."""
