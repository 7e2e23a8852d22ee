"""Where traces go, and how many of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from failsoft.errors import ConfigError

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, kw_only=True)
class TraceConfig:
    """Settings of a gateway's traces. Secrets of a collector belong into ``OTEL_EXPORTER_OTLP_HEADERS``."""

    endpoint: str
    """Whole address of a collector that takes OTLP over HTTP, as ``http://127.0.0.1:4318/v1/traces``."""
    ratio: float = 0.01
    """Share of all requests that is traced whatever becomes of them; a caller's own decision in ``traceparent`` comes
    before it."""
    keep_degraded: bool = True
    """Also keep the trace of each request that failed, or that the model in service did not answer …"""
    max_kept_per_s: float = 20.0
    """… but of these, and of those that were drawn, no more traces than this a second and gateway each: an incident is
    thousands of them, and twenty show it."""
    max_waiting_spans: int = 4096
    """Spans that wait for the collector; what comes beyond that is dropped and counted."""
    every_s: float = 2.0
    """How often what waits is sent."""
    timeout_s: float = 5.0
    """For one batch of spans, tries again included."""
    plaintext: bool = False
    """Send over plain http to another host than this one."""

    def __post_init__(self) -> None:
        """Refuse an address that would tell others, and numbers that can't be meant."""
        self._check_endpoint(self._address())
        if not 0.0 <= self.ratio <= 1.0:
            raise ConfigError(f"ratio is {self.ratio}; it is a share of the requests, use 0 to 1 (0.01 suits)")
        for name, most in (("max_kept_per_s", 10_000.0), ("every_s", 60.0), ("timeout_s", 60.0)):
            if not 0.0 < getattr(self, name) <= most:
                raise ConfigError(f"{name} is {getattr(self, name)}; use more than 0 and up to {most:g}")
        if not 64 <= self.max_waiting_spans <= 1_000_000:
            raise ConfigError(f"max_waiting_spans is {self.max_waiting_spans}; use 64 to 1,000,000 (a span is 1 kB)")

    def _address(self) -> SplitResult:
        """What can't be reached is refused now: at each sending it would only be said in a log."""
        shown = self.endpoint.rpartition("@")[2].partition("?")[0]  # never what may be a secret
        wrong = ConfigError(f"the traces' endpoint is {shown!r}; use http://127.0.0.1:4318/v1/traces or so")
        try:
            url = urlsplit(self.endpoint)
            is_one = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
        except ValueError as error:  # no port, or no address of IPv6
            raise wrong from error
        if not is_one or not self.endpoint.isprintable() or " " in self.endpoint or url.path in ("", "/"):
            raise wrong
        return url

    def _check_endpoint(self, url: SplitResult) -> None:
        if url.username or url.password or url.query or url.fragment:
            raise ConfigError(
                f"the traces' endpoint at {url.hostname} has more than a host and a path; give what else the collector "
                "wants as headers, in OTEL_EXPORTER_OTLP_HEADERS"
            )
        if url.scheme == "http" and url.hostname not in LOOPBACK and not self.plaintext:
            raise ConfigError(
                f"traces would go to {url.hostname} in plain text; use https, a collector on 127.0.0.1 that passes "
                "them on, or say that it is meant with traces_plaintext"
            )

    @property
    def is_loopback(self) -> bool:
        """Whether the collector is on this machine."""
        return urlsplit(self.endpoint).hostname in LOOPBACK

    @property
    def below(self) -> int:
        """Traces whose lower 64 bits are below this are the share: the rule of OpenTelemetry's TraceIdRatioBased."""
        return math.ceil(self.ratio * (1 << 64))
