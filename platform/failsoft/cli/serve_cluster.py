"""``failsoft serve --address``: the app as a Serve config, handed to a cluster by the path that ``serve deploy`` takes.

That path changes a running app in place; Python's ``serve.run`` would replace every replica. It is declarative: what a
config leaves out is removed. So what else was deployed that way there is read first, and goes with it as it is.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from failsoft.errors import ConfigError, NoRayError, ServingError
from failsoft.health.clock import Clock
from failsoft.ingress import LOOPBACK

APP = "failsoft"
IMPORT_PATH = "serve_apps:app"
_LOOK_AGAIN_S = 0.5


def wanted_of(given: Namespace) -> Wanted:
    """What ``failsoft serve`` was asked for, as the app's arguments.

    Raises:
        ConfigError: something of it can't be meant.
    """
    from failsoft.serving.settings import settings_of

    asked = {
        "home": None if given.home is None else str(given.home),
        "release": given.release,
        "profile": given.profile,
        "gateways": given.gateways,
        "traces": given.traces,
        "keep_texts": given.keep_texts,
    }
    if given.grpc_port is not None:
        asked["grpc_from"] = "loopback" if given.host == LOOPBACK else "anywhere"
    plain = settings_of({})
    args = {name: value for name, value in asked.items() if value != getattr(plain, name)}
    settings_of(args)
    if given.own is not None:
        args["app"] = given.own
    return Wanted(args=args, host=given.host, port=given.port, grpc_port=given.grpc_port)


class ServeClient(Protocol):
    """What is needed of Ray's ``ServeSubmissionClient``."""

    def get_serve_details(self) -> dict[str, Any]:
        """What is deployed, and how it is."""
        ...

    def deploy_applications(self, config: dict[str, Any]) -> None:
        """Make it so."""
        ...


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to run on the cluster."""

    args: Mapping[str, Any]
    """Of the app; what is its default is left out."""
    host: str
    port: int
    grpc_port: int | None = None
    ready_within_s: float = 600.0
    """Give up looking after so long; the cluster goes on trying. A release of many GB is read within minutes."""


def deployed(client: ServeClient, wanted: Wanted, *, say: Callable[[str], object], clock: Clock) -> str:
    """Deploy it and wait until it runs; the address at which each node's entrance listens.

    Raises:
        ConfigError: something there is in the way; nothing was changed.
        ServingError: it does not start; the message has the first replica's own words.
        NoRayError: the cluster has no answer any more.
    """
    before = _asked(client.get_serve_details)
    config = config_of(wanted, before)
    try:
        client.deploy_applications(config)
    except RuntimeError as error:
        raise ServingError(f"Serve did not take the config: {error}") from error
    http = config["http_options"]
    _wait_until_it_runs(client, wanted, say, clock)
    return f"http://{http['host']}:{http['port']}"


def config_of(wanted: Wanted, before: Mapping[str, Any]) -> dict[str, Any]:
    """The whole config: ours, and what else is deployed there by config, untouched.

    Args:
        wanted: ours.
        before: what Serve says of itself.

    Raises:
        ConfigError: Serve listens elsewhere already, or another app stands in the way.
    """
    others = [_kept(name, app) for name, app in before.get("applications", {}).items() if name != APP]
    ours = before.get("applications", {}).get(APP)
    if ours is not None and ours.get("source") == "imperative":
        raise ConfigError(
            f"an app named {APP} runs there that was started from Python (serve run): a config may not replace it; "
            f"stop that command, or: serve shutdown"
        )
    _refuse_taken_route(before)
    app = {"name": APP, "route_prefix": "/", "import_path": IMPORT_PATH, "args": dict(wanted.args)}
    whole: dict[str, Any] = {"applications": [*filter(None, others), app]}
    return whole | _entrance(wanted, before)


def _kept(name: str, app: Mapping[str, Any]) -> Any:
    """None for what Python started: configs leave those alone."""
    if app.get("source") == "imperative":
        return None
    if app.get("deployed_app_config") is None:
        raise ConfigError(
            f"Serve does not say how the app {name} was deployed, and it would be removed; deploy by YAML"
        )
    return app["deployed_app_config"]


def _refuse_taken_route(before: Mapping[str, Any]) -> None:
    for name, app in before.get("applications", {}).items():
        if name != APP and app.get("route_prefix") == "/":
            raise ConfigError(
                f"the app {name} has the route / there; give it another, as route_prefix: /{name} in its config"
            )


def _entrance(wanted: Wanted, before: Mapping[str, Any]) -> dict[str, Any]:
    """Serve's entrances are fixed when it first starts; asking for others later is quietly passed over."""
    runs = before.get("http_options")
    asked: dict[str, Any] = {"host": wanted.host, "port": wanted.port}
    if runs and before.get("proxies"):
        there = {"host": runs.get("host"), "port": runs.get("port")}
        if there != asked:
            raise ConfigError(
                f"Serve listens at {there['host']}:{there['port']} there and stays where it first began; give "
                f"--host {there['host']} --port {there['port']}, or end it with all its apps: serve shutdown"
            )
    entrance: dict[str, Any] = {"proxy_location": "EveryNode", "http_options": asked}
    if wanted.grpc_port is not None:
        from serve_apps.grpc_port import SERVICER

        entrance["grpc_options"] = {
            "port": wanted.grpc_port,
            "grpc_servicer_functions": [SERVICER],
            "enable_reflection": False,
        }
    return entrance


def _wait_until_it_runs(client: ServeClient, wanted: Wanted, say: Callable[[str], object], clock: Clock) -> None:
    give_up_s, said = clock.monotonic_s() + wanted.ready_within_s, ""
    while True:
        app = _asked(client.get_serve_details).get("applications", {}).get(APP)
        status = "NOT_STARTED" if app is None else str(app["status"])
        if status == "RUNNING":
            return
        if status in {"DEPLOY_FAILED", "UNHEALTHY"}:
            raise ServingError(f"the app did not start on the cluster ({status}): {cause(app or {})}")
        words = progress_of(app or {})
        if words != said:
            say(words)
            said = words
        if clock.monotonic_s() > give_up_s:
            raise ServingError(
                f"after {wanted.ready_within_s:.0f} s the app is still {status} ({said}); see serve status"
            )
        clock.sleep_s(_LOOK_AGAIN_S)


def progress_of(app: Mapping[str, Any]) -> str:
    """How far a deployment is, as ``Gateway 1 of 2, Fallback 0 of 1``."""
    parts = []
    for name, deployment in app.get("deployments", {}).items():
        running = sum(replica.get("state") == "RUNNING" for replica in deployment.get("replicas", []))
        parts.append(f"{name} {running} of {deployment.get('target_num_replicas', '?')}")
    return ", ".join(parts) or "the cluster reads the app"


def cause(app: Mapping[str, Any]) -> str:
    """Why an app does not start: the last error that a traceback names, else all that Serve says."""
    from serve_apps.runtime import last_error

    messages = [app.get("message", ""), *(one.get("message", "") for one in app.get("deployments", {}).values())]
    found = next(filter(None, (last_error(message) for message in messages)), None)
    return found or " ".join(" ".join(messages).split())[:400] or "Serve does not say why; see serve status"


def _asked(details: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return details()
    except (OSError, RuntimeError) as error:
        raise NoRayError(f"Serve's controller does not say how it is: {error}") from error
