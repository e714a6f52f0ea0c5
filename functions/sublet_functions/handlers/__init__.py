"""One file per verb: each handler turns a call into a response. Its docstring is its description in the OpenAPI document."""
