"""A lively namespace for pictures of the dashboard: some hours of a shop, with its failures.

Jobs are made over HTTP. Their moments are then moved into the past in Redis, so that ages and times are as after hours.
"""

import math
import random
import re
from collections.abc import Iterable, Sequence
from typing import Any

from sublet.operations.history import MINUTE
from sublet.operations.statistics import BOUNDS
from sublet.protocol import keys
from tests.support import history_samples
from tests.support.dashboard_flows import stored, work
from tests.support.dashboard_jobs import Stock

WORKERS = {
    "mill-1": ("mill", 8, ["mail", "webhooks", "search"], 48_211, 96),
    "mill-2": ("mill", 8, ["mail", "webhooks", "search"], 47_903, 88),
    "press-1": ("press", 4, ["images"], 12_870, 14),
    "quill-1": ("quill", 32, ["llm"], 18_422, 7),
    "desk-1": ("desk", 4, ["imports", "billing", "crm", "reports", "catalogue"], 9_204, 431),
}
"""Host, slots, queues, completed and failed attempts."""
FAILURES = (
    (412, "import_orders", "imports", "KeyError", "order {n} has no customer 'c-{m}'", 1500, 5400),
    (37, "charge_card", "billing", "timed_out", "the attempt took 30 s", 900, 14_000),
    (18, "sync_contact", "crm", "HTTPError", "504 Gateway Timeout for https://crm.example.com/v2/contacts/{n}", 400, 9000),
    (9, "send_mail", "mail", "SMTPRecipientsRefused", "550 5.1.1 <customer-{n}@example.org>: mailbox unavailable", 2000, 40_000),
    (3, "resize_image", "images", "crashed", "the process was killed by SIGKILL: out of memory?", 8000, 50_000),
)  # fmt: skip
"""Dead jobs: how many, task, queue, code, message, and how many seconds ago the last and the first died."""
WAITING = (
    ("send_mail", "mail", 184),
    ("call_webhook", "webhooks", 31),
    ("resize_image", "images", 66),
    ("index_product", "search", 240),
    ("charge_card", "billing", 12),
)
RUNNING = (
    ("send_mail", "mail", "mill-1", 6, 0.4),
    ("call_webhook", "webhooks", "mill-2", 3, 1.2),
    ("index_product", "search", "mill-2", 2, 4.0),
    ("resize_image", "images", "press-1", 4, 2.6),
    ("import_orders", "imports", "desk-1", 1, 48.0),
)
TIMES = {
    "mail": ((2, 9000, 1200, 40), (0, 300, 8800, 900, 60)),
    "webhooks": ((5, 2100, 240, 12), (0, 90, 1100, 900, 210, 14)),
    "search": ((900, 5100, 800), (40, 5200, 1400, 160)),
    "images": ((0, 300, 2200, 900, 140), (0, 0, 120, 1900, 1300, 200, 20)),
    "imports": ((20, 400, 260, 90), (0, 0, 0, 30, 120, 260, 300, 60, 12)),
    "billing": ((10, 900, 40), (0, 0, 200, 610, 90, 20, 12, 37)),
    "reports": ((4, 22, 9), (0, 0, 0, 0, 0, 2, 4, 13, 14, 2)),
}
"""Waits and run times of a queue, by class of duration."""
GROUPS = (
    ("acme", 10, 48),
    ("globex", 5, 17),
    ("initech", 4, 9),
    ("umbrella", 2, 0),
    ("wayne-enterprises", 1, 0),
)
"""Groups of the queue llm: running and waiting jobs."""
IMPORT_TRACE = """Traceback (most recent call last):
  File "/app/shop/imports.py", line 41, in import_orders
    customer = customers[order.customer]
               ~~~~~~~~~^^^^^^^^^^^^^^^^
KeyError: "order 48213 has no customer 'c-1841'\""""
REPORT_TRACE = """Traceback (most recent call last):
  File "/app/shop/reports.py", line 88, in export_report
    await storage.upload(name, sheet)
  File "/app/shop/storage.py", line 23, in upload
    answer.raise_for_status()
HTTPError: 503 Service Unavailable for https://files.example.com/reports/2026-10.xlsx"""


class Scene:
    """Fills one namespace; `job` is the id of a job that runs for the third time, `flow` that of a workflow."""

    def __init__(self, stock: Stock, raw: Any, base: str) -> None:
        self.stock, self.raw, self.base = stock, raw, base
        self.random = random.Random(7)  # the same pictures each time
        self.job = self.flow = ""
        self.held: list[Any] = []

    def fill(self) -> None:
        """Make everything."""
        self.register()
        for failure in FAILURES:
            self._fail(*failure)
        for task, queue, n in WAITING:
            self._wait(task, queue, n)
        for task, queue, worker, n, seconds in RUNNING:
            self._run(task, queue, worker, n, seconds)
        self._report()
        self._retries()
        self._schedules()
        self._groups()
        self._workflow()
        self.stock.ask("PUT", "/pools/images", {"queues": ["images"], "max": 6})
        self._history()

    def register(self) -> None:
        """Register the workers, or have each send a heartbeat."""
        for name, (host, slots, queues, completed, failed) in WORKERS.items():
            about = {"host": host, "pid": 4100 + len(name), "platform": "process", "slots": slots}
            about |= {"queues": queues, "completed": completed, "failed": failed}
            self.stock.ask("PUT", f"/workers/{name}", {"life": "1", "about": about})

    def beat(self) -> None:
        """Renew all leases, so that they have 18 to 30 s left."""
        self.register()
        for one in self.held:
            self.stock.settle(one, "heartbeat", lease=self.random.uniform(18, 30))

    def complete(self, n: int) -> None:
        """Submit and complete jobs."""
        self._submit(n, "send_mail", "mail-fast")
        for one in self._claim("mail-fast", "mill-1", n):
            self.stock.settle(one, "complete", result=None)

    def moved(self, job: str, ago: float, took: float = 0.0, waited: float = 0.4) -> None:
        """Move a finished job into the past: it ended `ago` seconds ago, after its one attempt had taken `took`."""
        key, ended = keys.job(self.base, job), self._now() - round(1000 * ago)
        claimed = ended - round(1000 * took)
        found = self.raw.hgetall(key)
        attempt = found[b"attempt:1"].split(b" ", 3)
        attempt[0], attempt[2] = b"%d" % claimed, b"%d" % ended
        self.submitted(job, claimed - round(1000 * waited))
        self.raw.hset(
            key, mapping={"attempt:1": b" ".join(attempt), "finished_at": ended, "claimed_at": claimed}
        )
        self.raw.zincrby(f"{self.base}:{found[b'state'].decode()}", -1000 * ago, job)

    def submitted(self, job: str, at: int) -> None:
        """Move a submission to a moment in ms."""
        key = keys.job(self.base, job)
        spec = self.raw.hget(key, "spec")
        self.raw.hset(key, "spec", re.sub(rb"^(\S+ \S+ )\d+", rb"\g<1>%d" % at, spec))

    def _now(self) -> int:
        seconds, micros = self.raw.time()
        return int(seconds * 1000 + micros // 1000)

    def _submit(self, n: int, task: str, queue: str, **more: Any) -> list[str]:
        made: list[str] = []
        for start in range(0, n, 100):
            jobs = [{"task": task, "queue": queue, **more} for _ in range(min(100, n - start))]
            made += [one["id"] for one in self.stock.ask("POST", "/jobs/batch", {"jobs": jobs})["jobs"]]
        return made

    def _claim(self, queue: str, worker: str, n: int) -> list[Any]:
        claimed: list[Any] = []
        while len(claimed) < n:
            body = {"queues": [queue], "worker": worker, "lease": 600, "n": min(100, n - len(claimed))}
            claimed += self.stock.ask("POST", "/jobs/claim", body)["jobs"]
        return claimed

    def _worker_of(self, queue: str) -> str:
        return next(name for name, about in WORKERS.items() if queue in about[2])

    def _fail(
        self, n: int, task: str, queue: str, code: str, message: str, last: float, first: float
    ) -> None:
        self._submit(n, task, queue, max_attempts=1)
        ended = []
        for i, one in enumerate(self._claim(queue, self._worker_of(queue), n)):
            text = message.format(n=48_213 - 7 * i, m=1841 - 3 * i)
            detail = IMPORT_TRACE if code == "KeyError" else ""
            ended.append(
                {
                    "id": one["id"],
                    "token": one["token"],
                    "code": code,
                    "message": text,
                    "detail": detail,
                    "again": False,
                }
            )
        for start in range(0, n, 100):
            self.stock.ask("POST", "/jobs/fail", {"jobs": ended[start : start + 100]})
        for i, one in enumerate(ended):
            ago = last + (first - last) * (i / n) ** 2
            self.moved(one["id"], ago, 30.0 if code == "timed_out" else self.random.uniform(0.08, 2.5))

    def _wait(self, task: str, queue: str, n: int) -> None:
        made = self._submit(n, task, queue)
        for i, job in enumerate(made):
            self.submitted(job, self._now() - round(210_000 * (1 - i / n) * self.random.uniform(0.9, 1)))

    def _run(self, task: str, queue: str, worker: str, n: int, seconds: float) -> None:
        self._submit(n, task, queue, priority=9)
        for i, one in enumerate(self._claim(queue, worker, n)):
            self.held.append(one)
            began = self._now() - round(1000 * seconds * (1 + i) / n)
            self.raw.hset(keys.job(self.base, one["id"]), "claimed_at", began)
            self.submitted(one["id"], began - 900)
            if task == "import_orders":
                progress = {"fraction": 0.35, "message": "order 1,204 of 3,440"}
                self.stock.settle(one, "heartbeat", progress=progress, lease=600)

    def _report(self) -> None:
        """A job that was lost once, failed once, and runs again."""
        payload = {
            "report": "revenue",
            "month": "2026-10",
            "format": "xlsx",
            "recipients": ["finance@example.org"],
        }
        more = {"payload": payload, "tags": ["tenant:acme", "monthly"], "max_attempts": 5, "backoff": 0.001}
        lost = self.stock.held("export_report", "reports", "desk-2", **more)
        self.stock.settle(
            lost, "note", log="month 2026-10: 8 sheets\nsheet 1 of 8: 24,118 rows\nsheet 2 of 8: 19,876 rows"
        )
        self.stock.settle(lost, "fail", code="lost", message="no heartbeat for 30 s")
        for n in (2, 3):
            claim = {"queues": ["reports"], "worker": "desk-1", "lease": 600, "wait": 10}
            (lease,) = self.stock.ask("POST", "/jobs/claim", claim)["jobs"]
            if n == 2:
                self.stock.settle(
                    lease, "note", log="month 2026-10: resumed at sheet 3\nsheet 3 of 8: 21,402 rows"
                )
                message = REPORT_TRACE.rsplit(": ", 1)[1]
                self.stock.settle(lease, "fail", code="HTTPError", message=message, detail=REPORT_TRACE)
        self.job = lease["id"]
        self.held.append(lease)
        self.stock.settle(
            lease,
            "note",
            log="month 2026-10: resumed at sheet 4\nsheet 4 of 8: 22,731 rows\nsheet 5 of 8: 18,094 rows",
            checkpoint={"sheet": 5, "rows": 106_221},
        )
        self.stock.settle(
            lease, "heartbeat", progress={"fraction": 0.62, "message": "sheet 6 of 8"}, lease=600
        )
        self._date_report()

    def _date_report(self) -> None:
        now, key = self._now(), keys.job(self.base, self.job)
        begun = [(now - 371_000, now - 262_000), (now - 261_600, now - 198_400)]
        for n, (claimed, ended) in enumerate(begun, 1):
            words = self.raw.hget(key, f"attempt:{n}").split(b" ", 3)
            words[0], words[2] = b"%d" % claimed, b"%d" % ended
            text = b" ".join(words)
            self.raw.hset(key, f"attempt:{n}", text.replace(b"lost\n", b"lease_expired\n", 1))
        self.raw.hset(key, "claimed_at", now - 176_000)
        self.submitted(self.job, now - 373_400)

    def _retries(self) -> None:
        for n in range(14):
            lease = self.stock.held("sync_contact", "crm-retry", "desk-1", backoff=600 + 60 * n)
            self.stock.settle(lease, "fail", code="HTTPError", message="504 Gateway Timeout")
        for n in range(23):
            self.stock.submit("send_reminder", "mail", delay=1800 + 240 * n)

    def _schedules(self) -> None:
        zone = {"tz": "Europe/Berlin"}
        every = {
            "nightly-report": {"task": "export_report", "cron": "30 2 * * *", "queue": "reports", **zone},
            "crm-sync": {"task": "sync_contact", "every": 900, "queue": "crm"},
            "invoices": {"task": "charge_card", "cron": "0 6 1 * *", "queue": "billing", **zone},
        }
        for name, schedule in every.items():
            self.stock.ask("PUT", f"/schedules/{name}", schedule)

    def _groups(self) -> None:
        """A queue whose groups have limits: of one all places are taken, another waits for its tokens."""
        rate = {"group_rate": 600, "group_per": 60, "group_burst": 100}
        limits = {"concurrency": 40, "group_concurrency": 5, **rate}
        self.stock.ask("PATCH", "/queues/llm", {"limits": limits})
        own = {"acme": {"concurrency": 10, "share": 3}, "initech": {"rate": 4, "per": 3600, "burst": 4}}
        for group, settings in own.items():
            self.stock.ask("PUT", f"/queues/llm/groups/{group}", settings)
        for group, running, waiting in GROUPS:
            self._submit(running, "answer", "llm", group=group)
            self.held += self._claim("llm", "quill-1", running)
            self._submit(waiting, "answer", "llm", group=group)

    def _workflow(self) -> None:
        """A catalogue: pages are fetched and priced, two have failed, and the index waits for their retry."""
        pages = [
            {
                "name": f"page-{n}",
                "task": "fetch_page",
                "queue": "catalogue",
                "max_attempts": 1,
                "after": ["list"],
            }
            for n in range(900)
        ]
        names = [page["name"] for page in pages]
        waiting = {
            "check_prices": ["list"],
            "build_index": names,
            "render_site": ["build_index", "check_prices"],
            "send_summary": ["list", "render_site"],
        }
        jobs = [{"name": "list", "task": "list_products", "queue": "catalogue"}, *pages]
        jobs += [
            {"name": task, "task": task, "queue": "catalogue", "after": after, "on_failure": "hold"}
            for task, after in waiting.items()
        ]
        self.flow = stored(self.stock, jobs)["flow"]
        work(self.stock, "catalogue", 1)
        work(self.stock, "catalogue", 700, failing=2)
        self.held += self._claim("catalogue", "desk-1", 8)

    def _history(self) -> None:
        """An hour of samples that ends with the present totals."""
        stats = self.stock.ask("GET", "/stats")
        minutes = [self._minute(ago) for ago in range(75, 0, -1)]
        ends = {
            name: 117_000 + sum(minute[name] for minute in minutes) for name in ("submitted", "completed")
        }
        ends |= {name: stats["dead"] + sum(minute[name] for minute in minutes) for name in ("failed", "dead")}
        now = self._now()
        totals = {name: end - sum(minute[name] for minute in minutes) for name, end in ends.items()}
        lines = []
        for i, minute in enumerate(minutes):
            totals = {name: total + minute[name] for name, total in totals.items()}
            counted = [round(totals[name]) for name in ("submitted", "completed", "failed", "dead")]
            lines.append(history_samples.line(now - (75 - i) * MINUTE, (*counted, 0, 0), minute["sizes"]))
        history_samples.write(self.raw, keys.minutes(self.base), lines)
        present = {name: round(end + 1.2 * minutes[-1][name]) for name, end in ends.items()}
        self.raw.hset(self.base, mapping=present)
        self._times()

    def _minute(self, ago: int) -> dict[str, Any]:
        wave = 1 + 0.25 * math.sin(ago / 9) + 0.08 * math.sin(ago / 2.3) + self.random.uniform(-0.05, 0.05)
        submitted = 620 * wave * (1.35 if 34 < ago < 44 else 1)
        burst = 26 < ago < 37
        queued = 480 + 220 * math.sin(ago / 11) + max(0.0, 900 * math.exp(-(((ago - 33) / 6) ** 2)))
        sizes = (36 + round(3 * wave), round(queued), round(17 * min(wave, 1.2)), 210)
        failed = self.random.uniform(46, 58) if burst else self.random.uniform(2, 6)
        dead = 37.0 if burst else self.random.uniform(0, 0.8)
        return {
            "submitted": submitted,
            "completed": submitted * (0.94 if burst else 1.01),
            "failed": failed,
            "dead": dead,
            "sizes": sizes,
        }

    def _times(self) -> None:
        fields = {}
        for queue, (waits, runs) in TIMES.items():
            for kind, classes in (("wait", waits), ("completed", runs)):
                fields |= _counts(queue, kind, classes)
        self.raw.hset(keys.counts(self.base), mapping=fields)


def _counts(queue: str, kind: str, classes: Sequence[int]) -> Iterable[tuple[str, int]]:
    pairs = [(f"{queue} {kind} {bound}", n) for bound, n in zip(BOUNDS, classes, strict=False)]
    return [
        *pairs,
        (f"{queue} {kind} ms", sum(n * bound // 2 for bound, n in zip(BOUNDS, classes, strict=False))),
    ]
