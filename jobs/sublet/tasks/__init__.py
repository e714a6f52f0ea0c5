"""Parts of a task."""
