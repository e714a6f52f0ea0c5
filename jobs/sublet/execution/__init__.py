"""Runs one attempt."""
