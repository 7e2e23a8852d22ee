"""The root span of a request: from the first byte of it that the gateway sees to the last of its answer."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from failsoft.serving.tracing.spans import HERE, Here, Span, Trace
from failsoft.serving.tracing.tracer import Tracer
from failsoft.serving.tracing.w3c import parent_of

TRACE_ID = b"x-trace-id"
"""Header of an answer whose trace is kept."""
RouteOf = Callable[[str], str | None]
"""The route of a path, one of few words; None: requests to it are not traced."""
_TOO_MANY = 429
_METHODS = frozenset({"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"})
_OTHER = "_OTHER"
"""For a method that HTTP does not know, as OpenTelemetry's conventions say: a caller may write anything there."""


class TraceLayer:
    """ASGI middleware, outside all others, so that what they refuse by themselves is traced too.

    Args:
        app: what lies behind.
        tracer: begins and keeps traces.
        route_of: which requests are traced, and as what.
    """

    def __init__(self, app: ASGIApp, *, tracer: Tracer, route_of: RouteOf) -> None:
        self._app, self._tracer, self._route_of = app, tracer, route_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request on, in a trace if it is to be traced."""
        route = self._route_of(scope["path"].removeprefix(scope.get("root_path", ""))) if _is_http(scope) else None
        trace = None if route is None else self._tracer.begin(parent_of(scope["headers"]))
        if route is None or trace is None:
            await self._app(scope, receive, send)
            return
        _describe(trace.root, scope, route)
        token = HERE.set(Here(trace, trace.root))
        try:
            await self._app(scope, receive, _telling(send, trace, self._tracer))
        except BaseException as error:  # also a cancelled request: its trace says so; re-raised
            trace.root.fails(type(error).__name__)
            self._tracer.replaced(trace)
            raise
        finally:
            HERE.reset(token)
            trace.over()


def _is_http(scope: Scope) -> bool:
    return bool(scope["type"] == "http")


def _describe(root: Span, scope: Scope, route: str) -> None:
    """As OpenTelemetry's conventions for HTTP servers say; the query, the headers and the body stay out of it."""
    method = scope["method"] if scope["method"] in _METHODS else _OTHER
    root.name = f"{'HTTP' if method == _OTHER else method} {route}"
    root.attributes |= {
        "http.request.method": method,
        "http.route": route,
        "url.path": route,
        "url.scheme": scope.get("scheme", "http"),
        "network.protocol.version": scope.get("http_version", "1.1"),
    }


def _telling(send: Send, trace: Trace, tracer: Tracer) -> Send:
    """Sends on what is sent; the status decides whether the trace is kept, before the answer says where to find it."""

    async def tell(message: Message) -> None:
        if message["type"] == "http.response.start":
            status = message["status"]
            trace.root.attributes["http.response.status_code"] = status
            if status >= 500:
                trace.root.fails(str(status))
            if status >= 500 or status == _TOO_MANY:
                tracer.replaced(trace)
            if trace.kept:
                found = f"{trace.trace_id:032x}".encode()
                message = {**message, "headers": [*message.get("headers", ()), (TRACE_ID, found)]}
        await send(message)

    return tell
