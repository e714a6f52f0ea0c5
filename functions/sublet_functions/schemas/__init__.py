"""Pydantic models of the API's bodies, queries and responses. Their descriptions appear in the OpenAPI
document."""
