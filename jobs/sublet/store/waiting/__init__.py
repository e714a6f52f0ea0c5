"""How claims wait for jobs, and readers for chunks."""
