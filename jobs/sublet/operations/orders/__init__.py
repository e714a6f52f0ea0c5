"""Orders of operators that take several calls."""
