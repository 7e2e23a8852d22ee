"""The part of Ray's dashboard that takes jobs and apps, in this process: Ray's own clients and our commands meet it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import ray
from aiohttp import WSCloseCode, web
from aiohttp.typedefs import Handler

TOKEN = "right"
JOB = "raysubmit_1"
LOG = ["one\n", "two\nthr", "ee\n"]


@web.middleware
async def asks_for_the_token(request: web.Request, handler: Handler) -> web.StreamResponse:
    if request.headers.get("Authorization") not in {f"Bearer {TOKEN}", f"Bearer {os.environ['RAY_AUTH_TOKEN']}"}:
        return web.Response(status=401, text="no")
    return await handler(request)


@dataclass(kw_only=True)
class Dashboard:
    """Holds one job; its log ends when the job does."""

    status: str = "RUNNING"
    exit_code: int | None = None
    breaks: int = 0
    """So many connections to the log are cut after its first piece."""
    sent: list[dict[str, Any]] = field(default_factory=list)
    stops: int = 0
    configs: list[dict[str, Any]] = field(default_factory=list)
    """Of Serve, as they came."""
    url: str = ""
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        if self.status != "RUNNING":
            self.over.set()

    async def version(self, _asked: web.Request) -> web.Response:
        return web.json_response({"version": "4", "ray_version": ray.__version__, "ray_commit": "", "session_name": ""})

    async def package(self, _asked: web.Request) -> web.Response:
        return web.Response()  # it is there already

    async def submit(self, asked: web.Request) -> web.Response:
        self.sent.append(await asked.json())
        return web.json_response({"job_id": JOB, "submission_id": JOB})

    async def info(self, _asked: web.Request) -> web.Response:
        said = {
            "type": "SUBMISSION",
            "submission_id": JOB,
            "entrypoint": "x",
            "status": self.status,
            "message": "ended",
        }
        return web.json_response(said | {"driver_exit_code": self.exit_code})

    async def stop(self, _asked: web.Request) -> web.Response:
        self.stops += 1
        self.status = "STOPPED"
        self.over.set()
        return web.json_response({"stopped": True})

    async def tail(self, asked: web.Request) -> web.WebSocketResponse:
        log = web.WebSocketResponse()
        await log.prepare(asked)
        pieces = LOG[:1] if self.breaks else LOG
        for piece in pieces:
            await log.send_str(piece)
        if self.breaks:
            self.breaks -= 1
            await log.close(code=WSCloseCode.INTERNAL_ERROR)
        await self.over.wait()
        return log

    async def apps(self, _asked: web.Request) -> web.Response:
        if not self.configs:
            return web.json_response({"applications": {}, "proxies": {}})
        newest = self.configs[-1]
        apps = {one["name"]: self._app(one) for one in newest["applications"]}
        return web.json_response(
            {"applications": apps, "proxies": {"node": {}}, "http_options": newest["http_options"]}
        )

    def _app(self, config: dict[str, Any]) -> dict[str, Any]:
        replicas = [{"state": "RUNNING"}] * config["args"].get("gateways", 2)
        gateway = {"target_num_replicas": len(replicas), "replicas": replicas, "message": ""}
        about = {"source": "declarative", "deployed_app_config": config, "route_prefix": config["route_prefix"]}
        return about | {"status": "RUNNING", "message": "", "deployments": {"gateway": gateway}}

    async def deploy(self, asked: web.Request) -> web.Response:
        self.configs.append(await asked.json())
        return web.Response()

    def app(self) -> web.Application:
        app = web.Application(middlewares=[asks_for_the_token])
        app.router.add_get("/api/version", self.version)
        app.router.add_get("/api/ray/version", self.version)
        app.router.add_get("/api/serve/applications/", self.apps)
        app.router.add_put("/api/serve/applications/", self.deploy)
        app.router.add_get("/api/packages/{protocol}/{name}", self.package)
        app.router.add_post("/api/jobs/", self.submit)
        app.router.add_get("/api/jobs/{job}", self.info)
        app.router.add_post("/api/jobs/{job}/stop", self.stop)
        app.router.add_get("/api/jobs/{job}/logs/tail", self.tail)
        return app


@contextmanager
def dashboard(**how: Any) -> Iterator[Dashboard]:
    """Listening on loopback, for the time of the block."""
    board, loop = Dashboard(**how), asyncio.new_event_loop()
    started = threading.Event()

    closing = asyncio.Event()

    async def run() -> None:
        runner = web.AppRunner(board.app(), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        board.url = f"http://{host}:{port}"
        started.set()
        await closing.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), name="dashboard")
    thread.start()
    assert started.wait(30.0), "the dashboard did not start"
    try:
        yield board
    finally:
        loop.call_soon_threadsafe(board.over.set)
        loop.call_soon_threadsafe(closing.set)
        thread.join(30.0)
        loop.close()
