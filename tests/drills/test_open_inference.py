"""Triton's real clients against real Ray Serve, over HTTP and gRPC: well, degraded by order, and asked for nonsense."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest

from failsoft.artifacts.home import Home
from failsoft.serving import ServeSettings, build_app
from failsoft.serving.web.protocol.grpc_messages import SERVICE, message
from tests.drills.serving_support import free_port, wait_for
from tests.serving.own_world import example

pytestmark = pytest.mark.drill
MODEL = "flats"
FLATS = np.array([[70.0, 3.0], [45.0, 2.0]])
over_http = pytest.importorskip("tritonclient.http", reason="needs tritonclient[http]")
over_grpc = pytest.importorskip("tritonclient.grpc", reason="needs tritonclient[grpc]")


@dataclass(frozen=True, kw_only=True)
class There:
    """The app under drill."""

    url: str
    grpc_port: int
    token: str

    @property
    def clients(self) -> list[tuple[Any, Any]]:
        """Triton's client and its module, over HTTP and over gRPC."""
        near = self.url.removeprefix("http://")
        return [
            (over_http.InferenceServerClient(near), over_http),
            (over_grpc.InferenceServerClient(f"127.0.0.1:{self.grpc_port}"), over_grpc),
        ]

    def order(self, path: str) -> None:
        """As an operator."""
        headers = {"Authorization": f"Bearer {self.token}"}
        httpx.post(f"{self.url}{path}", json={"why": "a drill"}, headers=headers, timeout=10.0).raise_for_status()


@pytest.fixture
def there(tmp_path: Path, ray_local: None) -> Iterator[There]:
    from serve_apps.runtime import start

    own = example()
    own["publish"](tmp_path)
    settings = ServeSettings(home=tmp_path, profile="drill", gateways=2, model_name=MODEL)
    port, grpc_port = free_port(), free_port()
    running = start(settings, port=port, grpc_port=grpc_port, make=partial(build_app, own["config"]))
    try:
        yield There(url=running.url, grpc_port=grpc_port, token=Home.find(tmp_path).operator_token())
    finally:
        running.stop()


def rows(module: Any, *, width: int = 2) -> list[Any]:
    instance = module.InferInput("instance", [len(FLATS), width], "FP64")
    instance.set_data_from_numpy(FLATS[:, :width])
    return [instance]


def answers(client: Any, module: Any) -> tuple[list[Any], list[Any]]:
    found = client.infer(MODEL, rows(module), request_id="drill-1", timeout=2_000_000)
    return found.as_numpy("output").tolist(), found.as_numpy("source").tolist()


def is_the_models_own(client: Any, module: Any) -> bool:
    return answers(client, module) == ([305.0, 197.5], [b"primary"] * 2)


def none_is_ready(client: Any) -> bool:
    """Whichever gateway is asked: eight times the same word of two of them."""
    return not any(client.is_model_ready(MODEL) for _ in range(8))


def elsewhere() -> str | None:
    """An address of this machine that is not loopback; None where it has none. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        found: str = probe.getsockname()[0]
        return found


def asked() -> bytes:
    wanted = message("ModelInferRequest")(model_name=MODEL)
    wanted.inputs.add(name="instance", datatype="FP64", shape=[1, 2]).contents.fp64_contents.extend([70.0, 3.0])
    raw: bytes = wanted.SerializeToString()
    return raw


def called(address: str) -> tuple[Any, dict[str, str]]:
    """The answer to one raw call, and its trailers."""
    with grpc.insecure_channel(address) as channel:
        raw, call = channel.unary_unary(f"/{SERVICE}/ModelInfer").with_call(asked(), timeout=20.0)
        return message("ModelInferResponse").FromString(raw), dict(call.trailing_metadata())


def test_tritons_clients_are_answered_over_both_transports_by_the_model_and_without_it(there: There) -> None:
    for client, module in there.clients:
        assert (client.is_server_live(), client.is_server_ready(), client.is_model_ready(MODEL)) == (True, True, True)
        assert client.get_server_metadata() is not None
        assert client.get_model_metadata(MODEL) is not None
        wait_for(partial(is_the_models_own, client, module), within_s=30, what="the model's own answers")
        with pytest.raises(Exception, match="no model 'other' is served here"):
            client.infer("other", rows(module))
        with pytest.raises(Exception, match="instance"):
            client.infer(MODEL, rows(module, width=1))
    said, trailers = called(f"127.0.0.1:{there.grpc_port}")
    assert (list(said.outputs[0].contents.fp64_contents), trailers["x-answer-source"]) == ([305.0], "primary")
    there.order("/v1/degrade")
    for client, module in there.clients:
        wait_for(partial(none_is_ready, client), within_s=20, what="the order at every gateway")
        assert (client.is_server_live(), client.is_server_ready()) == (True, True)
        assert answers(client, module) == ([280.0, 180.0], [b"by_size"] * 2)
    assert "a drill" in called(f"127.0.0.1:{there.grpc_port}")[1]["x-degrade-reason"]


def test_a_call_from_beyond_loopback_is_refused_though_serves_port_is_open_there(there: There) -> None:
    address = elsewhere()
    if address is None:
        pytest.skip("this machine has no address but loopback")
    with pytest.raises(grpc.RpcError) as refused:
        called(f"{address}:{there.grpc_port}")
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
