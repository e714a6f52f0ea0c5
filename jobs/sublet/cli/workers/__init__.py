"""Commands that run or show processes: work, serve, workers, pools, scale."""
