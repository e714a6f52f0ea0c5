"""The protocol with Redis, without I/O."""
