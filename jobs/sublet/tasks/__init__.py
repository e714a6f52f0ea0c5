"""What a task is made of: its arguments, its command, its middleware."""
