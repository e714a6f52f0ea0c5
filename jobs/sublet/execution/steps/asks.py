"""Questions of a child process to its worker, and the answers, as JSON."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sublet.model import Standing, State, Submission
from sublet.steps.calls import CalledJob, Kept
from sublet.workflows.upstream import UpstreamPage


class _Form(NamedTuple):
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]
    write_answer: Callable[[Any], Any]
    read_answer: Callable[[Any], Any]


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _read_values(values: Mapping[str, str]) -> dict[str, bytes]:
    return {name: _raw(value) for name, value in values.items()}


def _write_kept(kept: Kept) -> Any:
    return kept.at_ms, kept.kind, _text(kept.value)


def _read_kept(words: Any) -> Kept:
    return Kept(words[0], words[1], _raw(words[2]))


def _write_page(page: UpstreamPage) -> Any:
    return [(job_id, one.state, _text(one.result), one.story) for job_id, one in page.jobs], page.following


def _read_page(words: Any) -> UpstreamPage:
    jobs, following = words
    return UpstreamPage(
        [
            (job_id, Standing(state and State(state), _raw(result), story))
            for job_id, state, result, story in jobs
        ],
        following,
    )


def _write_call(called: CalledJob) -> Any:
    return [called.step, *called.job[:4], _text(called.job.payload)]


def _read_call(words: Any) -> CalledJob:
    step, job_id, queue, task, rules, payload = words
    return CalledJob(step, Submission(job_id, queue, task, rules, _raw(payload)))


FORMS = {
    "step": _Form(
        lambda steps: {name: _text(value) for name, value in steps.items()},
        _read_values,
        lambda there: {name: _write_kept(kept) for name, kept in there.items()},
        lambda words: {name: _read_kept(kept) for name, kept in words.items()},
    ),
    "call": _Form(_write_call, _read_call, _write_kept, _read_kept),
    "emit": _Form(_text, _raw, lambda nothing: None, lambda nothing: None),
    "upstream": _Form(int, int, _write_page, _read_page),
}
"""Converters of questions and answers, by the method of `JobSource` that answers."""
