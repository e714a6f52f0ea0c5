"""A namespace with something for each view of the dashboard, made over HTTP."""

import json
import urllib.request
from typing import Any

HOSTILE = {
    "markup": "<img src=x onerror=alert(1)><script>alert(2)</script><b>bold</b>",
    "ansi": "\x1b[31mred\x1b[0m \x07bell",
    "direction": "invoice\u202efdp.exe and \u2066isolated\u2069",
    "template": "{{7*7}} ${7*7} javascript:alert(3)",
}
"""Texts that a task, or a client, may store."""
LONG = "a line without an end " * 11_500
"""About 256 KiB in one line."""
TRACEBACK = """Traceback (most recent call last):
  File "/app/tasks.py", line 41, in import_orders
    customer = customers[order.customer]
KeyError: 'c-1841'"""


class Stock:
    """Requests to one server, and the ids of jobs that tests look for."""

    def __init__(self, url: str, token: str = "") -> None:
        self.url = url
        self.token = token
        self.ids: dict[str, str] = {}

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request; returns the parsed answer."""
        data = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {self.token}"} if self.token else {}
        request = urllib.request.Request(self.url + path, method=method, data=data, headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def submit(self, task: str, queue: str = "default", **more: Any) -> str:
        """Submit a job; returns its id."""
        return str(self.ask("POST", "/jobs", {"task": task, "queue": queue, **more})["id"])

    def held(self, task: str, queue: str, worker: str = "mill-7", lease: float = 600, **more: Any) -> Any:
        """Submit a job to an empty queue and claim it; returns the lease."""
        self.submit(task, queue, **more)
        claim = {"queues": [queue], "worker": worker, "lease": lease}
        (lease_of_job,) = self.ask("POST", "/jobs/claim", claim)["jobs"]
        return lease_of_job

    def settle(self, held: Any, verb: str, **body: Any) -> str:
        """Settle, note or renew a lease; returns the job's id."""
        self.ask("POST", f"/jobs/{held['id']}/{verb}", {"token": held["token"], **body})
        return str(held["id"])

    def dead(
        self, task: str, queue: str, code: str, message: str, detail: str = TRACEBACK, **more: Any
    ) -> str:
        """Make a dead job; returns its id."""
        lease = self.held(task, queue, **more)
        return self.settle(lease, "fail", code=code, message=message, detail=detail, again=False)

    def fill(self) -> None:
        """Make jobs in each state, workers, schedules, a pool and queues with limits."""
        self._workers()
        self._finished()
        self._waiting()
        self._schedules()
        self.ask("PUT", "/pools/images", {"queues": ["images"], "max": 5})
        self.ask("PATCH", "/queues/mail", {"paused": True, "limits": {"jobs": 1000, "bytes": 5_000_000}})
        self.ask("PUT", "/queues/mail/groups/acme", {"concurrency": 2, "share": 3})
        self.ask("GET", "/tick")

    def _workers(self) -> None:
        about = {
            "host": "mill",
            "pid": 4711,
            "platform": "process",
            "slots": 10,
            "completed": 128,
            "failed": 4,
        }
        self.ask("PUT", "/workers/mill-7", {"life": "1", "about": about | {"queues": ["default", "images"]}})
        self.ask("PUT", "/workers/mill-8", {"life": "1", "about": {"host": "mill", "queues": ["mail"]}})

    def _finished(self) -> None:
        lease = self.held("resize_image", "images", payload={"path": "a.png"}, keep_payload=True)
        self.ids["completed"] = self.settle(lease, "complete", result={"width": 640, "height": 480})
        for n in range(3):
            self.dead("import_orders", "imports", "KeyError", f"order {n + 17} has no customer 'c-{n}'")
        lease = self.held("import_orders", "imports", backoff=3600)
        self.settle(lease, "fail", code="KeyError", message="order 20 has no customer 'c-3'")
        self.ids["dead"] = self.dead("charge_card", "billing", "timed_out", "the attempt took 300 s")
        self.ids["cancelled"] = self.submit("charge_card", "billing")
        self.ask("POST", f"/jobs/{self.ids['cancelled']}/cancel")

    def _waiting(self) -> None:
        lease = self.held("resize_image", "images", tags=["tenant:acme", "import"])
        self.settle(lease, "note", log="read a.png\nwrote a-640.png", checkpoint={"page": 3})
        self.ids["running"] = self.settle(lease, "heartbeat", progress={"fraction": 0.4}, lease=600)
        lease = self.held("sync_crm", "crm", backoff=3600)
        self.ids["retried"] = self.settle(lease, "fail", code="HTTPError", message="504", detail=TRACEBACK)
        self.ids["scheduled"] = self.submit("nightly_report", delay=3600)
        self.ids["queued"] = self.submit("send_mail", "mail", payload={"to": "ada@example.org"}, priority=5)
        for n in range(4):
            self.submit("send_mail", "mail", payload={"to": f"{n}@example.org"})

    def _schedules(self) -> None:
        nightly = {"task": "nightly_report", "cron": "30 2 * * *", "tz": "Europe/Berlin"}
        self.ask("PUT", "/schedules/nightly-report", nightly | {"payload": {"kind": "all"}})
        self.ask("PUT", "/schedules/crm", {"task": "sync_crm", "every": 86_400, "queue": "crm"})
        self.ask(
            "PUT", "/schedules/invoices", {"task": "charge_card", "cron": "0 6 1 * *", "queue": "billing"}
        )
        self.ask("POST", "/schedules/invoices/pause")

    def hostile(self) -> str:
        """Make a job whose every text is hostile; returns its id."""
        lease = self.held("evil", "hostile", payload={**HOSTILE, "long": LONG[:200_000]})
        self.settle(lease, "note", log="\n".join(HOSTILE.values()), checkpoint=HOSTILE)
        message = " ".join(HOSTILE.values())
        return self.settle(lease, "fail", code="Evil", message=message[:900], detail=LONG[:4000], again=False)
