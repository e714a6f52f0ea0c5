"""Operations of several calls: maintenance, statistics, pools, repair."""
