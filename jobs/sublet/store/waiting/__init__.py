"""How claims wait: wake-ups, and the queues that have jobs."""
