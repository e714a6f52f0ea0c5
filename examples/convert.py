"""Programs as tasks: count the most frequent words of files, then compress the files.

    python3 -m examples.convert FILE…

This program runs a worker itself, and ends after the last job. A file name is always one argument: never an
option or part of the script. When the worker is killed, the programs that it started die, too, and the jobs
run again.
"""

import asyncio
import sys

from sublet import App, JobFailed
from sublet_functions.work import work

app = App()

commonest = app.command(
    "tr -cs '[:alpha:]' '\\n' < {path} | tr '[:upper:]' '[:lower:]' | sort | uniq -c | sort -rn | head -n {count}",
    name="commonest",
    shell=True,
    timeout=60,
)
compress = app.command("gzip --keep --force -- {path}", timeout=60, max_attempts=1)


async def main(paths: list[str]) -> None:
    """Submit two jobs per file, run a worker until the queue is empty, print the results."""
    counted = [await commonest.submit(path, count=2) for path in paths]
    compressed = [await compress.submit(path=path) for path in paths]
    await work(app, drain=True, slots=4)
    for path, count, done in zip(paths, counted, compressed, strict=True):
        print(path, (await count.result()).stdout.split())
        try:
            await done.result()
        except JobFailed as failed:
            print(failed.code, failed.message)
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
