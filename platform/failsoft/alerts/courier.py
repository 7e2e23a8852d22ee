"""Carries events from the ledger to one target: in order, and whatever dies in between, each that is due at least once.

How far a courier has come is written down after each look, so that the next one goes on there; what was under way when
it died is sent again with the same ids. Events that were held back are counted in a later message while the courier
lives; of those that are held back when it dies only the ledger knows. A target that is away is waited for a while and
then passed over for that message, with a word in the log: old alarms help nobody.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from failsoft.alerts.message import Message, Throttle
from failsoft.alerts.settings import Target
from failsoft.artifacts.store import write_durably
from failsoft.errors import ConfigError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import Clock
from failsoft.health.json_object import is_count, json_object
from failsoft.health.ledger import parse_event
from failsoft.health.ledger_files import Position, Tail

_log = logging.getLogger(__name__)
_TOO_EARLY = frozenset({408, 425, 429})
_SERVERS_FAULT = 500


@dataclass(frozen=True, kw_only=True)
class DeliveryPolicy:
    """How hard a courier tries."""

    tries: int = 5
    """Of one message, before it is passed over."""
    timeout_s: float = 5.0
    """Of one try."""
    wait: BackoffPolicy = field(default_factory=lambda: BackoffPolicy(first_s=1.0, factor=3.0, cap_s=30.0))
    """Between tries: 1, 3, 9, 27 s."""


Post = Callable[[str, dict[str, object], float], int]
"""Sends a JSON body to an address within so many seconds and returns the HTTP status. Raises httpx.HTTPError."""


class Courier:
    """Of one target.

    Args:
        target: who is told.
        ledger: what is followed.
        folder: where its position is kept.
        clock: waits and measures.
        post: sends.
        policy: how hard it tries.
    """

    def __init__(
        self,
        target: Target,
        ledger: Path,
        folder: Path,
        *,
        clock: Clock,
        post: Post,
        policy: DeliveryPolicy | None = None,
    ) -> None:
        self._target = target
        self._kept = folder / f"{target.name}.json"
        self._clock = clock
        self._post = post
        self._policy = policy or DeliveryPolicy()
        self._throttle = Throttle(target)
        self._rng = random.Random(target.name)
        self._waiting: deque[bytes] = deque()
        self.sent = 0
        self.passed_over = 0
        begin = _read(self._kept)
        self._tail = Tail(ledger, after=begin)
        if begin is None:  # a new target hears of what happens from now on, not of a year of it
            self._tail.skip()
            self._keep()

    def carry(self) -> int:
        """Send what has happened since the last time; returns how many messages arrived."""
        before = self.sent
        for late in self._throttle.due(now_s=self._clock.monotonic_s()):
            self._deliver(late)
        self._hand_out()  # what a look left that broke off: the tail gives it no second time
        for lines in self._tail.file_by_file():
            self._waiting.extend(lines)
            self._hand_out()
        return self.sent - before

    def close(self) -> None:
        """Give its files back."""
        self._tail.close()

    def _hand_out(self) -> None:
        """One that fails in a way that nobody foresaw is lost, and no other with it."""
        news = bool(self._waiting)
        while self._waiting:
            event = parse_event(self._waiting.popleft())
            message = None if event is None else self._throttle.message(event, now_s=self._clock.monotonic_s())
            if message is not None:
                self._deliver(message)
        if news:
            self._keep()

    def _deliver(self, message: Message) -> None:
        body, trouble = message.body(self._target.form), ""
        for failures in range(1, self._policy.tries + 1):
            trouble, may_pass = self._try(body)
            if not trouble:
                self.sent += 1
                return
            if not may_pass or failures == self._policy.tries:
                break
            self._clock.sleep_s(self._policy.wait.wait_s(failures, self._rng))
        self.passed_over += 1
        self._throttle.forget(message.event)
        _log.warning(
            "target %s was not told of %s (%s): %s", self._target.name, message.event.kind, message.id, trouble
        )

    def _try(self, body: dict[str, object]) -> tuple[str, bool]:
        """What went wrong in words (none: it arrived), and whether it may pass. No address is in the words."""
        try:
            status = self._post(self._target.address(), body, self._policy.timeout_s)
        except (httpx.HTTPError, OSError) as error:  # the second: of files, threads or certificates of this machine
            return type(error).__name__, True
        except httpx.InvalidURL as error:
            return type(error).__name__, False
        except ConfigError as error:
            return str(error), False
        if httpx.codes.is_success(status):
            return "", False
        return f"it answered {status}", status >= _SERVERS_FAULT or status in _TOO_EARLY

    def _keep(self) -> None:
        position = self._tail.position
        try:
            write_durably(self._kept, json.dumps({"file": position.file, "bytes": position.bytes}).encode())
        except OSError as error:
            _log.warning("how far target %s was told can't be kept (%s); it may hear things twice", self._kept, error)


def post_json(address: str, body: dict[str, object], timeout_s: float) -> int:
    """Send it; follows no redirect, and reads of the answer no more than its status.

    Not to be called where an event loop runs.

    Args:
        address: of the target.
        body: goes as JSON.
        timeout_s: for all of it, whatever the target drips in between: httpx's own is for each wait on the socket.

    Raises:
        httpx.HTTPError: there was no answer in that time.
        httpx.InvalidURL: the address is none.
    """
    written = json.dumps(body).encode("ascii")  # half characters, which a file's name may have, go as their code
    try:
        return asyncio.run(_post(address, written, timeout_s))
    except TimeoutError as error:
        raise httpx.TimeoutException(f"no whole answer within {timeout_s:g} s") from error


async def _post(address: str, written: bytes, timeout_s: float) -> int:
    kind = {"Content-Type": "application/json"}
    async with (
        asyncio.timeout(timeout_s),
        httpx.AsyncClient(timeout=timeout_s, follow_redirects=False) as client,
        client.stream("POST", address, content=written, headers=kind) as answer,
    ):
        return answer.status_code


def _read(path: Path) -> Position | None:
    """None when nothing whole lies there."""
    try:
        body = json_object(path.read_bytes())
    except FileNotFoundError:
        return None
    file, size = (None, None) if body is None else (body.get("file"), body.get("bytes"))
    if not (is_count(file) and is_count(size)):
        _log.warning("%s can't be read as how far a target was told; it goes on with what happens from now on", path)
        return None
    return Position(file=int(file), bytes=int(size))
