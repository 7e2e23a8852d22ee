"""The parts of a drilled app by their role: which processes, which files, and what its own routes say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from failsoft.drills.serving.hosting import Host
from failsoft.drills.serving.processes import Process
from failsoft.drills.serving.target import OWN_ROUTE, ServeTarget
from failsoft.errors import ServingError
from failsoft.health.clock import Clock
from failsoft.health.json_object import json_object

_OWN_KEYS = frozenset({"gateway", "stage", "plan", "health", "counts"})
_ASK_S = 5.0
_SILENT = ("ray::ServeController", "ray::Controller", "gcs_server")
CONTROLLERS = {"serve": "ray::ServeController", "plan": "ray::Controller"}
"""By whose they are: Serve's own, and that of failsoft's routing plan."""


class Parts:
    """What the faults of a drill are done to.

    Args:
        target: the app.
        host: holds it.
        clock: waits.
    """

    def __init__(self, target: ServeTarget, host: Host, clock: Clock) -> None:
        self._target, self.host, self.clock = target, host, clock

    @property
    def ours(self) -> bool:
        """Whether it has failsoft's own routes."""
        return is_ours(self.status())

    def status(self) -> Mapping[str, Any]:
        """What one gateway says of itself; empty where the app has no such route, or does not answer."""
        return status_of(self.host.url)

    def model_names(self) -> tuple[str, ...]:
        """The deployments that are models: the user's word, else the colour in service, else all behind the ingress."""
        if self._target.models:
            return self._target.models
        plan = self.status().get("plan")
        if isinstance(plan, dict) and "subject" in plan:
            return (str(plan["subject"]),)
        ingress = self.ingress()
        behind = tuple(name for name in self.host.told.get("deployments", ()) if name != ingress)
        return behind or (ingress,)

    def ingress(self) -> str:
        """The deployment that takes the requests."""
        return str(self.host.told.get("ingress", ""))

    def replicas(self, deployments: Sequence[str]) -> list[Process]:
        """Processes of these deployments, oldest first."""
        mine = re.compile(rf"ray::ServeReplica:[^:]*:(?:{'|'.join(map(re.escape, deployments))})(?![\w-])")
        return [one for one in self.host.family.titled("ray::ServeReplica") if mine.match(one.title)]

    def controllers(self, *whose: str) -> list[Process]:
        """Serve's, and that of failsoft's plan where the app has one; by default both."""
        return self.host.family.titled(*(CONTROLLERS[name] for name in whose or CONTROLLERS))

    def far_side(self) -> list[Process]:
        """What replicas can't reach when they are cut off from the head's services: controllers, and Ray's store."""
        return [one for one in self.host.family.look() if any(part in one.title.split(" ")[0] for part in _SILENT)]

    def model_files(self) -> list[Path]:
        """Files that the model is loaded from, largest first: those the user named, or the release's in the copy."""
        files = list(self._target.model_files)
        plan = self.status().get("plan")
        if not files and isinstance(plan, dict):
            release = plan.get("releases", {}).get(plan.get("subject"))
            folder = self.host.home.root / "releases" / str(release)
            files = [path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json"]
        return sorted(files, key=lambda path: path.stat().st_size, reverse=True)


def is_ours(status: Mapping[str, Any]) -> bool:
    """Whether this is what one of failsoft's own gateways says of itself."""
    return status.keys() >= _OWN_KEYS


def has_routes(url: str) -> bool:
    """Whether Serve's proxy knows an app."""
    try:
        return bool(json_object(httpx.get(f"{url}/-/routes", timeout=_ASK_S).content))
    except httpx.HTTPError:
        return False


def status_of(url: str) -> Mapping[str, Any]:
    """What ``/v1/status`` says; empty where nothing like it answers."""
    try:
        answer = httpx.get(f"{url}/v1/status", timeout=_ASK_S)
        said = json_object(answer.content) if answer.status_code == 200 else None
    except httpx.HTTPError:
        return {}
    return said or {}


def route_of(target: ServeTarget, *, ours: bool) -> str:
    """Where it is asked."""
    return target.route or (OWN_ROUTE if ours else "/")


def payloads_of(target: ServeTarget, url: str, route: str) -> tuple[Any, ...]:
    """What it is asked: what the user gave, else the examples of the app's own API description.

    Raises:
        ServingError: neither is there.
    """
    if target.payloads:
        return target.payloads
    if target.method == "GET":
        return (None,)
    examples = _examples(url, route, target.method)
    if not examples:
        raise ServingError(
            f"nothing is known that {target.name} takes at {route}: its API description has no example there; give "
            'some with --payload \'{"text": "..."}\''
        )
    return examples


def _examples(url: str, route: str, method: str) -> tuple[Any, ...]:
    """Bodies of single requests: an example of several items would be answered by several answers."""
    try:
        said = json_object(httpx.get(f"{url}/openapi.json", timeout=_ASK_S).content)
        operation = (said or {})["paths"][route][method.lower()]
        content = operation["requestBody"]["content"]["application/json"]
        named = {name: one["value"] for name, one in content.get("examples", {}).items()}
    except (httpx.HTTPError, KeyError, TypeError, AttributeError):
        return ()
    if "example" in content:
        named.setdefault("one", content["example"])
    return (named["one"],) if "one" in named else tuple(named.values())
