"""Parts of the entry points for other servers and platforms."""
