"""What the serving drills share: steady traffic in a thread, and looking at every gateway replica."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One answered (or lost) request."""

    sent_s: float
    done_s: float
    status: int
    body: dict[str, Any]
    text: Any = None
    """What was asked."""


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Traffic:
    """Sends texts at a steady rate from its own thread (open loop), and keeps every reply. Status 0: no answer."""

    url: str
    texts: Sequence[Any]
    """Or instances; sent one after the other, over and over."""
    rate_hz: float = 40.0
    field_name: str = "text"
    replies: list[Reply] = field(default_factory=list)

    def __enter__(self) -> Traffic:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30.0)

    def lost(self) -> list[Reply]:
        """Replies that were not 200."""
        return [reply for reply in self.replies if reply.status != 200]

    def since(self, moment_s: float) -> list[Reply]:
        """Replies to requests sent at or after ``moment_s``."""
        return [reply for reply in self.replies if reply.sent_s >= moment_s]

    async def _run(self) -> None:
        texts = itertools.cycle(self.texts)
        patience, room = ClientTimeout(total=20.0), TCPConnector(keepalive_timeout=5.0)  # and no request meets a close
        async with ClientSession(self.url, timeout=patience, connector=room) as client, asyncio.TaskGroup() as group:
            due_s = time.monotonic()
            while not self._stop.is_set():
                group.create_task(self._ask(client, next(texts)))
                due_s += 1.0 / self.rate_hz
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))

    async def _ask(self, client: ClientSession, text: Any) -> None:
        sent_s = time.monotonic()
        try:
            async with client.post("/v1/predict", json={self.field_name: text}) as response:
                status, body = response.status, await response.json()
        except (ClientError, TimeoutError, ValueError) as error:
            status, body = 0, {"error": repr(error)}
        self.replies.append(Reply(sent_s=sent_s, done_s=time.monotonic(), status=status, body=body, text=text))


def wait_for(condition: Callable[[], bool], *, within_s: float, what: str) -> float:
    """Seconds until ``condition`` held; fails when it takes longer than ``within_s``."""
    began_s = time.monotonic()
    while not condition():
        assert time.monotonic() - began_s < within_s, f"{what}: not within {within_s} s"
        time.sleep(0.02)
    return time.monotonic() - began_s


def statuses(url: str, *, replicas: int, tries: int = 60) -> dict[str, dict[str, Any]]:
    """The status of every gateway replica, by name: asked until all have answered; a busy machine may miss some."""
    found: dict[str, dict[str, Any]] = {}
    missed = ""
    with httpx.Client(base_url=url, timeout=5.0) as client:
        for _ in range(tries):
            try:
                body = client.get("/v1/status").json()
                found[body["gateway"]] = body
            except (httpx.HTTPError, ValueError, KeyError) as error:
                missed = f"; the last that was missed: {error!r}"
            if len(found) == replicas:
                return found
    raise AssertionError(f"only {len(found)} of {replicas} gateway replicas answered {tries} status requests{missed}")


def sources(replies: Iterable[Reply]) -> set[str]:
    """Who gave these answers."""
    return {str(reply.body.get("source")) for reply in replies}


def stages_of(replies: Iterable[Reply]) -> set[str]:
    """Under which stages these answers were given."""
    return {str(reply.body.get("stage")) for reply in replies}
