"""The conformance run: test a client in any language against the protocol's rules.

The client is a command: `CMD submit TASK JSON` prints the job's id as its last word and exits 0; `CMD work`
works until SIGTERM. SUBLET_REDIS_URL names a proxy that records commands and injects faults.
"""
