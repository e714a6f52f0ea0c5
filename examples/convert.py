"""Programs as tasks: count the commonest words of files, then compress them, with `sort`, `uniq` and `gzip`.

    python3 -m examples.convert FILE…

Runs its own worker and ends when all is done. A file's name may be anything: it never becomes a second word, an option or a
part of the script. Killing the worker kills what its programs have started, and the jobs run again elsewhere.
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
    """Submit two jobs for each file, work until the queue is dry, show what came of them."""
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
