"""Starts the workers that a pool is owed."""
