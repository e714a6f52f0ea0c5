"""Run attempts of jobs."""
