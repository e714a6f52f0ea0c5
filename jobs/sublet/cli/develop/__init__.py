"""Commands for development."""
