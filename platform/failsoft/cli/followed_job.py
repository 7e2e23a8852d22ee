"""A job that Ray holds, followed to its end: its log as it is written, then its exit status, handed on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

from failsoft.errors import NoRayError, PreemptedError
from failsoft.health.clock import Clock

_LOOK_AGAIN_S = 1.0
_PATIENCE_S = 120.0
"""A head that is restarted is back within half a minute; a machine that swaps takes longer."""
_ENDED = ("SUCCEEDED", "FAILED", "STOPPED")


class Jobs(Protocol):
    """What is needed of ``ray.job_submission.JobSubmissionClient``."""

    def get_job_info(self, job_id: str) -> Any:
        """With ``status``, ``message`` and ``driver_exit_code``."""
        ...

    def tail_job_logs(self, job_id: str) -> AsyncIterator[str]:
        """The log from its beginning, as it is written, until the job ends."""
        ...


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a job ended."""

    status: str
    """As Ray names it: SUCCEEDED, FAILED, STOPPED."""
    exit_status: int
    """Of the job's command, as a shell says it; 143 of a job that was stopped before it could say one."""
    message: str


class _Log:
    """What was shown stays shown: each connection begins at the beginning again."""

    def __init__(self, show: Callable[[str], object]) -> None:
        self._show = show
        self._shown = 0

    async def follow(self, jobs: Jobs, job_id: str) -> None:
        place = 0
        async with aclosing(jobs.tail_job_logs(job_id)) as pieces:  # type: ignore[type-var]  # an async generator
            async for piece in pieces:
                new = piece[max(self._shown - place, 0) :]
                place += len(piece)
                if new:
                    self._show(new)
                    self._shown = place


def follow(jobs: Jobs, job_id: str, *, show: Callable[[str], object], clock: Clock) -> Ended:
    """Show a job's log until the job has ended; a dashboard that is away for a while is waited for.

    Raises:
        NoRayError: it stayed away for two minutes, or came back and knows of no such job.
        KeyboardInterrupt: Ctrl-C; the job goes on.
    """
    log, away_since_s, over = _Log(show), None, False
    while True:
        try:
            asyncio.run(log.follow(jobs, job_id))
            info = jobs.get_job_info(job_id)
        except _lost() as error:
            _refuse_unknown(job_id, error)
            away_since_s = clock.monotonic_s() if away_since_s is None else away_since_s
            _refuse_long(job_id, clock.monotonic_s() - away_since_s, error)
        else:
            away_since_s = None
            if over:
                return _ended(info)
            over = (
                str(info.status) in _ENDED
            )  # and once more: a dashboard that goes closes the log as one that has ended
        if not over:
            clock.sleep_s(_LOOK_AGAIN_S)


def _lost() -> tuple[type[Exception], ...]:
    from aiohttp import ClientError

    return OSError, RuntimeError, ClientError  # those of ``requests`` are OSErrors


def _refuse_unknown(job_id: str, error: Exception) -> None:
    if "404" in str(error) or "does not exist" in str(error):
        raise NoRayError(
            f"this Ray knows no job {job_id} any more: its head was started anew without its memory, and the job is "
            "gone with the old one; submit it again, it goes on from its newest checkpoint"
        ) from error


def _refuse_long(job_id: str, away_s: float, error: Exception) -> None:
    if away_s >= _PATIENCE_S:
        raise NoRayError(
            f"Ray has not answered for {away_s:.0f} s ({type(error).__name__}); the job {job_id} may well go on: see "
            f"ray job status {job_id} when it is back"
        ) from error


def _ended(info: Any) -> Ended:
    status, code = str(info.status), info.driver_exit_code
    if status == "SUCCEEDED":
        code = 0
    elif code is None or code == 0:  # it had no say, as when Ray could not start it
        code = PreemptedError.exit_status if status == "STOPPED" else 1
    return Ended(status=status, exit_status=code if code >= 0 else 128 - code, message=info.message or "")
