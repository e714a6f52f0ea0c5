"""Workflows and steps in the simulation: jobs that wait, tasks that have steps, and the promises to both."""
