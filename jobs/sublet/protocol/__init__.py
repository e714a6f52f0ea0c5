"""The protocol without I/O: keys, scripts, verbs, reads, plans, payloads."""
