"""FastAPI with a circuit breaker around the model in one process: what many write, and the floor for the gateway."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from tests.benchmarks.gateway_bare import answer_of, load_newest

HAS_PYBREAKER = find_spec("pybreaker") is not None
FAILURES, REST_S = 5, 30.0


class Breaker(Protocol):
    """What is used of pybreaker."""

    def call(self, func: Callable[[str], Any], text: str) -> Any:
        """Call, unless it failed several times in a row just now."""
        ...


class Counting:
    """Stands in where pybreaker is not installed: a lock and a count, about the work that pybreaker does. Not the same.

    Closed: calls and counts failures in a row; open: raises for ``REST_S``, then lets one through.
    """

    def __init__(self) -> None:
        self._lock, self._failures, self._open_until_s = threading.RLock(), 0, 0.0

    def call(self, func: Callable[[str], Any], text: str) -> Any:
        """Call, unless it rests."""
        with self._lock:
            if self._failures >= FAILURES and time.monotonic() < self._open_until_s:
                raise RuntimeError("the circuit is open")
            try:
                answer = func(text)
            except Exception:
                self._failures, self._open_until_s = self._failures + 1, time.monotonic() + REST_S
                raise
            self._failures = 0
            return answer


class Question(BaseModel):
    """A request."""

    text: str


def _breaker() -> Breaker:
    if not HAS_PYBREAKER:
        return Counting()
    made: Breaker = import_module("pybreaker").CircuitBreaker(fail_max=FAILURES, reset_timeout=REST_S)
    return made


def app_of(home: Path) -> FastAPI:
    """The app."""
    model, breaker, app = load_newest(home), _breaker(), FastAPI()

    async def predict(question: Question) -> dict[str, Any]:
        return answer_of(breaker.call(lambda text: model.predict([text]), question.text))

    app.add_api_route("/v1/predict", predict, methods=["POST"])
    return app


@contextmanager
def serving(home: Path, port: int) -> Iterator[None]:
    """Serve on loopback from a thread for the time of the block."""
    server = uvicorn.Server(uvicorn.Config(app_of(home), host="127.0.0.1", port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, name="uvicorn")
    thread.start()
    try:
        while not server.started:
            time.sleep(0.02)
        yield
    finally:
        server.should_exit = True
        thread.join(10.0)
