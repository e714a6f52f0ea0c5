"""Operations of several calls."""
