"""The example app: intent and entities behind the gateway. Here the parts meet; nothing is decided."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from ray import serve
from ray.serve import Application, Deployment
from ray.serve.schema import LoggingConfig

from failsoft.artifacts.bundle import Bundle
from failsoft.artifacts.home import Home
from failsoft.errors import ConfigError
from failsoft.health.clock import SystemClock
from failsoft.serving.config import AppConfig, GatewayConfig
from failsoft.serving.deployments import Fallback, ModelColour
from failsoft.serving.gateway import Gateway
from failsoft.serving.plan import Colour

if TYPE_CHECKING:
    from serve_apps.predictor import ServedPredictor

APP_NAME = "failsoft"
"""Name of the Serve application when failsoft starts it; ``serve run`` uses its own."""

_LIGHT = {"num_cpus": 0.1}
"""Replicas share cores: a laptop with two of them holds the whole app. Raise it in a cluster's Serve config."""


_DEADLINE_MS = {"production": 250.0, "drill": 600.0}
_QUIET = LoggingConfig(log_level="WARNING", enable_access_log=False)


class ServeSettings(BaseModel):
    """Arguments of the app, as ``serve run serve_apps:app name=value …`` or a Serve config gives them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    home: Path | None = None
    """Root folder; None: ``$FAILSOFT_HOME``, else ``.failsoft`` in the working folder."""
    release: str | None = None
    """Name of the release to serve first; None: the newest published whole one."""
    profile: Literal["production", "drill"] = "production"
    gateways: int = Field(default=2, ge=1, le=64)
    replicas: int = Field(default=1, ge=1, le=64)
    """Replicas of each colour."""
    deadline_ms: float | None = Field(default=None, gt=0)
    """None: 250 ms; 600 ms in the drill profile, where clients, models and gateways all share two cores."""
    max_model_queue: int = Field(default=16, ge=1)
    max_model_ongoing: int = Field(default=8, ge=1)
    """Calls that one model replica takes at once."""
    allow_planned_faults: bool = False


def app(args: Mapping[str, Any]) -> Application:
    """Builder for ``serve run serve_apps:app [home=… release=… profile=drill gateways=2 …]``.

    Raises:
        ConfigError: an argument is unknown or impossible, or there is no release yet.
    """
    return build(settings_of(args))


def settings_of(args: Mapping[str, Any]) -> ServeSettings:
    """The settings that some arguments make.

    Raises:
        ConfigError: an argument is unknown or impossible.
    """
    try:
        return ServeSettings.model_validate(dict(args))
    except ValidationError as error:
        raise ConfigError(f"the app's arguments don't fit: {error}") from error


def build(settings: ServeSettings) -> Application:
    """The Serve application for some settings.

    Raises:
        ConfigError: there is no whole release to serve.
        ArtifactError: the named release is absent or damaged.
    """
    config = _config(settings)
    colours = {colour: _model(config, colour, settings) for colour in Colour}
    fallback = _deploy(Fallback, "fallback", settings, replicas=1).bind(config)
    gateway = _deploy(serve.ingress()(Gateway), "gateway", settings, replicas=settings.gateways)
    room = 2 * config.gateway.max_requests  # the gateway itself says 429, in words; Serve would only let callers wait
    return gateway.options(max_ongoing_requests=room).bind(
        config, colours[Colour.BLUE], colours[Colour.GREEN], fallback
    )


def _config(settings: ServeSettings) -> AppConfig:
    home = Home.find(settings.home)
    home.operator_token()  # made once here: replicas that start together would each make their own
    return AppConfig(
        home=home.root,
        release=_release(home, settings.release),
        profile=settings.profile,
        gateway=GatewayConfig(deadline_ms=settings.deadline_ms or _DEADLINE_MS[settings.profile]),
        allow_planned_faults=settings.allow_planned_faults,
    )


def _release(home: Home, asked: str | None) -> str:
    """The release to begin with, its bytes verified now: better to fail here than in a replica."""
    releases = home.releases(SystemClock())
    if asked is not None:
        return releases.open(asked).name
    newest = releases.newest()
    if newest is None:
        raise ConfigError(f"no whole release in {releases.root}; make one with: failsoft train --home {home.root}")
    return newest.name


def _model(config: AppConfig, colour: Colour, settings: ServeSettings) -> Application:
    deployment = _deploy(ModelColour, colour.value, settings, replicas=settings.replicas).options(
        max_ongoing_requests=settings.max_model_ongoing, max_queued_requests=settings.max_model_queue
    )
    return deployment.bind(config, colour, load_predictor)


def load_predictor(bundle: Bundle) -> ServedPredictor:
    """Load the example model; in a model replica only, since it brings torch."""
    from serve_apps.predictor import ServedPredictor  # noqa: PLC0415 -- the driver and the gateway stay free of torch

    return ServedPredictor.load(bundle)


def _deploy(made_of: type, name: str, settings: ServeSettings, *, replicas: int) -> Deployment:
    drill = settings.profile == "drill"
    return serve.deployment(
        name=name,
        num_replicas=replicas,
        ray_actor_options=_LIGHT,
        health_check_period_s=1.0 if drill else 2.0,
        health_check_timeout_s=5.0,
        graceful_shutdown_timeout_s=1.0 if drill else 10.0,
        logging_config=_QUIET,
    )(made_of)
