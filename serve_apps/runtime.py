"""Starts the serving app on a Ray that is already there, on loopback, and stops all that it started."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import ray
from ray import serve
from ray.serve import Application
from ray.serve.config import HTTPOptions, ProxyLocation
from ray.serve.schema import LoggingConfig

from failsoft.artifacts.home import VIEWER_TOKEN_VARIABLE, Home
from failsoft.errors import ConfigError, ServingError
from failsoft.health.clock import Clock, SystemClock
from failsoft.serving.replicas.host_shelf import HostShelf, memory_folder
from failsoft.serving.rollout.controller import stop_controller
from failsoft.serving.start_up import check_port, local_url
from serve_apps.grpc_port import grpc_options
from serve_apps.intent_ner import APP_NAME, ServeSettings, build

_QUIET = LoggingConfig(log_level="WARNING", enable_access_log=False)
_ERROR = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Exit): ")


@dataclass(frozen=True, kw_only=True)
class Running:
    """An app that answers at :attr:`url`."""

    url: str
    home: Path
    first_status: dict[str, Any] = field(default_factory=dict)
    """What a gateway replica said when all were ready."""

    def stop(self) -> None:
        """Stop the app, its HTTP server and the rollout controller; Ray itself goes on. Safe to call twice.

        What a model with one slot kept in this machine's memory is given back; other nodes keep theirs until they are
        restarted, or the folder is removed there.
        """
        serve.shutdown()
        stop_controller(self.home)
        clock = SystemClock()
        HostShelf(Home(root=self.home).releases(clock), memory_folder(self.home), clock).forget()


def start(
    settings: ServeSettings,
    *,
    port: int = 8000,
    host: str = "127.0.0.1",
    ready_within_s: float = 120.0,
    make: Callable[[ServeSettings], Application] = build,
    grpc_port: int | None = None,
) -> Running:
    """Serve a release and return once HTTP answers.

    Args:
        settings: what to serve and how.
        port: HTTP port; a Serve that already runs in this Ray keeps its own and is refused here.
        host: address to listen on; loopback unless asked otherwise.
        ready_within_s: give up after so long.
        make: builds the app; the example's without it.
        grpc_port: port for the Open Inference Protocol over gRPC; None: only HTTP. Serve opens it on all interfaces.

    Raises:
        ConfigError: Ray is not initialised, a Serve runs in it already, the port is taken, or there is no release.
        ServingError: a replica can't start, or the app did not answer in time; what had started is stopped again.
    """
    if not ray.is_initialized():
        raise ConfigError("Ray is not running in this process; call ray.init(...) or use failsoft.local_ray first")
    _refuse_running_serve()
    check_port(host, port)
    over_grpc = grpc_options(grpc_port)
    logging.getLogger("ray.serve").setLevel(logging.WARNING)  # its progress notes would run into the caller's own
    application = make(settings)
    reader = _reader(settings)
    serve.start(
        http_options=HTTPOptions(host=host, port=port),
        grpc_options=over_grpc,
        proxy_location=ProxyLocation.HeadOnly,
        logging_config=_QUIET,
    )
    running = Running(url=local_url(host, port), home=Home.find(settings.home).root)
    try:
        _deploy(application)
        status = _wait_until_it_answers(running.url, settings.gateways, reader, SystemClock(), within_s=ready_within_s)
    except BaseException:  # half an app must not stay; re-raised
        running.stop()
        raise
    return replace(running, first_status=status)


def _reader(settings: ServeSettings) -> dict[str, str]:
    """Headers with which the app's status is read; found before anything starts."""
    if not settings.console_token:
        return {}
    home = Home.find(settings.home)
    token = home.reader_token()
    if token is None:
        raise ConfigError(
            f"console_token is set, and {home.root} holds digests of tokens only, so nobody here could see when the "
            f"gateways are ready; give the token itself in ${VIEWER_TOKEN_VARIABLE}"
        )
    return {"Authorization": f"Bearer {token}"}


def _refuse_running_serve() -> None:
    """A Serve that runs keeps its own host and port whatever is asked for, and its apps would be stopped with ours."""
    apps = serve.status().applications
    if apps:
        raise ConfigError(
            f"a Serve already runs in this Ray with the app{'s' if len(apps) > 1 else ''} {', '.join(sorted(apps))}; "
            "stop it with: serve shutdown; or deploy beside it with: serve run serve_apps:app --name failsoft"
        )


def _deploy(application: Application) -> None:
    try:
        serve.run(application, name=APP_NAME, route_prefix="/", logging_config=_QUIET)
    except RuntimeError as error:  # Serve's own word for a replica that can't start
        raise ServingError(f"the app did not start: {_cause() or error}") from error


def _cause() -> str | None:
    """The first deployment's own words on why it does not start; Serve only names the deployments."""
    app = serve.status().applications.get(APP_NAME)
    for name, deployment in ({} if app is None else app.deployments).items():
        found = last_error(deployment.message)
        if found is not None:
            return f"{name}: {found}"
    return None


def last_error(message: str) -> str | None:
    """The last error that a remote traceback names, without where it was; None when it names none."""
    errors = [line.strip() for line in message.splitlines() if _ERROR.match(line.strip())]
    return errors[-1].removeprefix("failsoft.errors.") if errors else None


def _wait_until_it_answers(
    url: str, gateways: int, headers: dict[str, str], clock: Clock, *, within_s: float
) -> dict[str, Any]:
    """Until every gateway replica has said that it has found its models; what the last of them said."""
    give_up_s, ready, said = clock.monotonic_s() + within_s, set(), "nothing answers"
    while True:
        try:
            status: dict[str, Any] = httpx.get(f"{url}/v1/status", headers=headers, timeout=2.0).json()
            ready |= set() if status["starting"] else {status["gateway"]}
            said = f"{len(ready)} of {gateways} gateways are ready"
        except (httpx.HTTPError, ValueError, KeyError):
            status = {}  # not yet listening, or Serve's own words
        if len(ready) >= gateways and status:
            return status
        if clock.monotonic_s() > give_up_s:
            raise ServingError(
                f"{said} at {url} after {within_s:.0f} s; is the machine too busy? The replicas' words are in "
                "logs/serve of Ray's session"
            )
        clock.sleep_s(0.05)
