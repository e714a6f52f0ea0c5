"""Schedules: rules that submit jobs at given moments."""
