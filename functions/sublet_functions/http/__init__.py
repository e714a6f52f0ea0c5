"""What every handler needs of HTTP: requests, responses, problems, bodies, queries, tokens, cursors. No framework."""
