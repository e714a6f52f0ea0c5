"""Operations that take several Redis calls."""
