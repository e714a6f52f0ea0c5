"""Run attempts of jobs: on the event loop, in child processes, in threads."""
