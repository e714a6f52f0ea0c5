"""Parts that the entry points for other servers and platforms share."""
