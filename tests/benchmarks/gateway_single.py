"""FastAPI in one process, with pybreaker around the model or with nothing: what many write, the gateway's floor."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from pybreaker import CircuitBreaker
from pydantic import BaseModel

from tests.benchmarks.gateway_bare import answer_of, load_newest

FAILURES, REST_S = 5, 30.0


class Question(BaseModel):
    """A request."""

    text: str


def app_of(home: Path, *, with_breaker: bool = True) -> FastAPI:
    """The app."""
    model, app = load_newest(home), FastAPI()
    breaker = CircuitBreaker(fail_max=FAILURES, reset_timeout=REST_S)

    async def predict(question: Question) -> dict[str, Any]:
        texts = [question.text]
        return answer_of(breaker.call(model.predict, texts) if with_breaker else model.predict(texts))

    app.add_api_route("/v1/predict", predict, methods=["POST"])
    return app


@contextmanager
def serving(app: FastAPI, port: int) -> Iterator[None]:
    """Serve on loopback from a thread for the time of the block."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, name="uvicorn")
    thread.start()
    try:
        while not server.started:
            time.sleep(0.02)
        yield
    finally:
        server.should_exit = True
        thread.join(10.0)
