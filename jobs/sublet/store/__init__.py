"""Access to jobs: in Redis (`store`) or over the HTTP API (`http`); workers use either."""
