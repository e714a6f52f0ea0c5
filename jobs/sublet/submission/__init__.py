"""Submitting jobs."""
