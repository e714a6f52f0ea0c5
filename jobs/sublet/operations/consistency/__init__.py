"""Find and repair stored data that does not agree."""
