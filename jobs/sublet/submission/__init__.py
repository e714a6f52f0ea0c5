"""Submitting jobs: ids, batches, memory admission, durability, partitions."""
