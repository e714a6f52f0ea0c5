"""The framework-free HTTP API: the route table, requests, responses, parsing, tokens."""
