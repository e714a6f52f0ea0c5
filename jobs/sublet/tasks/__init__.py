"""Tasks: names, arguments, failures, middleware, catalogue, and programs as tasks."""
