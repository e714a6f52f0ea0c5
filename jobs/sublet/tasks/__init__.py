"""Arguments and middleware of tasks, and tasks that run programs."""
