"""Commands on jobs and queues: submit, get, list, queues, stats, cancel, retry, promote, pause, resume, configure."""
