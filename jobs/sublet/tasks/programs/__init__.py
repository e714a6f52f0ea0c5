"""Programs as tasks: shell commands, and the guard of their processes."""
