"""Commands that run or show processes."""
