"""The conformance run: test a client in any language against the protocol's rules.

The client is a command line: `CMD submit TASK JSON` stores a job, prints its id as the last word and exits 0;
`CMD work` works until SIGTERM. SUBLET_REDIS_URL is a proxy in front of Redis, which records commands and
injects faults. Each trial has its own namespace.
"""
