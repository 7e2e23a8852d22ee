"""Starts the serving app on a Ray that is already there, on loopback, and stops all that it started."""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass
from pathlib import Path

import httpx
import ray
from ray import serve
from ray.serve.config import HTTPOptions, ProxyLocation
from ray.serve.schema import LoggingConfig

from failsoft.artifacts.home import Home
from failsoft.errors import ConfigError, ServingError
from failsoft.health.clock import Clock, SystemClock
from failsoft.serving.controller import stop_controller
from serve_apps.intent_ner import APP_NAME, ServeSettings, build

_QUIET = LoggingConfig(log_level="WARNING", enable_access_log=False)


@dataclass(frozen=True, kw_only=True)
class Running:
    """An app that answers at :attr:`url`."""

    url: str
    home: Path

    def stop(self) -> None:
        """Stop the app, its HTTP server and the rollout controller; Ray itself goes on. Safe to call twice."""
        serve.shutdown()
        stop_controller(self.home)


def start(
    settings: ServeSettings, *, port: int = 8000, host: str = "127.0.0.1", ready_within_s: float = 120.0
) -> Running:
    """Serve a release and return once HTTP answers.

    Args:
        settings: what to serve and how.
        port: HTTP port; a Serve that already runs in this Ray keeps its own and is refused here.
        host: address to listen on; loopback unless asked otherwise.
        ready_within_s: give up after so long.

    Raises:
        ConfigError: Ray is not initialised, the port is taken, or there is no release to serve.
        ServingError: the app did not answer in time; what had started is stopped again.
    """
    if not ray.is_initialized():
        raise ConfigError("Ray is not running in this process; call ray.init(...) or use failsoft.local_ray first")
    _refuse_taken_port(host, port)
    logging.getLogger("ray.serve").setLevel(logging.WARNING)  # its progress notes would run into the caller's own
    application = build(settings)
    serve.start(
        http_options=HTTPOptions(host=host, port=port),
        proxy_location=ProxyLocation.HeadOnly,
        logging_config=_QUIET,
    )
    running = Running(url=f"http://{host}:{port}", home=Home.find(settings.home).root)
    try:
        serve.run(application, name=APP_NAME, route_prefix="/", logging_config=_QUIET)
        _wait_until_it_answers(running.url, settings.gateways, SystemClock(), within_s=ready_within_s)
    except BaseException:  # half an app must not stay; re-raised
        running.stop()
        raise
    return running


def _refuse_taken_port(host: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ConfigError(f"port {port} on {host} can't be used ({error}); choose another with --port") from error


def _wait_until_it_answers(url: str, gateways: int, clock: Clock, *, within_s: float) -> None:
    """Until every gateway replica has said that it has found its models."""
    give_up_s, ready = clock.monotonic_s() + within_s, set()
    while True:
        try:
            status = httpx.get(f"{url}/v1/status", timeout=2.0).json()
            ready |= set() if status["starting"] else {status["gateway"]}
        except (httpx.HTTPError, ValueError, KeyError):
            pass  # not yet listening, or Serve's own words
        if len(ready) >= gateways:
            return
        if clock.monotonic_s() > give_up_s:
            raise ServingError(
                f"nothing answers at {url} after {within_s:.0f} s; see the logs in /tmp/ray/session_latest/logs/serve"
            )
        clock.sleep_s(0.05)
