"""Spans into OpenTelemetry's own exporter: the only file that knows OpenTelemetry.

It is loaded only where traces are switched on: ``pip install 'failsoft[traces]'``. Headers for the collector come from
``OTEL_EXPORTER_OTLP_HEADERS``, certificates, compression and resource attributes from the other variables of that name;
they are never written into a log.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from failsoft.errors import ServingError
from failsoft.serving.tracing.config import TraceConfig
from failsoft.serving.tracing.spans import Bundle, Kind, Span, Spot
from failsoft.serving.tracing.whole_exchange import WholeExchange

_KINDS = {Kind.SERVER: SpanKind.SERVER, Kind.CLIENT: SpanKind.CLIENT, Kind.INTERNAL: SpanKind.INTERNAL}
_SCOPE = InstrumentationScope("failsoft")
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class _LastWord(logging.Handler):
    """Keeps what the exporter said last: it says it again at each try, and a down collector is to be said once."""

    def __init__(self) -> None:
        super().__init__()
        self.said = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.said = record.getMessage()[:300]


_HEARD = _LastWord()


class OtlpSender:
    """Sends bundles of spans.

    Args:
        config: where to, and for how long at most.
        resource: attributes of this process; ``OTEL_RESOURCE_ATTRIBUTES`` and ``OTEL_SERVICE_NAME`` add to them.
    """

    def __init__(self, config: TraceConfig, resource: Mapping[str, str]) -> None:
        logger = logging.getLogger(OTLPSpanExporter.__module__)
        logger.addHandler(_HEARD)
        logger.propagate = False
        self._resource = _resource(resource)
        self._exporter = OTLPSpanExporter(endpoint=config.endpoint, timeout=config.timeout_s, session=_session(config))

    def __call__(self, bundles: Sequence[Bundle]) -> None:
        """Send them, tries again included.

        Raises:
            ServingError: the collector did not take them; says what the exporter said.
        """
        spans = [readable(span, bundle.wall_offset_s, self._resource) for bundle in bundles for span in bundle.spans]
        if self._exporter.export(spans) is not SpanExportResult.SUCCESS:
            raise ServingError(_HEARD.said or "the exporter failed without a word")


def _resource(said: Mapping[str, str]) -> Resource:
    made = Resource.create(dict(said))
    nameless = str(made.attributes["service.name"]).startswith("unknown_service")
    return made.merge(Resource({"service.name": "failsoft"})) if nameless else made


def _session(config: TraceConfig) -> requests.Session:
    """Answers are not read: their status says all, and one without end would fill this process's memory.

    A collector on this machine is asked without any proxy, and without what ``.netrc`` may say of the host.
    """
    session = requests.Session()
    session.stream = True
    session.trust_env = not config.is_loopback
    for scheme in ("http://", "https://"):
        session.mount(scheme, WholeExchange(config.timeout_s))
    session.hooks["response"] = [_close]
    return session


def _close(response: requests.Response, *_: Any, **__: Any) -> None:
    """A redirect would count as success, and lead to somewhere that nobody has named."""
    response.close()
    if response.is_redirect:
        raise ServingError(f"the collector answers {response.status_code} and wants to be asked elsewhere")


def readable(span: Span, offset_s: float, resource: Resource) -> ReadableSpan:
    """A span as OpenTelemetry has it; ``offset_s`` makes wall times of its own."""
    return ReadableSpan(
        name=span.name,
        context=_context(span.spot),
        parent=_context(Spot(span.spot.trace_id, span.parent_id)) if span.parent_id else None,
        resource=resource,
        attributes=dict(span.attributes),
        links=[Link(_context(spot)) for spot in span.links],
        kind=_KINDS[span.kind],
        status=Status(StatusCode.ERROR) if span.failed else Status(StatusCode.UNSET),
        start_time=round((span.began_s + offset_s) * 1e9),
        end_time=round((span.ended_s + offset_s) * 1e9),
        instrumentation_scope=_SCOPE,
    )


def _context(spot: Spot) -> SpanContext:
    return SpanContext(spot.trace_id, spot.span_id, is_remote=False, trace_flags=_SAMPLED)
