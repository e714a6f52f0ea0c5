"""The API: routes, dispatch to handlers, and the OpenAPI document."""
