"""The app of :mod:`tests.drills.flats_app` on one real head node, deployed as people do: by Serve's own config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import yaml

from failsoft.artifacts.home import Home
from tests.conftest import ROOT
from tests.drills.cluster import Head, run
from tests.drills.serving_support import statuses

GATEWAYS = 2


def config(port: int, *, package: Path = ROOT / "platform") -> dict[str, Any]:
    """Serve's own, with failsoft's code from a folder."""
    return {
        "proxy_location": "HeadOnly",
        "http_options": {"host": "127.0.0.1", "port": port},
        "applications": [
            {
                "name": "failsoft",
                "route_prefix": "/",
                "import_path": "tests.drills.flats_app:app",
                "runtime_env": {"env_vars": {"PYTHONPATH": f"{package}:{ROOT}"}},
                "args": {"profile": "drill", "gateways": GATEWAYS},
            }
        ],
    }


def deploy(head: Head, wanted: dict[str, Any]) -> None:
    """``serve deploy``; returns before the app runs."""
    path = head.folder / "serve.yaml"
    path.write_text(yaml.safe_dump(wanted), "utf-8")
    run(head, "serve", "deploy", str(path), "--address", head.dashboard_url, timeout_s=120)


def status(url: str) -> dict[str, Any]:
    """Of whichever gateway answers; empty when none does."""
    try:
        return dict(httpx.get(f"{url}/v1/status", timeout=5.0).json())
    except (httpx.HTTPError, ValueError):
        return {}


def every_status(url: str) -> list[dict[str, Any]]:
    """Of each gateway; empty while not all of them answer."""
    try:
        return list(statuses(url, replicas=GATEWAYS, tries=20).values())
    except AssertionError:
        return []


def all_in(url: str, stage: str) -> bool:
    """Whether every gateway has found its models and is in this stage, under one plan."""
    said = every_status(url)
    return {(one["stage"], str(one["starting"])) for one in said} == {(stage, "[]")} and len(
        {one["plan"]["epoch"] for one in said}
    ) == 1


def rollout(url: str, home: Home) -> dict[str, Any]:
    """As the controller tells it; empty while it does not."""
    token = {"Authorization": f"Bearer {home.operator_token()}"}
    try:
        answer = httpx.get(f"{url}/v1/rollout", headers=token, timeout=10.0)
    except httpx.HTTPError:
        return {}
    return dict(answer.json()) if answer.status_code == 200 else {}
