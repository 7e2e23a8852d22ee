"""A light HTTP client for load: plain sockets on one event loop, in a process of its own.

``wrk`` is not at hand everywhere, and a client library costs more time per request than the servers that are measured
here. This one writes prepared bytes and looks at no more of an answer than its length, status and source.

Run as ``python -m tests.benchmarks.load_client HOST PORT --clients 16 --seconds 3``: asks ``POST /v1/predict`` in a
closed loop and prints what it saw as one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import uvloop

from tests.benchmarks.measuring import percentile

PATH = "/v1/predict"
TEXTS = (
    "play some jazz in the kitchen",
    "will it rain in Berlin tomorrow",
    "wake me at seven",
    "set a timer for ten minutes",
)
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_LAST_CHUNK = b"0\r\n\r\n"
_SOURCE = re.compile(rb'"source": ?"(\w+)"')


class Connection(asyncio.Protocol):
    """One keep-alive connection with at most one request out.

    Args:
        answered: told status and body of each answer; status 0 and an empty body when the connection was lost with a
            request out.
    """

    def __init__(self, answered: Callable[[Connection, int, bytes], None]) -> None:
        self._answered = answered
        self._held = b""
        self._transport: asyncio.Transport | None = None
        self.out = False
        """A request is out."""

    @property
    def open(self) -> bool:
        """Whether a request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by class

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self._transport, self._held = None, b""
        if self.out:
            self.out = False
            self._answered(self, 0, b"")

    def send(self, request: bytes) -> None:
        """Send whole request bytes."""
        assert self._transport is not None
        assert not self.out
        self.out = True
        self._transport.write(request)

    def close(self) -> None:
        """Hang up; nothing is told of it."""
        self.out = False
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        held = self._held = self._held + data
        head_end = held.find(b"\r\n\r\n")
        if head_end < 0:
            return
        length = _LENGTH.search(held, 0, head_end + 2)
        whole = held.endswith(_LAST_CHUNK) if length is None else len(held) >= head_end + 4 + int(length[1])
        if whole:
            self.out, self._held = False, b""
            body = held[head_end + 4 :]
            self._answered(self, int(held[9:12]), joined(body) if length is None else body)


def joined(chunks: bytes) -> bytes:
    """The body that a server sent in chunks; whole ones, the last and empty one too (RFC 9112, 7.1)."""
    body, at = b"", 0
    while size := int(chunks[at : (line_end := chunks.index(b"\r\n", at))].split(b";")[0], 16):
        body += chunks[line_end + 2 : line_end + 2 + size]
        at = line_end + 2 + size + 2
    return body


def request_bytes(host: str, body: bytes, path: str = PATH) -> bytes:
    """A whole ``POST`` request."""
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}\r\n".encode() + body


def bodies(host: str, texts: Sequence[str] = TEXTS) -> list[bytes]:
    """A request for each text."""
    return [request_bytes(host, json.dumps({"text": text}).encode()) for text in texts]


def source_of(body: bytes) -> str:
    """Who says that it gave an answer; ``-`` where nobody does."""
    found = _SOURCE.search(body)
    return found[1].decode() if found else "-"


@dataclass(kw_only=True)
class Seen:
    """What came back."""

    latencies_s: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    sources: Counter[str] = field(default_factory=Counter)

    def as_json(self, seconds: float) -> dict[str, Any]:
        """For the one who started this process."""
        ms = [1000 * latency for latency in self.latencies_s] or [float("nan")]
        return {
            "requests": len(self.latencies_s),
            "seconds": seconds,
            "p50_ms": percentile(ms, 0.5),
            "p99_ms": percentile(ms, 0.99),
            "statuses": dict(self.statuses),
            "sources": dict(self.sources),
        }


async def closed_loop(host: str, port: int, *, clients: int, seconds: float, warm_s: float) -> dict[str, Any]:
    """Each client asks again as soon as it is answered; what came back after the warm-up."""
    loop, seen, requests = asyncio.get_running_loop(), Seen(), itertools.cycle(bodies(host))
    sent_s: dict[Connection, float] = {}
    counted_from_s = time.perf_counter() + warm_s

    def answered(connection: Connection, status: int, body: bytes) -> None:
        now_s = time.perf_counter()
        if now_s >= counted_from_s:
            seen.latencies_s.append(now_s - sent_s[connection])
            seen.statuses[status] += 1
            seen.sources[source_of(body)] += 1
        if connection.open:
            ask(connection)

    def ask(connection: Connection) -> None:
        sent_s[connection] = time.perf_counter()
        connection.send(next(requests))

    opened = [await loop.create_connection(lambda: Connection(answered), host, port) for _ in range(clients)]
    for _, connection in opened:
        ask(connection)
    await asyncio.sleep(warm_s + seconds)
    took_s = time.perf_counter() - counted_from_s
    for _, connection in opened:
        connection.close()
    assert seen.latencies_s, f"nothing at {host}:{port} answered within {warm_s + seconds} s"
    return seen.as_json(took_s)


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--warm", type=float, default=0.5)
    given = parser.parse_args()
    gc.freeze()
    gc.disable()
    run = closed_loop(given.host, given.port, clients=given.clients, seconds=given.seconds, warm_s=given.warm)
    json.dump(uvloop.run(run), sys.stdout)


if __name__ == "__main__":
    main()
