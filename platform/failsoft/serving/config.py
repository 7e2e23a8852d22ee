"""What a gateway promises: time budgets, how often it reports, how large its queues are."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from failsoft.errors import ConfigError
from failsoft.serving.pacing import LoadingPolicy
from failsoft.serving.task import Task
from failsoft.serving.tracing.config import TraceConfig
from failsoft.serving.watching.specimens import SpecimenPolicy


@dataclass(frozen=True, kw_only=True)
class GatewayConfig:
    """Settings of a gateway replica."""

    deadline_ms: float = 250.0
    """Every answer leaves within about this time; the model's call is cut so that the ladder still fits in."""
    ladder_reserve_ms: float = 10.0
    """Kept back for the fallback ladder; its p99 is far below."""
    max_deadline_ms: float = 5_000.0
    """A caller may say that it waits longer than ``deadline_ms``, up to this."""
    previous_share: float = 0.2
    """Of the models' time so much is kept for the previous release, where one stands by."""
    mirror_deadline_ms: float = 1000.0
    """A mirrored call may take longer than a live one, since nobody waits for it."""
    mirror_queue: int = 64
    """Copies waiting for the subject; more are dropped and counted."""
    report_every_s: float = 0.05
    """An outcome waits at most so long before it goes to the controller, and not at all when it is bad: with the way
    there and back its window is at most 100 ms behind."""
    max_requests: int = 256
    """Requests that one gateway answers at once, and four times as many items of all of them; beyond it even the
    fallback would be slow, so it says 429."""
    max_body_bytes: int = 1_048_576
    """A larger request body is refused with 413 before it is parsed."""
    remembered_answers: int = 50_000
    """Answers of which one gateway knows, for a label that comes later, who gave them: 250 to 400 bytes each …"""
    remembered_s: float = 86_400.0
    """… and for how long."""
    specimens: SpecimenPolicy = field(default_factory=SpecimenPolicy)
    """What is kept of requests that the model in service did not answer."""
    max_model_queue: int = 64
    """Calls of one gateway waiting for one model; beyond it they are shed and the ladder answers."""
    traces: TraceConfig | None = None
    """Where traces of requests go; None: nothing is traced."""

    model_name: str = "failsoft"
    """Name of the model in the Open Inference Protocol, as at ``/v2/models/failsoft/infer``."""
    grpc_from: Literal["loopback", "anywhere"] = "loopback"
    """Whose calls over gRPC are answered: Serve opens that port on all interfaces, whatever host is asked for."""

    def __post_init__(self) -> None:
        """Refuse budgets that leave the model or the ladder no time."""
        self._check_times()
        if not 0.02 <= self.report_every_s <= 5.0:
            raise ConfigError(f"report_every_s is {self.report_every_s}; use 0.02 to 5 (0.05 to 0.25 suits)")
        for name in ("mirror_queue", "max_model_queue", "max_requests", "remembered_answers"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it holds at least 1")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", self.model_name):
            raise ConfigError(
                f"model_name is {self.model_name!r}; use up to 100 letters, digits, dots, dashes, as failsoft"
            )
        if self.max_body_bytes < 1024:
            raise ConfigError(f"max_body_bytes is {self.max_body_bytes}; a request with one text needs up to 1,024")

    def _check_times(self) -> None:
        for name in ("deadline_ms", "max_deadline_ms", "mirror_deadline_ms"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is {getattr(self, name)}; an answer needs some time, use 50 or more")
        if not 0.0 < self.remembered_s < math.inf:
            raise ConfigError(
                f"remembered_s is {self.remembered_s}; labels come some seconds to a day after the answer"
            )
        if not 0.0 <= self.ladder_reserve_ms < self.deadline_ms:
            raise ConfigError(
                f"ladder_reserve_ms is {self.ladder_reserve_ms} of a deadline of {self.deadline_ms} ms; leave "
                "the model the larger part"
            )
        if not 0.0 <= self.previous_share <= 0.5:
            raise ConfigError(f"previous_share is {self.previous_share}; leave the model at least half, 0.2 suits")

    def deadline_for(self, caller_ms: float | None) -> float:
        """The deadline in ms of a request whose caller will wait for ``caller_ms`` (None: it did not say)."""
        if caller_ms is None:
            return self.deadline_ms
        return min(max(0.0, caller_ms), max(self.deadline_ms, self.max_deadline_ms))


@dataclass(frozen=True, kw_only=True)
class AppConfig:
    """What every replica of one app is told when it starts; it travels to each of them."""

    home: Path
    """Root folder of releases, plan and ledger; absolute, reachable from every node."""
    release: str
    """Served when no routing plan is stored yet; after that the plan rules."""
    task: Task
    """What is asked, how it is judged, and who answers instead."""
    profile: str = "production"
    """Name of the stage policy: production, by-hand or drill."""
    slots: int = 2
    """Model deployments: two colours, or 1 for a model too large to be loaded twice (see ``one_slot.py``)."""
    gateway: GatewayConfig = field(default_factory=GatewayConfig)
    """What each gateway promises."""
    loading: LoadingPolicy = field(default_factory=LoadingPolicy)
    """How fast a model replica reads a release while another model answers."""
    mounts: tuple[str, ...] = ()
    """More routes of each gateway, as ``package.module:function``; see :mod:`failsoft.serving.web.mounting`."""
    reader_token: bool = False
    """Reading what gateways say of themselves needs a token: the viewer's or the operator's of the home."""
    allow_planned_faults: bool = False
    """Let a file in the home's ``faults`` folder break this app on purpose; drills only."""

    def __post_init__(self) -> None:
        """Refuse a home that means another folder on another machine."""
        if not self.home.is_absolute():
            raise ConfigError(f"home is {self.home}; give an absolute path, replicas run in other folders")
        if self.slots not in (1, 2):
            raise ConfigError(f"slots is {self.slots}; use 2, or 1 for a model too large to be loaded twice")
