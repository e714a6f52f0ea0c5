"""How a job enters a queue, without I/O: ids, batches, memory admission, durability, partitions."""
