"""Steady traffic that is written down reply by reply, and what an incident looks like in it."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import uvloop

from tests.benchmarks.incident_app import WRONG
from tests.benchmarks.load_client import Connection, bodies

PATIENCE_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One request; status 0: the connection was lost, or nothing came."""

    sent_s: float
    done_s: float
    status: int
    source: str = ""
    intent: str = ""
    stage: str = ""
    refused: bool = False
    """A net refused the model's own answer, and the fallback gave this one."""

    @property
    def bad(self) -> bool:
        """The model's answer was a bad one, whether the caller got it or not."""
        return self.refused or self.let_through

    @property
    def let_through(self) -> bool:
        """The caller got a bad answer of the model."""
        return self.source in ("primary", "canary") and self.intent == WRONG


@dataclass(frozen=True, kw_only=True)
class Incident:
    """From the first bad answer to the last replica on the fallback."""

    calls: int
    """Answers from the first bad one, all replicas together, until the first replica left the model."""
    detection_s: float
    """The time that took."""
    switch_s: float
    """From the first answer of a replica that had left the model to the last one under the old plan."""
    late_s: float
    """The same to the sending of the last request that was answered under the old plan: what remains when answers that
    were under way, or stood in a busy client's line, are left out; 0: nobody who asked after the switch met it."""
    let_through: int
    """Bad answers that callers got."""
    lost: int
    """Requests without an answer, or with another status than 200; over all the traffic."""
    asked: int


def judged(replies: Sequence[Reply], *, broken_s: float) -> Incident | None:
    """What the replies say; None while no bad answer came, or no replica has left the model."""
    ordered = sorted(replies, key=lambda reply: reply.done_s)
    after = [reply for reply in ordered if reply.done_s >= broken_s and reply.status == 200]
    first_bad_s = next((reply.done_s for reply in after if reply.bad), None)
    first_left_s = next((reply.done_s for reply in after if reply.stage != "serving"), None)
    if first_bad_s is None or first_left_s is None:
        return None
    old = [reply for reply in after if reply.stage == "serving"]
    last_old_s = max((reply.done_s for reply in old), default=first_left_s)
    last_asked_s = max((reply.sent_s for reply in old), default=first_left_s)
    return Incident(
        calls=sum(first_bad_s <= reply.done_s < first_left_s for reply in after),
        detection_s=max(0.0, first_left_s - first_bad_s),
        switch_s=max(0.0, last_old_s - first_left_s),
        late_s=max(0.0, last_asked_s - first_left_s),
        let_through=sum(reply.let_through for reply in after),
        lost=sum(reply.status != 200 for reply in ordered),
        asked=len(ordered),
    )


def read(status: int, body: bytes, *, sent_s: float, done_s: float) -> Reply:
    """A reply of its bytes; a body that is no answer is one without a source."""
    try:
        said = json.loads(body) if status == 200 else {}
    except ValueError:
        said, status = {}, 0
    return Reply(
        sent_s=sent_s,
        done_s=done_s,
        status=status,
        source=said.get("source", ""),
        intent=said.get("intent", ""),
        stage=said.get("stage", ""),
        refused=said.get("refused_confidence") is not None,
    )


@dataclass
class Steady:
    """Asks at a steady rate whatever comes back (open loop), from a thread, each request on an idle connection."""

    host: str
    port: int
    rate_hz: float
    replies: list[Reply] = field(default_factory=list)

    def __enter__(self) -> Steady:
        """Begin."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=lambda: uvloop.run(self._run()), name="traffic")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Send no more, and wait for what is out."""
        self._ended.set()
        self._thread.join(4 * PATIENCE_S)

    async def _run(self) -> None:
        self._idle: list[Connection] = []
        self._all: list[Connection] = []
        self._out: dict[Connection, float] = {}
        self._all_in = asyncio.Event()
        requests, due_s = itertools.cycle(bodies(self.host)), time.monotonic()
        errands: set[asyncio.Task[None]] = set()
        while not self._ended.is_set():
            errand = asyncio.create_task(self._send(next(requests)))
            errands.add(errand)
            errand.add_done_callback(errands.discard)
            due_s += 1.0 / self.rate_hz
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        await asyncio.gather(*errands)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S if self._out else 0.0):
                await self._all_in.wait()
        now_s = time.monotonic()
        self.replies += [Reply(sent_s=sent_s, done_s=now_s, status=0) for sent_s in self._out.values()]
        for connection in self._all:
            connection.close()
        await asyncio.sleep(0)  # their transports close with the next turn

    async def _send(self, request: bytes) -> None:
        sent_s = time.monotonic()
        while self._idle and not self._idle[-1].open:
            self._idle.pop()
        try:
            connection = self._idle.pop() if self._idle else await self._connect()
        except OSError:
            self.replies.append(Reply(sent_s=sent_s, done_s=time.monotonic(), status=0))
            return
        self._out[connection] = sent_s
        connection.send(request)

    async def _connect(self) -> Connection:
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(self._answered), self.host, self.port
        )
        self._all.append(connection)
        return connection

    def _answered(self, connection: Connection, status: int, body: bytes) -> None:
        sent_s = self._out.pop(connection)
        self.replies.append(read(status, body, sent_s=sent_s, done_s=time.monotonic()))
        if not self._out and self._ended.is_set():
            self._all_in.set()
        if connection.open:
            self._idle.append(connection)
