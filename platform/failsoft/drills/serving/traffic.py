"""Steady requests from a client that keeps its pace whatever comes back, and what it saw."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from failsoft.drills.serving.answers import Answer, Expectation
from failsoft.drills.serving.course import by_model
from failsoft.drills.serving.target import ServeTarget
from failsoft.health.clock import Clock
from failsoft.health.json_object import json_value

_JOIN_S = 60.0
_MOST_CONNECTIONS = 512


@dataclass(frozen=True, kw_only=True)
class Asking:
    """Where and what is asked, once it is known what the app is."""

    url: str
    """With its route."""
    payloads: Sequence[Any]
    """JSON bodies."""
    target: ServeTarget
    expected: Expectation | None = None
    """None: what is right is not known yet."""

    def bodies(self) -> list[bytes]:
        """The payloads as they are sent."""
        return [json.dumps(payload).encode() for payload in self.payloads]


class Traffic:
    """Sends from a thread of its own for the time of a block.

    Args:
        asking: what.
        clock: gives the pace and the times.
        keep_bodies: keep what was answered, to learn from it what is right.
    """

    def __init__(self, asking: Asking, clock: Clock, *, keep_bodies: bool = False) -> None:
        self._asking, self._clock = asking, clock
        self._bodies = asking.bodies()
        self._keep = keep_bodies
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="drill-traffic", daemon=True)
        self.answers: list[Answer] = []
        """In the order in which they came."""
        self.bodies: list[list[Any]] = [[] for _ in self._bodies]
        """Of each payload what the model answered, where that is kept."""

    def __enter__(self) -> Traffic:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Send no more, and wait for what is out."""
        self._stop.set()
        self._thread.join(_JOIN_S)

    def now(self) -> list[Answer]:
        """Those that have come."""
        return list(self.answers)

    async def _run(self) -> None:
        target, number = self._asking.target, 0
        patience, room = ClientTimeout(total=target.patience_s), TCPConnector(limit=_MOST_CONNECTIONS)
        headers = {"content-type": "application/json", **target.headers}
        due_s = self._clock.monotonic_s()
        async with (
            ClientSession(timeout=patience, connector=room, headers=headers) as client,
            asyncio.TaskGroup() as group,
        ):
            while not self._stop.is_set():
                group.create_task(self._ask(client, number % len(self._bodies)))
                number += 1
                due_s += 1.0 / target.rate_hz
                await asyncio.sleep(max(0.0, due_s - self._clock.monotonic_s()))

    async def _ask(self, client: ClientSession, payload: int) -> None:
        target, sent_s = self._asking.target, self._clock.monotonic_s()
        content = None if target.method == "GET" else self._bodies[payload]
        try:
            async with client.request(target.method, self._asking.url, data=content, allow_redirects=False) as response:
                status, body, reason = response.status, _body(await response.read()), ""
        except (ClientError, TimeoutError) as error:
            status, body, reason = 0, None, error.__class__.__name__
        done_s = self._clock.monotonic_s()
        reply = Reply(payload=payload, status=status, body=body, sent_s=sent_s, done_s=done_s, reason=reason)
        answer = read_answer(self._asking, reply)
        if self._keep and by_model(answer, target.model_sources):
            self.bodies[payload].append(body)
        self.answers.append(answer)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One request and what came back."""

    payload: int
    """Its number."""
    status: int
    body: Any
    """Parsed JSON, else text; None: nothing came."""
    sent_s: float
    done_s: float
    reason: str = ""
    """Why nothing came."""


def read_answer(asking: Asking, reply: Reply) -> Answer:
    """What one reply says; of an app that is not failsoft's, only whether it is the healthy app's answer."""
    said: Mapping[str, Any] = reply.body if isinstance(reply.body, dict) else {}
    source, epoch, stage = said.get(asking.target.source_field), said.get("epoch"), said.get("stage")
    words = str(said.get("degrade_reason") or "")
    if reply.status != 200:
        words = reply.reason or str(said.get("detail") or reply.body)
    model = source is None or source in asking.target.model_sources
    judge = asking.expected if reply.status == 200 and model else None
    return Answer(
        sent_s=reply.sent_s,
        done_s=reply.done_s,
        status=reply.status,
        source=source if isinstance(source, str) else None,
        stage=stage if isinstance(stage, str) else None,
        epoch=epoch if isinstance(epoch, int) else None,
        reason=words[:200],
        right=None if judge is None else judge.right(reply.payload, reply.body),
    )


def _body(content: bytes) -> Any:
    """Parsed where it is JSON, else as text."""
    try:
        return json_value(content)
    except ValueError:
        return content.decode("utf-8", "replace")
