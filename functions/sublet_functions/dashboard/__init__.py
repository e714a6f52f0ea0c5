"""The dashboard: one page and its modules, a client of the public API."""
