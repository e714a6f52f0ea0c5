"""Operations of several Redis calls, as plans: generators of calls, without I/O."""
