"""What an app is told on the command line or in a Serve config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from failsoft.errors import ConfigError
from failsoft.serving.config import GatewayConfig
from failsoft.serving.tracing.config import TraceConfig
from failsoft.serving.watching.specimens import DEFAULT_HIDES, SpecimenPolicy

_DEADLINE_MS = {"production": 250.0, "by-hand": 250.0, "drill": 600.0}


class ServeSettings(BaseModel):
    """Arguments of an app, as ``serve run serve_apps:app name=value …`` or a Serve config gives them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    home: Path | None = None
    """Root folder; None: ``$FAILSOFT_HOME``, else ``.failsoft`` in the working folder."""
    release: str | None = None
    """Name of the release to serve first; None: the newest published whole one."""
    profile: Literal["production", "by-hand", "drill"] = "production"
    """Times of the stages; by-hand: production's, and each stage that was passed waits for an operator."""
    slots: Literal[1, 2] = 2
    """1 for a model too large to be loaded twice: the older release is kept in host memory and swapped back in."""
    gateways: int = Field(default=2, ge=1, le=64)
    """Gateway replicas."""
    replicas: int = Field(default=1, ge=1, le=64)
    """Replicas of each colour."""
    deadline_ms: float | None = Field(default=None, gt=0)
    """None: 250 ms; 600 ms in the drill profile, where clients, models and gateways all share two cores."""
    max_model_queue: int = Field(default=16, ge=1)
    """Calls of one gateway waiting for one model; beyond it they are shed."""
    max_model_ongoing: int = Field(default=8, ge=1)
    """Calls that one model replica takes at once."""
    loading_share: float = Field(default=0.2, ge=0.01, le=1.0)
    """Share of the time for which a model replica reads a release while another model answers; 1: without pauses."""
    keep_texts: bool = False
    """Keep the texts of a few requests that went wrong, for ``failsoft replay``; off, only their shapes are kept."""
    hide_patterns: tuple[str, ...] = DEFAULT_HIDES
    """Regular expressions of what is hidden in texts that are kept; mail addresses, web addresses and long numbers."""
    hide_fields: tuple[str, ...] = ()
    """Names of an instance's fields that are never kept of such a request, not even as a shape."""
    traces: str | None = None
    """Send traces of requests to this OTLP collector, as ``http://127.0.0.1:4318/v1/traces``; None: nothing is traced.
    Needs ``failsoft[traces]`` on every node; headers for the collector are in ``OTEL_EXPORTER_OTLP_HEADERS``."""
    traces_ratio: float = Field(default=0.01, ge=0, le=1)
    """Share of all requests that is traced; those of callers that are traced themselves do as their callers."""
    traces_degraded: bool = True
    """Also keep the trace of each request that failed or that the model in service did not answer."""
    traces_per_s: float = Field(default=20.0, gt=0)
    """Traces that one gateway keeps in a second at most: so many that were drawn, and as many that went wrong."""
    traces_plaintext: bool = False
    """Let traces leave this machine over plain http."""
    model_name: str = "failsoft"
    """Name of the model in the Open Inference Protocol, as at ``/v2/models/failsoft/infer``."""
    grpc_from: Literal["loopback", "anywhere"] = "loopback"
    """Whose calls of that protocol over gRPC are answered, where Serve's gRPC proxy is on: it listens on all
    interfaces."""
    console: bool = True
    """Show the operator's page at ``/console``."""
    console_token: bool = False
    """Reading that page, ``/v1/status`` and ``/v1/rollout`` needs a token: the one in the home's file viewer-token, or
    the operator's. Whether a gateway lives (``/healthz``) is told to everybody."""
    allow_planned_faults: bool = False
    """Drills only: callers may break what serves."""

    def gateway(self) -> GatewayConfig:
        """The gateways' own settings."""
        return GatewayConfig(
            deadline_ms=self.deadline_ms or _DEADLINE_MS[self.profile],
            specimens=SpecimenPolicy(
                keep_texts=self.keep_texts, hides=self.hide_patterns, hide_fields=self.hide_fields
            ),
            traces=self._traces(),
            model_name=self.model_name,
            grpc_from=self.grpc_from,
        )

    def _traces(self) -> TraceConfig | None:
        if self.traces is None:
            return None
        return TraceConfig(
            endpoint=self.traces,
            ratio=self.traces_ratio,
            keep_degraded=self.traces_degraded,
            max_kept_per_s=self.traces_per_s,
            plaintext=self.traces_plaintext,
        )


def settings_of(args: Mapping[str, Any]) -> ServeSettings:
    """The settings that some arguments make.

    Raises:
        ConfigError: an argument is unknown or impossible.
    """
    try:
        return ServeSettings.model_validate(dict(args))
    except ValidationError as error:
        raise ConfigError(f"the app's arguments don't fit: {error}") from error
