"""A small worker over redis-py that keeps every rule but one: `DEFECT=no-heartbeat rule_breaking_worker.py
work`.

Without a defect it is a full client of the protocol. It uses nothing of this package but the scripts.
"""

import hashlib
import json
import os
import queue
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.modules["opentelemetry.sdk.metrics"] = (
    None  # redis-py imports it where it is installed: a third of this program's start
)

import redis  # noqa: E402  # after the line above
from redis.backoff import NoBackoff  # noqa: E402  # likewise
from redis.retry import Retry  # noqa: E402  # likewise

DEFECT = os.environ.get("DEFECT", "")
BASE = f"{{{os.environ['SUBLET_NAMESPACE']}:0}}"
QUEUES = os.environ["SUBLET_QUEUES"].split(",")
LEASE, SLOTS = int(os.environ["SUBLET_LEASE"]) * 1000, int(os.environ["SUBLET_SLOTS"])
LUA = Path(__file__).resolve().parents[2] / "lua"
NAME = f"careless-{os.getpid()}-{secrets.token_hex(3)}"
URL = os.environ["SUBLET_REDIS_URL"]
stopping, terminated, ending_now = threading.Event(), threading.Event(), threading.Event()
LIFE = secrets.token_hex(8)


def connect(deadline=LEASE / 3000):
    seconds = 15 if DEFECT == "waits-for-ever" else deadline
    return redis.Redis.from_url(URL, socket_timeout=seconds, protocol=2, retry=Retry(NoBackoff(), 0))


def text(verb):
    own = (LUA / f"{verb}.lua").read_text()
    return (
        "".join(
            (LUA / library).read_text()
            for library in re.search(r"^-- LIBS  (.+)", own, re.MULTILINE)[1].split()
        )
        + own
    )


def call(client, verb, *words, renew=None):
    """Run a verb until it is answered. `renew` makes other arguments for a second try."""
    script = text(verb)
    sha = hashlib.sha1(script.encode()).hexdigest()
    impatient = DEFECT == "drops-endings" and verb in ("complete", "fail", "release")
    for _ in range(3 if impatient else 100):
        try:
            return client.evalsha(sha, 1, BASE, *words)
        except redis.exceptions.NoScriptError:
            if DEFECT == "dies-on-noscript":
                raise
            client.script_load(script)
        except (redis.ConnectionError, redis.TimeoutError) as error:
            if DEFECT == "dies-when-refused" and "refused" in str(error):
                os._exit(9)
            if DEFECT.removeprefix("gives-up-") == verb:
                return [b""]
            if DEFECT == "dies-without-server":
                raise
            time.sleep(0.01 if impatient or DEFECT == "hammers-on-errors" else 0.2)
            words = renew() if renew else words
        except redis.ResponseError as error:
            if not str(error).startswith("NO_NAMESPACE") or DEFECT == "makes-no-namespace":
                raise
            call(client, "init", 1)
    if impatient:
        return [b""]
    raise SystemExit("no answer")


def submit(task, payload):
    client, words = connect(), lambda: (f"0-{secrets.token_hex(12)}", QUEUES[0], task, "", payload)
    if DEFECT == "mangles-payload":
        payload = json.dumps(json.loads(payload)).replace("\\u", "u")
    first = words()
    (answer,) = call(client, "submit", *first, renew=words if DEFECT == "forgets-its-id" else None)
    if answer.split()[0] not in (b"created", b"exists"):
        if DEFECT != "prints-ids-of-the-refused":
            raise SystemExit(answer.decode())
        answer = b"created"
    print(
        "done"
        if DEFECT == "prints-no-id"
        else first[0]
        if answer == b"created"
        else answer.decode().split()[1]
    )


class Stopped(Exception):
    """Ends the task; the message gives the reason."""


def run(job, task, payload):
    """The agreed tasks."""
    if task == "boom":
        raise ValueError(payload["message"])
    if task == "count":
        n = 1 + (
            json.loads(job["checkpoint"]) if job["checkpoint"] and DEFECT != "forgets-checkpoints" else 0
        )
        call(connect(), "note", job["id"], job["token"], n, "")
        if n < 3:
            raise ValueError("not yet")
        return n
    if task == "errand":
        return errand(job, payload)
    until = time.monotonic() + (0 if DEFECT == "sleeps-no-time" else payload.get("seconds", 0))
    while time.monotonic() < until:
        if job["why"]:
            raise Stopped(job["why"])
        if job["limit"] and time.monotonic() > job["limit"] and DEFECT != "knows-no-timeout":
            raise Stopped("timed_out")
        if terminated.is_set():
            raise Stopped("stopping")
        time.sleep(0.01)
    return payload


class Suspended(Exception):
    """Ends the attempt until a wait is over; the arguments are those of `suspend`."""


def kept_steps(job):
    """The kept steps of a job: name → JSON."""
    words = call(connect(), "step", job["id"], job["token"])
    return {words[i].decode(): words[i + 1].partition(b"\n")[2] for i in range(0, len(words), 2)}


def errand(job, payload):
    """A step, a sleep, and a wait for a signal."""
    kept = kept_steps(job)
    drawn = (
        json.loads(kept["draw"]) if "draw" in kept and DEFECT != "does-steps-again" else secrets.token_hex(8)
    )
    if "draw" not in kept or DEFECT == "does-steps-again":
        call(connect(), "step", job["id"], job["token"], "draw", json.dumps(drawn))
    if "pause" not in kept:
        raise Suspended("sleep", "pause", round(payload["seconds"] * 1000))
    while DEFECT == "waits-in-its-slot" and "go" not in kept:
        time.sleep(0.2)
        kept = kept_steps(job)
    if "go" not in kept:
        raise Suspended("signal", "go", "")
    return [drawn, json.loads(kept["go"])]


def failure(words):
    return ("Boom now!" if DEFECT == "makes-codes-of-words" else "ValueError"), words


def ending(job, spec, payload):
    """The settling verb of a job and its arguments."""
    header, _, inline = spec.partition(b"\n")
    _, task, _, *rules = header.decode().split()
    limit = next((rule[8:] for rule in rules if rule.startswith("timeout=")), "300000")
    job["limit"] = time.monotonic() + int(limit) / 1000
    if task not in ("echo", "sleep", "boom", "count", "errand") or (task, DEFECT) == (
        "sleep",
        "has-no-sleep",
    ):
        return (
            ("complete", "null")
            if DEFECT == "completes-the-unknown"
            else ("release", 0, "unknown_task", task)
        )
    try:
        result = json.dumps(run(job, task, json.loads(inline or payload)), ensure_ascii=False)
        return "complete", result.replace("ö", "oe").replace(
            "ü", "ue"
        ) if DEFECT == "mangles-result" else result
    except Stopped as stopped:
        why = str(stopped)
        if why in ("LEASE_LOST", "NOT_FOUND"):
            return ("complete", "null") if DEFECT == "completes-after-loss" else None
        return ("release", 0, "released", "stopping") if why == "stopping" else ("fail", why, "", "", "yes")
    except Suspended as suspended:
        return "suspend", *suspended.args
    except ValueError as error:
        return (
            ("complete", "null") if DEFECT == "hides-failures" else ("fail", *failure(str(error)), "", "yes")
        )


def perform(jobs, free, token, job_id, spec, payload, history=b""):
    checkpoint = history.partition(b"\n")[2]
    job = jobs[job_id] = {"id": job_id, "token": token, "why": "", "checkpoint": checkpoint}
    client = connect()
    end = ending(job, spec, payload)
    if not end and DEFECT == "keeps-the-slot-of-the-lost":
        del jobs[job_id]
        stopping.wait(30)
        return
    if end:
        call(client, end[0], job_id, token, *end[1:])
    del jobs[job_id]
    free.put(None)


def beat(jobs):
    client, every = connect(), LEASE / 3000
    enlisted = time.monotonic()
    while not ending_now.wait(every):
        if DEFECT != "enlists-once" and time.monotonic() - enlisted > 4:
            enlisted = time.monotonic()
            if enlist(client) == b"drain" and DEFECT != "ignores-drain":
                stopping.set()
        held = dict(list(jobs.items())[: 1 if DEFECT == "beats-for-one-job" else None])
        if not held or DEFECT == "no-heartbeat":
            continue
        try:
            answers = call(
                client, "heartbeat", LEASE, *[word for i in held for word in (i, held[i]["token"], "")]
            )
        except redis.RedisError:
            os._exit(7)
        if answers == [b""]:
            os._exit(8)
        for job, answer in zip(held.values(), answers, strict=True):
            if answer in (b"LEASE_LOST", b"NOT_FOUND") and DEFECT != "ignores-loss":
                for each in jobs.values() if DEFECT == "stops-all-on-a-loss" else (job,):
                    each["why"] = answer.decode()
            if answer == b"CANCEL_REQUESTED" and DEFECT != "ignores-cancel":
                job["why"] = "cancelled"


def enlist(client):
    about = (
        "a worker"
        if DEFECT == "describes-itself-in-words"
        else json.dumps({"pid": os.getpid(), "queues": QUEUES})
    )
    return call(client, "enlist", NAME, LIFE, "", about, "", "")


def take_over(client):
    """A careless one: it takes every other worker for dead."""
    running = client.zrange(f"{BASE}:running", 0, -1)
    for name in client.zrange(f"{BASE}:workers", 0, -1):
        life = client.hget(f"{BASE}:worker:{name.decode()}", "life")
        leases = [(i, client.hget(f"{BASE}:job:{i.decode()}", "attempt")) for i in running]
        call(client, "reconcile", name, life, *[word for lease in leases for word in lease])


def fire(client, unread):
    """Fire schedules of `every` and `jitter`, and leave the others."""
    now, _, *rest = call(client, "pick", 50, *[word for one in unread.items() for word in one])
    for i in range(0, len(rest), 5):
        name, revision, occurrence, plan, _ = rest[i : i + 5]
        when = json.loads(plan)["when"]
        if set(when) - {"every", "jitter"} and DEFECT != "fires-the-unreadable":
            if DEFECT != "forgets-the-unreadable":
                unread[name] = revision
            continue
        every, now, first = when["every"] * 1000, int(now), int(occurrence)
        last = max(first, now - now % every)
        if due(name, last, when) > now and last > first:
            last -= every
        after = last + every
        moment = after if DEFECT == "knows-no-jitter" else due(name, after, when)
        missed = (last - first) // every
        call(client, "fire", NAME, name, revision, occurrence, last, missed, after, moment)


def due(name, occurrence, when):
    h = hashlib.blake2b(name + b" %d" % occurrence, digest_size=8).digest()
    return occurrence + (int.from_bytes(h, "big") * int(when.get("jitter", 0) * 1000) >> 64)


def wait(job_id):
    client, until = connect(), time.monotonic() + 60
    while time.monotonic() < until:
        state, result, _ = call(client, "watch", job_id)
        if state == b"completed":
            print("done" if DEFECT == "prints-no-result" else result.decode())
            return
        if state in (b"dead", b"cancelled", b"NOT_FOUND"):
            sys.exit(0 if DEFECT == "waits-for-the-dead" else 1)
        time.sleep(0.2)


def claim(client, free):
    lease = round(time.time() * 1000) + LEASE if DEFECT == "sends-its-clock" else LEASE
    queues = sorted(QUEUES, reverse=DEFECT == "turns-queues-round")
    name = f"{NAME}-{secrets.token_hex(3)}" if DEFECT == "changes-its-name" else NAME

    def words():
        claim_id = f"{time.time_ns():030d}" if DEFECT == "counts-claims" else secrets.token_hex(16)
        if DEFECT == "repeats-claim-ids":
            claim_id = hashlib.sha256(b"%d" % time.time()).hexdigest()[:32]
        return claim_id, name, lease, free, *queues

    token, ms, is_due, *jobs = call(
        client, "claim", *words(), renew=words if DEFECT == "forgets-its-claim" else None
    )
    return token, int(ms), str(is_due)[:3] in ("1", "b'1"), [jobs[i : i + 6] for i in range(0, len(jobs), 6)]


def rest(client, wait):
    """Wait for a wake-up, or until the time is over."""
    if DEFECT == "polls":
        time.sleep(0.02)
    elif DEFECT == "ignores-wake-ups":
        stopping.wait(wait / 1000)
    else:
        seconds = 2 if DEFECT == "keeps-no-appointment" else max(wait, 10) / 1000
        try:
            client.blpop([f"{BASE}:wake:{name}" for name in QUEUES], seconds)
        except redis.RedisError:
            time.sleep(0.2)


def work():
    jobs, ended, client, waiter = {}, queue.Queue(), connect(), connect(15)
    if DEFECT == "waits-for-ever-for-a-claim":
        client = waiter
    slots = 5 if DEFECT == "takes-too-many" else SLOTS
    free = slots
    unread = {}
    if DEFECT == "takes-over-the-living":
        take_over(client)
    enlist(client)
    threading.Thread(target=beat, args=(jobs,), daemon=True).start()
    if DEFECT == "leaves-a-child":
        subprocess.Popen(["sleep", "60"])
    while not stopping.is_set():
        if not free and DEFECT == "hammers-when-full":
            time.sleep(0.02)
        elif not free:
            ended.get()
            free += 1
        while not ended.empty():
            ended.get()
            free += 1
        if stopping.is_set():
            break
        if DEFECT == "writes-keys":
            client.zadd(f"{BASE}:workers", {NAME: 1})
        token, ms, is_due, leases = claim(client, free)
        if is_due:
            fire(client, unread)
        for job_id, _, _, spec, payload, history in leases:
            free -= 1
            threading.Thread(
                target=perform, args=(jobs, ended, token, job_id.decode(), spec, payload, history)
            ).start()
        if not leases and free:
            rest(waiter, ms)
    for _ in range(slots - free):
        ended.get(timeout=30)
    ending_now.set()
    if DEFECT != "stays-registered":
        call(client, "reconcile", NAME, LIFE)


if __name__ == "__main__":
    signal.signal(
        signal.SIGTERM,
        signal.SIG_IGN if DEFECT == "ignores-sigterm" else lambda *_: (terminated.set(), stopping.set()),
    )
    if sys.argv[1] == "submit":
        submit(*sys.argv[2:])
    elif sys.argv[1] == "wait":
        wait(sys.argv[2])
    else:
        work()
