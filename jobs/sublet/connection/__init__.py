"""All I/O with Redis: settings, URLs, transports, pipelines, routing."""
