"""The conformance run: test a client in any language against the protocol's rules.

The client is a command line. `CMD submit TASK JSON` stores a job, prints its id on the last line and exits
0; `CMD work` works until SIGTERM. Its environment:

    SUBLET_REDIS_URL   redis://…       the URL of a proxy in front of Redis, which records commands and injects faults
    SUBLET_NAMESPACE   a name          with one partition, 0: its keys begin with {<namespace>:0}
    SUBLET_QUEUES      first,second    the queues to work for, in this order; jobs are submitted to the first
    SUBLET_LEASE       3               the lease in seconds
    SUBLET_SLOTS       2               the maximum number of concurrent jobs
    SUBLET_PARTITIONS  1               the partition count

It has three tasks: `echo`, whose result is its whole payload, {"value": anything}; `sleep`, which takes
{"seconds": s}; `boom`, which fails with {"message": text}. Each trial has its own namespace, and all of it
runs on loopback.
"""
