"""Measure the time from a submit to the start of its task if no worker runs and `sublet dev` summons one."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("jobs", "functions", "")]

from sublet.client.sync_client import SyncClient
from sublet.connection.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
TASKS = """
import time
from sublet import App

app = App()

@app.task
async def on_loop() -> float:
    return time.time()

@app.task
def in_child() -> float:
    return time.time()
"""
SECONDS = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tasks.py").write_text(TASKS)
        command = [
            sys.executable,
            "-m",
            "sublet",
            "dev",
            "tasks:app",
            "--json",
            "--linger",
            "100ms",
            "--no-reload",
        ]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True) as platform:
            try:
                assert platform.stdout is not None
                here = next(said for line in platform.stdout if (said := json.loads(line)).get("redis_url"))
                threading.Thread(target=list, args=(platform.stdout,), daemon=True).start()
                with SyncClient(Settings(redis_url=here["redis_url"])) as client:
                    for task in ("on_loop", "in_child"):
                        took = [_round(client, task) for _ in range(rounds)]
                        print(
                            f"{task:<10} median {statistics.median(took):.3f} s   most {max(took):.3f} s   {rounds} rounds"
                        )
            finally:
                platform.terminate()
                platform.wait(SECONDS)


def _round(client: SyncClient, task: str) -> float:
    until = time.monotonic() + SECONDS
    while client.workers():
        if time.monotonic() > until:
            raise SystemExit(f"workers of the round before are still registered after {SECONDS:g} s")
        time.sleep(0.05)
    began = time.time()
    started: float = client.submit(task).result(timeout=SECONDS)
    return started - began


if __name__ == "__main__":
    main()
