"""CPU-bound work on all cores: one job for each file under a folder computes the file's SHA-256.

    python3 -m examples.checksums FOLDER

The program runs a worker itself, and ends after the last job. A job's key is made of the file's path: two
concurrent runs share the work, and one finishes it if the other is killed.
"""

import asyncio
import hashlib
import sys
from pathlib import Path

from sublet import App, Context
from sublet_functions.work import work

app = App()
CHUNK = 1 << 20


@app.task(queue="checksums", timeout=600)
def checksum(ctx: Context, path: str) -> str:
    """Return a file's SHA-256 in hex. A plain function runs in a child process, which is killed at the
    timeout.
    """
    digest, done, size = hashlib.sha256(), 0, Path(path).stat().st_size
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            done += len(chunk)
            ctx.progress(done / size, stage="reading")
    return digest.hexdigest()


async def main(folder: Path, files: list[Path]) -> None:
    """Submit a job per file, run a worker until the queue is empty, print the results."""
    jobs = [
        checksum.options(key=hashlib.md5(bytes(path), usedforsecurity=False).hexdigest()).job(str(path))
        for path in files
    ]
    submitted = await app.client.submit_all(jobs)
    summary = await work(app, drain=True)
    for path, job in zip(files, submitted, strict=True):
        print(await app.client.result(job.id), path.relative_to(folder))
    print(f"{len(files)} files, {summary.completed} done here", file=sys.stderr)
    await app.aclose()


if __name__ == "__main__":
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    asyncio.run(main(root, sorted(path for path in root.rglob("*") if path.is_file())))
