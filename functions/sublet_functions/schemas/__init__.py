"""Pydantic models of the API's bodies, queries and responses. The OpenAPI document has their descriptions."""
