"""What the entry points for other servers and platforms are made of."""
