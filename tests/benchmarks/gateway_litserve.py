"""LitServe around the same model: one worker that computes, one server that hears, as ``LitServer`` starts them itself.

LitServe starts processes of its own and ends them when its main process is interrupted, so it has a main process here:
``python -m tests.benchmarks.gateway_litserve FOLDER PORT``.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from litserve import LitAPI, LitServer

from failsoft.ingress import LOOPBACK
from tests.benchmarks.gateway_bare import answer_of, load_newest
from tests.benchmarks.leash import on_leash
from tests.benchmarks.load_client import PATH
from tests.conftest import ROOT

_START_S, _STOP_S, _LOOK_S = 120.0, 20.0, 0.2


@contextmanager
def litserve(home: Path, port: int) -> Iterator[None]:
    """Serve on loopback for the time of the block."""
    command = [sys.executable, "-m", "tests.benchmarks.gateway_litserve", str(home), str(port)]
    process = subprocess.Popen(on_leash(command), cwd=ROOT)
    try:
        _await(process, f"http://{LOOPBACK}:{port}/health")
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(_STOP_S)


def _await(process: subprocess.Popen[bytes], health: str) -> None:
    give_up_s = time.monotonic() + _START_S
    while time.monotonic() < give_up_s:
        if process.poll() is not None:
            raise RuntimeError(f"LitServe ended with {process.returncode} before it served")
        try:
            if httpx.get(health).is_success:
                return
        except httpx.TransportError:  # it does not listen yet
            pass
        time.sleep(_LOOK_S)
    raise TimeoutError(f"LitServe did not serve within {_START_S:g} s")


class Model(LitAPI):  # type: ignore[misc]  # it ships no types
    """The methods and their names are LitServe's; its worker gets the class by its name."""

    def setup(self, device: str) -> None:
        """Called by the worker."""
        self._model = load_newest(Path(sys.argv[1]))

    # LitServe reads the types at run time and cannot resolve a name that stands as text
    def decode_request(self, request):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        """Called by the worker."""
        return str(request["text"])

    def predict(self, text: str) -> dict[str, Any]:
        """Called by the worker."""
        return answer_of(self._model.predict([text]))

    def encode_response(self, answer):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        """Called by the worker."""
        return answer


def main() -> None:
    """Serve until it is interrupted."""
    server = LitServer(Model(api_path=PATH), accelerator="cpu", workers_per_device=1)
    server.run(host=LOOPBACK, port=int(sys.argv[2]), generate_client_file=False, log_level="warning")


if __name__ == "__main__":
    main()
