"""Plain functions on all cores: the SHA-256 of every file under a folder, each file one job.

    python3 -m examples.checksums FOLDER

Runs its own worker and ends when all is done. A file that was submitted and is not finished is not submitted twice: the key
is its path. Run it twice at the same time, and the work is shared; kill one, and the other finishes it.
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
    """A plain function: it runs in a child process, and is killed there if it takes longer than its timeout."""
    digest, done, size = hashlib.sha256(), 0, Path(path).stat().st_size
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            done += len(chunk)
            ctx.progress(done / size, stage="reading")
    return digest.hexdigest()


async def main(folder: Path, files: list[Path]) -> None:
    """Submit in bulk, work until the queue is dry, read the results."""
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
