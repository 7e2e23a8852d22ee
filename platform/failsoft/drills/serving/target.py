"""Which app is drilled, how it is asked, and how long its callers wait."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from failsoft.errors import ConfigError

OWN_ROUTE = "/v1/predict"
"""Of failsoft's own apps."""


@dataclass(frozen=True, kw_only=True)
class ServeTarget:
    """A Serve app by its import path, started for the drill; or one that runs, by its address."""

    app: str | None = None
    """As ``serve run`` takes it: ``package.module:name`` of an application, or of a builder of one."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """For a builder, as ``serve run`` hands them on."""
    address: str | None = None
    """Of an app that runs already, as ``http://127.0.0.1:8000``: only what can be done from outside is done to it."""
    route: str | None = None
    """Where it is asked; None: ``/v1/predict`` where the app has failsoft's routes, else ``/``."""
    method: str = "POST"
    payloads: tuple[Any, ...] = ()
    """JSON bodies, sent one after the other, over and over; none: the example of the app's own API description."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with each request, as a token is."""
    home: Path | None = None
    """Of one of failsoft's own apps: its newest release is copied aside, and the copy is served and broken."""
    models: tuple[str, ...] = ()
    """Names of the deployments that are models; none: all but the one that takes the requests, else that one."""
    model_files: tuple[Path, ...] = ()
    """Files that the model is loaded from, for ``corrupt-bundle``: one byte is flipped in place and put back."""
    rate_hz: float = 40.0
    """Steady requests in a second, sent whatever comes back."""
    patience_s: float = 5.0
    """A caller who waits longer has got no answer."""
    slots: int = 4
    """CPUs that the private Ray counts; two cores hold more replicas than two."""
    source_field: str = "source"
    """Field of an answer that says who gave it; an app without it has no fallback that could be told."""
    model_sources: tuple[str, ...] = ("primary", "canary")
    """What that field says when the model in service answered."""
    start_within_s: float = 240.0
    """Ray, Serve and every replica get so long to start; a busy machine takes minutes where a quiet one takes 15 s."""
    learn_s: float = 3.0
    """The healthy app is watched for so long before anything is done to it."""
    settle_within_s: float = 120.0
    """From the start, and after each fault, until the app must be whole again before nothing more is tried on it."""

    def __post_init__(self) -> None:
        """Refuse what names no app, or more than one, or asks it so that nothing could be told."""
        if (self.app is None) == (self.address is None):
            raise ConfigError(
                f"app is {self.app!r} and address is {self.address!r}; give one of them: --serve module:app, or "
                "--address http://127.0.0.1:8000"
            )
        if self.app is not None and not re.fullmatch(r"[\w.]+:\w+", self.app):
            raise ConfigError(f"{self.app!r} names no app; write --serve package.module:app")
        if self.address is not None and not self.address.startswith(("http://", "https://")):
            raise ConfigError(f"address is {self.address!r}; write one like http://127.0.0.1:8000")
        self._check_asking()

    def _check_asking(self) -> None:
        if self.route is not None and not self.route.startswith("/"):
            raise ConfigError(f"route is {self.route!r}; it starts with a slash, as /v1/predict")
        if self.method not in {"GET", "POST", "PUT"}:
            raise ConfigError(f"method is {self.method!r}; use GET, POST or PUT")
        if not 1.0 <= self.rate_hz <= 1000.0:
            raise ConfigError(f"rate_hz is {self.rate_hz}; below 1 a second nothing is seen, above 1,000 the client is")
        for name in ("patience_s", "start_within_s", "learn_s", "settle_within_s"):
            if not 0.1 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is {getattr(self, name)}; use 0.1 or more seconds, and a time that ends")
        if self.slots < 1:
            raise ConfigError(f"slots is {self.slots}; a Ray needs one CPU at least")

    @property
    def name(self) -> str:
        """For titles."""
        return self.app or str(self.address)
