"""Chaos tests: faults in real servers, processes and connections, checked against a ledger outside Redis."""
