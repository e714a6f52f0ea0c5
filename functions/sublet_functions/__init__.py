"""Sublet over HTTP and on platforms: the API, adapters for servers and functions, the worker and the tick as functions."""
