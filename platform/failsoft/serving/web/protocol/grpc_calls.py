"""The protocol's calls over gRPC, behind Ray Serve's gRPC proxy.

Serve opens the port of its gRPC proxy on all interfaces and offers no host for it (``start_grpc_server`` binds
``[::]``). So that nothing answers beyond loopback unless asked to, callers from elsewhere are refused here; the port
itself stays open, and Serve's own two methods on it (``Healthz``, ``ListApplications``) answer whoever can reach it.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError

from failsoft.errors import (
    ArtifactMissingError,
    BadRequestError,
    ConfigError,
    FailsoftError,
    NotAuthorizedError,
    SaturatedError,
)
from failsoft.serving.web.messages import MAX_ID_CHARS
from failsoft.serving.web.problems import whole
from failsoft.serving.web.protocol.grpc_bodies import read_message, write_message
from failsoft.serving.web.protocol.grpc_messages import METHODS, SERVICE, message
from failsoft.serving.web.protocol.inference import Caller, Inference

_log = logging.getLogger(__name__)
Peers = Literal["loopback", "anywhere"]
_CODE: Mapping[type[FailsoftError], grpc.StatusCode] = {
    NotAuthorizedError: grpc.StatusCode.PERMISSION_DENIED,
    BadRequestError: grpc.StatusCode.INVALID_ARGUMENT,
    ConfigError: grpc.StatusCode.INVALID_ARGUMENT,
    ArtifactMissingError: grpc.StatusCode.NOT_FOUND,
    SaturatedError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    FailsoftError: grpc.StatusCode.UNAVAILABLE,
}
_LONGEST_WORDS = 1000
"""Details travel in trailers, which may not be long."""


class Context(Protocol):
    """What Serve hands on of a call."""

    def peer(self) -> str:
        """Who calls, as ``ipv4:127.0.0.1:53311``."""
        ...

    def invocation_metadata(self) -> Sequence[tuple[str, Any]]:
        """What the caller said beside the message."""
        ...

    def set_code(self, code: grpc.StatusCode) -> None:
        """How the call ended."""
        ...

    def set_details(self, details: str) -> None:
        """The same in words."""
        ...

    def set_trailing_metadata(self, trailing_metadata: list[tuple[str, str]]) -> None:
        """What is said beside the answer."""
        ...


class GrpcCalls:
    """Answers the protocol's calls.

    Args:
        inference: what they mean.
        max_bytes: of one message; Serve's own bound is 2 GB.
        peers: who may call.
    """

    def __init__(self, inference: Inference, *, max_bytes: int, peers: Peers = "loopback") -> None:
        self._inference = inference
        self._max_bytes = max_bytes
        self._peers = peers
        answers = (self._live, self._ready, self._model_ready, self._server, self._model, self._infer)
        self._answers: Mapping[str, Callable[[Any, Context], Awaitable[Any]]] = dict(zip(METHODS, answers, strict=True))

    async def call(self, method: str, raw: bytes, context: Context) -> Any:
        """The response message to the bytes of a request message; refusals are told to ``context``."""
        try:
            self._may(context)
            return await self._answers[method](self._read(method, raw), context)
        except FailsoftError as error:
            code = next(code for kind, code in _CODE.items() if isinstance(error, kind))
            context.set_code(code)
            context.set_details(whole(str(error))[:_LONGEST_WORDS])
        except Exception:  # noqa: BLE001 -- Serve would tell the caller the whole traceback; it is written down here instead
            _log.exception("%s failed", method)
            context.set_code(grpc.StatusCode.INTERNAL)
            context.set_details("the gateway failed at this request, which its log tells more of; try again")
        return message(f"{method}Response")()

    def _may(self, context: Context) -> None:
        if self._peers == "loopback" and not is_loopback(context.peer()):
            raise NotAuthorizedError(
                "this gateway answers gRPC from its own machine only; start it with grpc_from=anywhere to change that"
            )

    def _read(self, method: str, raw: bytes) -> Any:
        if len(raw) > self._max_bytes:
            raise BadRequestError(f"the message is larger than {self._max_bytes} bytes; send fewer or shorter items")
        try:
            return message(f"{method}Request").FromString(raw)
        except DecodeError as error:
            raise BadRequestError(f"the message is no {method}Request: {error}") from None

    async def _live(self, _asked: Any, _context: Context) -> Any:
        return message("ServerLiveResponse")(live=True)

    async def _ready(self, _asked: Any, _context: Context) -> Any:
        return message("ServerReadyResponse")(ready=self._inference.is_ready())

    async def _model_ready(self, asked: Any, _context: Context) -> Any:
        return message("ModelReadyResponse")(ready=self._inference.why_not_ready(asked.name, asked.version) is None)

    async def _server(self, _asked: Any, _context: Context) -> Any:
        return message("ServerMetadataResponse")(**self._inference.server_card())

    async def _model(self, asked: Any, _context: Context) -> Any:
        return message("ModelMetadataResponse")(**self._inference.model_card(asked.name, asked.version))

    async def _infer(self, asked: Any, context: Context) -> Any:
        request = read_message(asked)
        who = _caller(context.invocation_metadata())
        response = await self._inference.infer(asked.model_name, asked.model_version, request, who)
        context.set_trailing_metadata(list(response.headers.items()))
        return write_message(response, request)


class GrpcMethods:
    """The calls by the names that Serve calls them by; a gateway is one of these."""

    grpc_calls: GrpcCalls

    async def ServerLive(self, request: bytes, grpc_context: Any) -> Any:
        """Whether this replica runs."""
        return await self.grpc_calls.call("ServerLive", request, grpc_context)

    async def ServerReady(self, request: bytes, grpc_context: Any) -> Any:
        """Whether it can answer."""
        return await self.grpc_calls.call("ServerReady", request, grpc_context)

    async def ModelReady(self, request: bytes, grpc_context: Any) -> Any:
        """Whether a model answers, and not the fallback."""
        return await self.grpc_calls.call("ModelReady", request, grpc_context)

    async def ServerMetadata(self, request: bytes, grpc_context: Any) -> Any:
        """What speaks here."""
        return await self.grpc_calls.call("ServerMetadata", request, grpc_context)

    async def ModelMetadata(self, request: bytes, grpc_context: Any) -> Any:
        """Inputs and outputs."""
        return await self.grpc_calls.call("ModelMetadata", request, grpc_context)

    async def ModelInfer(self, request: bytes, grpc_context: Any) -> Any:
        """Answers."""
        return await self.grpc_calls.call("ModelInfer", request, grpc_context)


def add_inference_service(servicer: Any, server: Any) -> None:
    """What Serve's ``grpc_servicer_functions`` names. Messages stay bytes until a gateway has looked at their size."""
    handlers = {method: grpc.unary_unary_rpc_method_handler(getattr(servicer, method)) for method in METHODS}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))


def is_loopback(peer: str) -> bool:
    """Whether a peer, as gRPC writes it, is this machine; what can't be read is none."""
    scheme, _, rest = unquote(peer).partition(":")
    if scheme == "unix":
        return True
    host = rest.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _caller(metadata: Sequence[tuple[str, Any]]) -> Caller:
    """As the headers of HTTP say it.

    Raises:
        BadRequestError: one is there twice, or no value of its kind.
    """
    said: dict[str, Any] = {}
    for name, value in metadata:
        if name in ("x-request-timeout-ms", "x-caller-id", "x-session-id"):
            if said.setdefault(name, value) != value:
                raise BadRequestError(f"{name} is there twice; let the proxy replace what callers send")
            if not 1 <= len(value) <= MAX_ID_CHARS:
                raise BadRequestError(f"{name} has {len(value)} characters; give 1 to {MAX_ID_CHARS}")
    return Caller(
        timeout_ms=_milliseconds(said.get("x-request-timeout-ms")),
        caller=said.get("x-caller-id"),
        session=said.get("x-session-id"),
        request_id=next((value for name, value in metadata if name == "x-request-id" and isinstance(value, str)), None),
    )


def _milliseconds(given: Any) -> float | None:
    try:
        found = None if given is None else float(given)
    except ValueError:
        found = -1.0
    if found is not None and not 0.0 < found < 1e9:
        raise BadRequestError(f"x-request-timeout-ms is {str(given)[:40]!r}; it is a time in ms above 0")
    return found
