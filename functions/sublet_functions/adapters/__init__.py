"""Parts of entry points for other servers and platforms."""
