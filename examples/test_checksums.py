"""Synchronous tests of the example `checksums`: through jobs, and of its task as a function."""

from pathlib import Path

from examples.checksums import app, checksum
from sublet import testing

sandbox = testing.fixture(app)
OF_ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_file_has_one_job_until_it_is_done(sandbox: testing.Sandbox, tmp_path: Path) -> None:
    """A second submit with the same key creates no job while the first job waits."""
    (tmp_path / "abc").write_text("abc")
    keyed = checksum.options(key="abc")
    first, second = keyed.submit_sync(str(tmp_path / "abc")), keyed.submit_sync(str(tmp_path / "abc"))
    assert (first.id, second.created) == (second.id, False)
    assert sandbox.drain_sync(raising=True).completed == 1
    assert first.result() == OF_ABC


def test_progress_is_reported_per_chunk(tmp_path: Path) -> None:
    """The task is called as a function, without a job."""
    (tmp_path / "large").write_bytes(bytes(3 << 20))
    ctx = testing.StandIn()
    checksum(ctx, str(tmp_path / "large"))
    assert [round(fraction, 2) for fraction, _, _ in ctx.progresses] == [0.33, 0.67, 1.0]
