"""One worker: it claims jobs and runs them."""
