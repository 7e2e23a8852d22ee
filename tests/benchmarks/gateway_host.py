"""One contender of the gateway's benchmark, in a process of its own.

``python -m tests.benchmarks.gateway_host KIND --ingress fast --home FOLDER`` prints a JSON line with its port once it
answers, and stops when its standard input ends, at SIGTERM, and when its starter dies. All serve the same release on
loopback with one replica of the model.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path

from failsoft.ingress import LOOPBACK, Ingress, entry
from failsoft.local_ray import local_ray
from tests.benchmarks.leash import Leash, led, ray_in_time
from tests.drills.serving_support import free_port

SLOTS = 4


@contextmanager
def ours(home: Path, port: int) -> Iterator[None]:
    """A gateway with all nets on, and its models."""
    from serve_apps.intent_ner import ServeSettings
    from serve_apps.runtime import start

    running = start(ServeSettings(home=home, profile="drill", gateways=1), port=port)
    try:
        yield
    finally:
        running.stop()


@contextmanager
def bare(home: Path, port: int, *, lean: bool = False) -> Iterator[None]:
    """Ray Serve as one would write it without nets: an ingress that asks the model. It keeps as few logs as ours."""
    from ray import serve
    from ray.serve.config import HTTPOptions, ProxyLocation
    from ray.serve.schema import LoggingConfig

    from tests.benchmarks.gateway_bare import bare_app

    http, quiet = HTTPOptions(host=LOOPBACK, port=port), LoggingConfig(log_level="WARNING", enable_access_log=False)
    serve.start(http_options=http, proxy_location=ProxyLocation.HeadOnly, logging_config=quiet)
    serve.run(bare_app(home, lean=lean), name="bare", route_prefix="/", logging_config=quiet)
    try:
        yield
    finally:
        serve.shutdown()


@contextmanager
def incident(home: Path, port: int) -> Iterator[None]:
    """Gateways whose model can be made to answer badly; how many, says the environment."""
    from tests.benchmarks.incident_app import serving

    with serving(home, port):
        yield


@contextmanager
def redeployed(home: Path, port: int) -> Iterator[None]:
    """Bare Ray Serve whose model can be made to answer badly, and whose old image is put back when a file says so."""
    from tests.benchmarks.race_wall_hosts import redeployable

    with redeployable(home, port):
        yield


@contextmanager
def single(home: Path, port: int, *, with_breaker: bool = True) -> Iterator[None]:
    """FastAPI around the model, all in one process; with a circuit breaker or without."""
    from tests.benchmarks.gateway_single import app_of, serving

    with serving(app_of(home, with_breaker=with_breaker), port):
        yield


@contextmanager
def litserve(home: Path, port: int) -> Iterator[None]:
    """LitServe around the model."""
    from tests.benchmarks.gateway_litserve import litserve

    with litserve(home, port):
        yield


@contextmanager
def window(home: Path, port: int) -> Iterator[None]:
    """FastAPI with a sliding window around a model that can be made to answer badly, all in one process."""
    from tests.benchmarks.gateway_single import serving
    from tests.benchmarks.race_wall_hosts import windowed_app

    with serving(windowed_app(home), port):
        yield


ON_RAY: dict[str, Callable[[Path, int], AbstractContextManager[None]]] = {
    "ours": ours,
    "bare": bare,
    "lean": partial(bare, lean=True),
    "incident": incident,
    "redeployed": redeployed,
}
ALONE: dict[str, Callable[[Path, int], AbstractContextManager[None]]] = {
    "single": single,
    "plain": partial(single, with_breaker=False),
    "litserve": litserve,
    "window": window,
}


@contextmanager
def _serving(kind: str, ingress: Ingress, home: Path, port: int) -> Iterator[Leash]:
    with led() as leash:
        if kind in ALONE:
            with ALONE[kind](home, port):
                yield leash
            return
        with entry(ingress) as way, way.in_force(), ExitStack() as stack:
            ray_in_time(leash, lambda: stack.enter_context(local_ray(num_cpus=SLOTS)))
            with ON_RAY[kind](home, port):
                yield leash


def main() -> None:
    """Serve until it is told to end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=sorted(ON_RAY | ALONE))
    parser.add_argument("--ingress", type=Ingress, default=Ingress.SAFE)
    parser.add_argument("--home", type=Path, required=True)
    given = parser.parse_args()
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray writes to standard output too
    port = free_port()
    with _serving(given.kind, given.ingress, given.home, port) as leash:
        print(json.dumps({"port": port}), file=told, flush=True)
        sys.stdin.read()
        leash.end()


if __name__ == "__main__":
    main()
