"""Commands for development: dev, init, conformance, demo, test, simulate, chaos, version."""
