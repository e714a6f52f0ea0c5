"""The promises, attacked: real servers, real processes, real signals, and a ledger outside Redis that knows the truth."""
