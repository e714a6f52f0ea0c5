"""Checks of the Redis servers."""
