"""The conformance run: test a client in any language against the protocol's rules.

The client is a command line. `CMD submit TASK JSON` stores a job, prints its id on the last line and exits
0; `CMD work` works until SIGTERM. Its environment:

    SUBLET_REDIS_URL   a proxy in front of Redis, which records commands and injects faults
    SUBLET_NAMESPACE   a namespace with one partition
    SUBLET_QUEUES      first,second: the worker's queues in this order; submit uses the first
    SUBLET_LEASE       3, in seconds
    SUBLET_SLOTS       the maximum number of concurrent jobs
    SUBLET_PARTITIONS  1

It has three tasks: `echo`, whose result is its whole payload, {"value": anything}; `sleep`, which takes
{"seconds": s}; `boom`, which fails with {"message": text}. Each trial has its own namespace, and all of it
runs on loopback.
"""
