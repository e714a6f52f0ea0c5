"""Handlers of the API: a handler's docstring is its description in the OpenAPI document."""
