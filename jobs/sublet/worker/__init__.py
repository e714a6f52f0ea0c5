"""One worker: it claims jobs, keeps their leases alive and settles them."""
