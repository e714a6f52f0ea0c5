"""The API: the table of routes, the dispatch of requests to handlers, and the OpenAPI document."""
