"""Running one attempt: on the event loop, in a child process, in a thread."""
