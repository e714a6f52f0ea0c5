"""The HTTP of handlers: requests, responses, problems, authentication."""
