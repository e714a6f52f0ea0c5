"""Commands on jobs and queues."""
