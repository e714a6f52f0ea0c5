"""The demo: real work on a real server, done by workers that are killed and frozen before your eyes."""
