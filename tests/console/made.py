"""A gateway's app with the console and nothing of Ray behind it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from failsoft.artifacts.home import Home
from failsoft.console.routes import mount
from failsoft.errors import ServingError
from failsoft.serving.web.auth import Guards, bearer_guard, viewer_guard
from failsoft.serving.web.mounting import Mounted
from tests.drills.cluster import free_ports

TOKEN = "t" * 24


def plan_body(**given: Any) -> dict[str, Any]:
    return {
        "epoch": 7,
        "stage": "serving",
        "subject": "blue",
        "stand_in": None,
        "releases": {"blue": "r1", "green": "r0"},
        "share": 1.0,
        "mirror_share": 0.0,
        "relapses": 0,
        "why": "",
    } | given


class Scene:
    """What a gateway and the controller say; tests change it."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root=root)
        self.plan = plan_body()
        self.health: dict[str, Any] = {"status": "HEALTHY", "reason": "1 bad of 100", "not_armed": None}
        self.health |= {"bad": 2, "total": 90, "limit": 0.2}
        self.evidence: dict[str, Any] = {"in_stage": [1, 100], "on_trial": [0, 0], "stand_in": [0, 0]}
        self.waits_for = "nothing: the subject serves"
        self.is_controller_away = False
        self.orders: list[tuple[str, dict[str, Any]]] = []
        self.looked = 0

    def status(self) -> dict[str, Any]:
        self.looked += 1
        return {"gateway": "gateway-1", "stage": self.plan["stage"], "plan": self.plan, "health": self.health}

    async def rollout(self) -> dict[str, Any]:
        if self.is_controller_away:
            raise ServingError("the controller does not answer")
        return {
            "plan": self.plan,
            "waits_for": self.waits_for,
            "evidence": self.evidence,
            "health": self.health,
            "mirror": {},
        }

    def app(self, *, needs_token: bool = False) -> FastAPI:
        app = FastAPI()
        reader = viewer_guard(self.home.viewer_tokens().digests, TOKEN) if needs_token else None
        guards = Guards(operator=bearer_guard(TOKEN), reader=reader)
        mount(app, Mounted(home=self.home, status=self.status, rollout=self.rollout, guards=guards))
        return app


@contextmanager
def served(app: FastAPI, *, port: int | None = None) -> Iterator[str]:
    """The address of the app, on loopback, for the time of the block."""
    port = port or free_ports(1)[0]
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="critical", access_log=False))
    server.config.timeout_graceful_shutdown = 1
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    started = threading.Event()
    while not server.started and thread.is_alive():
        started.wait(0.01)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10.0)
