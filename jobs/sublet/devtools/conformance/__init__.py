"""The conformance run: it plays the scheduler's other half to a client in any language, and says which rules the client keeps.

The client is a command line. It is run as `CMD submit TASK JSON`, which stores a job, prints its id on the last line and exits 0,
and as `CMD work`, which works until SIGTERM. It finds in its environment

    SUBLET_REDIS_URL   redis://…       where Redis is (in truth a proxy, which sees each command and loses some)
    SUBLET_NAMESPACE   a name          whose one partition is 0: the base is {<namespace>:0}
    SUBLET_QUEUES      first,second    the queues to work for, in this order; jobs are submitted to the first
    SUBLET_LEASE       3               seconds of a lease
    SUBLET_SLOTS       2               how many jobs it may run at a time; fewer will do
    SUBLET_PARTITIONS  1               the namespace has one

and has three tasks: `echo`, whose result is its whole payload, {"value": anything}; `sleep`, which takes {"seconds": s}; and
`boom`, which fails with {"message": words}. All of it runs on loopback, in a namespace of its own for each trial.
"""
