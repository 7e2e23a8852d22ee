"""The public door: an app for Ray Serve from a task and a model, whosever they are. Here the parts meet.

``build_app(AppSpec(predictor=…, rungs=…, quality=…, inputs=…), settings)``; see ``docs/own_model.py`` and
:mod:`failsoft.serving.seam`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray import serve
from ray.serve import Application, Deployment
from ray.serve.schema import LoggingConfig

from failsoft.artifacts.bundle import Bundle
from failsoft.artifacts.home import Home
from failsoft.errors import ConfigError
from failsoft.health.clock import SystemClock
from failsoft.serving.config import AppConfig
from failsoft.serving.gateway import Gateway
from failsoft.serving.pacing import LoadingPolicy
from failsoft.serving.plan.plan import Colour
from failsoft.serving.replicas.deployments import Fallback, ModelColour
from failsoft.serving.rollout.one_slot import SLOT
from failsoft.serving.rollout.stage_settings import policy_at
from failsoft.serving.settings import ServeSettings, settings_of
from failsoft.serving.task import AppSpec
from failsoft.serving.tracing.wiring import refuse_without_exporter
from failsoft.serving.web.mounting import console_mounts

_LIGHT = {"num_cpus": 0.1}
"""Replicas share cores: a laptop with two of them holds the whole app. Raise it in a cluster's Serve config."""
_QUIET = LoggingConfig(log_level="WARNING", enable_access_log=False)


def build_app(config: AppSpec, settings: ServeSettings | Mapping[str, Any] | None = None) -> Application:
    """The Serve application of a model behind all nets; start it with ``serve.run``.

    Args:
        config: the task, and the model that does it.
        settings: where, how many, which release; or arguments as ``serve run`` gives them.

    Raises:
        ConfigError: a setting (also one of ``stages.toml``) is unknown or impossible, there is no release to serve,
            traces are asked for and not installed, or the last rung does not answer everything: it is asked here, so
            that none without a last resort starts.
        ArtifactError: the named release is absent or damaged.
    """
    asked = settings if isinstance(settings, ServeSettings) else settings_of(settings or {})
    home = Home.find(asked.home)
    policy_at(home.root, asked.profile)  # stages that can't be meant are refused before anything starts
    gateway = asked.gateway()
    refuse_without_exporter(gateway.traces)
    _make_tokens(home, for_readers=asked.console_token)
    bundle = _release(home, asked.release)
    config.ladder_of(bundle)
    app = AppConfig(
        home=home.root,
        release=bundle.name,
        task=config.task(),
        profile=asked.profile,
        slots=asked.slots,
        gateway=gateway,
        loading=LoadingPolicy(share=asked.loading_share),
        mounts=console_mounts(is_shown=asked.console),
        reader_token=asked.console_token,
        allow_planned_faults=asked.allow_planned_faults,
    )
    return _assembled(app, config, asked)


def _make_tokens(home: Home, *, for_readers: bool) -> None:
    """Once, here: replicas that start together would each make their own."""
    home.operator_tokens()
    if for_readers:
        home.viewer_tokens()


def _release(home: Home, asked: str | None) -> Bundle:
    """The release to begin with, its bytes verified now: better to fail here than in a replica."""
    releases = home.releases(SystemClock())
    if asked is not None:
        return Bundle.of(releases.open(asked))
    newest = releases.newest()
    if newest is None:
        raise ConfigError(
            f"no whole release in {releases.root}; make one with: failsoft train --home {home.root}, or publish your "
            "own model's files with failsoft.serving.publish_own"
        )
    return Bundle.of(newest)


def _assembled(config: AppConfig, spec: AppSpec, settings: ServeSettings) -> Application:
    wanted = list(Colour) if config.slots == 2 else [SLOT]
    colours = {colour: _model(config, colour, spec, settings) for colour in wanted}
    fallback = _deploy(Fallback, "fallback", settings, replicas=1).bind(config)
    gateway = _deploy(serve.ingress()(Gateway), "gateway", settings, replicas=settings.gateways)
    room = 2 * config.gateway.max_requests  # the gateway itself says 429, in words; Serve would only let callers wait
    return gateway.options(max_ongoing_requests=room).bind(
        config, colours[Colour.BLUE], colours.get(Colour.GREEN), fallback
    )


def _model(config: AppConfig, colour: Colour, spec: AppSpec, settings: ServeSettings) -> Application:
    deployment = _deploy(ModelColour, colour.value, settings, replicas=settings.replicas).options(
        max_ongoing_requests=settings.max_model_ongoing,
        max_queued_requests=settings.max_model_queue,
        ray_actor_options=dict(spec.resources),
    )
    return deployment.bind(config, colour, spec.loader())


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
