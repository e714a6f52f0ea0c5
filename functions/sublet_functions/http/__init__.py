"""HTTP for the handlers, whatever the server: requests, responses, problems, authentication."""
