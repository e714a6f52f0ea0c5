"""Recurring jobs: definitions, recurrences, occurrences, firing."""
