"""The API: its routes, their dispatch to handlers, and the OpenAPI document."""
