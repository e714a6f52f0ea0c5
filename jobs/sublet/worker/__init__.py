"""One worker."""
