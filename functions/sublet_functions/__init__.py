"""Sublet over HTTP and on platforms: API, adapters, and the worker and tick as functions."""
