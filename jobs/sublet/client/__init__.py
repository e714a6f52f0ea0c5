"""Clients, handles of jobs, and `client.schedules`."""
