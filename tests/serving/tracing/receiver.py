"""A little collector: takes OTLP over HTTP on loopback and keeps the spans; or it refuses, or talks nonsense."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Receiver:
    """What came, and how it is answered."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.spans: list[Any] = []
        self.resources: list[dict[str, Any]] = []
        self.reply: Callable[[BaseHTTPRequestHandler], None] = answers(200)
        self._came = threading.Condition()
        self.url = ""

    def take(self, body: bytes, headers: dict[str, str]) -> None:
        message = ExportTraceServiceRequest.FromString(body)
        with self._came:
            self.bodies.append(body)
            self.headers.append(headers)
            for group in message.resource_spans:
                self.resources.append(attributes(group.resource))
                self.spans += [span for scope in group.scope_spans for span in scope.spans]
            self._came.notify_all()

    def wait(self, enough: Callable[[Receiver], bool], *, within_s: float = 60.0) -> None:
        """Until enough came; fails when it does not."""
        with self._came:
            assert self._came.wait_for(lambda: enough(self), within_s), [span.name for span in self.spans]

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> Any:
        (span,) = self.named(name)
        return span


def attributes(node: Any) -> dict[str, Any]:
    """Of a span or a resource, as plain values."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in node.attributes}


def answers(status: int, headers: Mapping[str, str] | None = None) -> Callable[[BaseHTTPRequestHandler], None]:
    """Answers every request in this way."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": "0", **(headers or {})}.items():
            handler.send_header(name, value)
        handler.end_headers()

    return reply


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A collector on a port of its own."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.take(self.rfile.read(int(self.headers["Content-Length"])), dict(self.headers))
            receiver.reply(self)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/v1/traces"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
