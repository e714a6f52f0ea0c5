"""Texts of the page, by contestant."""

NAMES = {
    "sublet": "Sublet", "sublet plain": "Sublet, plain functions", "sublet http": "Sublet over HTTP",
    "sublet restarted": "Sublet, restarted on the same host", "bullmq": "BullMQ", "saq": "SAQ", "streaq": "streaQ",
    "rq": "RQ", "dramatiq": "Dramatiq", "huey": "Huey", "huey processes": "Huey, processes", "celery": "Celery",
    "celery threads": "Celery, threads",
}  # fmt: skip
AGAIN = {
    "sublet": "lease 30 s", "sublet plain": "lease 30 s", "sublet http": "lease 30 s",
    "sublet restarted": "at once: a worker sees that its predecessor on the host is dead",
    "bullmq": "lock 30 s, looked for every 30 s", "taskiq": "claimed again after 600 s (idle_timeout)",
    "saq": "aborted: one attempt (retries = 1)", "streaq": "claimed again after 60 s (idle_timeout)",
    "arq": "after 310 s (job_timeout and 10 s)", "rq": "failed at a clean-up (every 600 s): no retries",
    "dramatiq": "after 60 s, by one command in a thousand (maintenance_chance)",
    "huey": "no: a job leaves its list when it starts", "huey processes": "no: a job leaves its list when it starts",
    "celery": "no: acknowledged at its start; what is prefetched after 1 h (visibility_timeout)",
}  # fmt: skip
"""How they handle interrupted jobs by default: from documentation or source."""
GUIDES = {
    "bullmq": "https://docs.bullmq.io/guide/workers/concurrency", "taskiq": "https://taskiq-python.github.io/guide/cli.html",
    "saq": "https://saq-py.readthedocs.io/", "streaq": "https://streaq.readthedocs.io/",
    "arq": "https://arq-docs.helpmanuel.io/", "rq": "https://python-rq.org/docs/workers/",
    "dramatiq": "https://dramatiq.io/advanced.html", "huey": "https://huey.readthedocs.io/en/latest/consumer.html",
    "huey processes": "https://huey.readthedocs.io/en/latest/consumer.html",
    "celery": "https://docs.celeryq.dev/en/stable/userguide/optimizing.html",
}  # fmt: skip
