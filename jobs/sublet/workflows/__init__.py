"""Workflows: jobs that wait for others."""
