"""Store new jobs, with admission control and durability. Without I/O."""
