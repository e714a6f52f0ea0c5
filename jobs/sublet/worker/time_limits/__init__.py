"""The limits of time that end attempts and workers."""
