"""Operations that take several calls, without I/O: maintenance, statistics, pools, repair."""
