"""Stateless entry points: what a platform calls, does its work, and may kill at any line."""
