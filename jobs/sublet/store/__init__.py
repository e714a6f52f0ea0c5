"""The sources of jobs: Redis (`store`) and the HTTP API (`http`), behind one interface (`source`)."""
