"""Models of bodies, queries and responses."""
