"""The protocol over gRPC: messages as real clients have them, the same answers, and callers from elsewhere refused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto

from failsoft.errors import FailsoftError
from failsoft.serving.config import GatewayConfig
from failsoft.serving.plan.plan import Stage
from failsoft.serving.web.protocol.grpc_calls import add_inference_service, is_loopback
from failsoft.serving.web.protocol.grpc_messages import FIELDS, METHODS, message
from tests.serving.fakes import plan, weak
from tests.serving.web.protocol.served import MODEL, Served

pytestmark = pytest.mark.anyio


class FakeContext:
    """What Serve hands on of a call, and what is told to it."""

    def __init__(self, peer: str = "ipv4:127.0.0.1:1", metadata: Sequence[tuple[str, Any]] = ()) -> None:
        self._peer, self._metadata = peer, metadata
        self.code: grpc.StatusCode | None = None
        self.details = ""
        self.trailing: list[tuple[str, str]] = []

    def peer(self) -> str:
        return self._peer

    def invocation_metadata(self) -> Sequence[tuple[str, Any]]:
        return self._metadata

    def set_code(self, code: grpc.StatusCode) -> None:
        self.code = code

    def set_details(self, details: str) -> None:
        self.details = details

    def set_trailing_metadata(self, trailing_metadata: list[tuple[str, str]]) -> None:
        self.trailing = trailing_metadata


def infer(*said: bytes, **more: Any) -> bytes:
    asked = message("ModelInferRequest")(model_name=MODEL, **more)
    one = asked.inputs.add(name="text", datatype="BYTES", shape=[len(said)])
    one.contents.bytes_contents.extend(said)
    raw: bytes = asked.SerializeToString()
    return raw


async def test_a_text_is_answered_and_the_trailers_say_by_whom_and_why() -> None:
    served, context = Served(), FakeContext()
    served.counter.blue.answer = weak()
    said = await served.calls.call("ModelInfer", infer(b"play some jazz", id="q-1"), context)
    values = {output.name: output.contents for output in said.outputs}
    assert context.code is None
    assert (said.model_name, said.model_version, said.id) == (MODEL, "", "q-1")
    assert values["degrade_reason"].bytes_contents == [b"confidence 0.30 is below 0.50"]
    assert values["confidence"].fp32_contents[0] != values["confidence"].fp32_contents[0], "rules have no honest one"
    trailing = dict(context.trailing)
    assert trailing["x-degrade-reason"] == "confidence 0.30 is below 0.50"
    assert trailing["x-answer-source"].encode() == values["source"].bytes_contents[0]


async def test_metadata_of_a_call_say_what_headers_say_over_http() -> None:
    served = Served()
    metadata = [("x-request-timeout-ms", "70"), ("x-caller-id", "tenant-4"), ("x-session-id", "s-1")]
    metadata += [("x-request-id", "from-a-proxy")]
    await served.calls.call("ModelInfer", infer(b"play"), FakeContext(metadata=metadata))
    twice = FakeContext(metadata=[("x-caller-id", "a"), ("x-caller-id", "b")])
    await served.calls.call("ModelInfer", infer(b"play"), twice)
    soon = FakeContext(metadata=[("x-request-timeout-ms", "soon")])
    await served.calls.call("ModelInfer", infer(b"play"), soon)
    assert [(ask.timeout_ms, ask.caller, ask.key) for ask in served.asked] == [(70.0, "tenant-4", "s-1")]
    assert served.asked[0].request_id == "from-a-proxy"
    assert [context.code for context in (twice, soon)] == [grpc.StatusCode.INVALID_ARGUMENT] * 2


@pytest.mark.parametrize("method", METHODS)
async def test_a_caller_from_elsewhere_is_refused_unless_anywhere_was_asked_for(method: str) -> None:
    asked = {"name": MODEL} if method in ("ModelReady", "ModelMetadata") else {}
    raw = infer(b"play") if method == "ModelInfer" else message(f"{method}Request")(**asked).SerializeToString()
    codes = []
    for config in (GatewayConfig(), GatewayConfig(grpc_from="anywhere")):
        context = FakeContext(peer="ipv4:192.0.2.7:4711")
        await Served(config).calls.call(method, raw, context)
        codes.append(context.code)
    assert codes == [grpc.StatusCode.PERMISSION_DENIED, None]


@pytest.mark.parametrize(
    ("peer", "near"),
    [
        ("ipv4:127.0.0.1:53311", True),
        ("ipv4:127.8.0.1:1", True),
        ("ipv6:[::1]:53311", True),
        ("ipv6:%5B::1%5D:53311", True),
        ("ipv6:[::ffff:127.0.0.1]:1", True),
        ("unix:/tmp/s", True),
        ("unix:", True),
        ("ipv4:10.0.0.8:127", False),
        ("ipv6:[::ffff:10.0.0.8]:1", False),
        ("ipv6:[fe80::1%25lo]:1", False),
        ("ipv4:localhost:1", False),
        ("", False),
        ("unknown", False),
    ],
)
def test_who_is_on_this_machine_is_read_from_the_peer_and_what_is_unclear_is_not(peer: str, near: bool) -> None:
    assert is_loopback(peer) is near


async def test_a_bug_says_nothing_of_itself_and_errors_raised_on_purpose_have_their_codes() -> None:
    served = Served()
    found: list[tuple[Any, bool]] = []
    for error in (ZeroDivisionError("secret"), FailsoftError("the disk is full")):

        async def fails(_: Any, error: Exception = error) -> Any:
            raise error

        served.app.state.room._answer = fails
        context = FakeContext()
        await served.calls.call("ModelInfer", infer(b"play"), context)
        found.append((context.code, "secret" in context.details))
    assert found == [(grpc.StatusCode.INTERNAL, False), (grpc.StatusCode.UNAVAILABLE, False)]


def test_the_messages_are_those_of_a_real_client_field_by_field() -> None:
    theirs = pytest.importorskip("tritonclient.grpc.service_pb2", reason="needs tritonclient[grpc]")
    for name in FIELDS:
        found: Any = theirs
        for part in name.split("."):
            found = getattr(found, part)
        ours, real = DescriptorProto(), DescriptorProto()
        message(name).DESCRIPTOR.CopyToProto(ours)
        found.DESCRIPTOR.CopyToProto(real)
        assert ours == real, name


class Servicer:
    """What Serve does: hands bytes and the call to the gateway, and sends back what it says."""

    def __init__(self, served: Served) -> None:
        self._served = served

    def __getattr__(self, method: str) -> Any:
        async def call(raw: bytes, context: Any) -> bytes:
            answer: bytes = (await self._served.calls.call(method, raw, context)).SerializeToString()
            return answer

        return call


@contextmanager
def listening(served: Served) -> Iterator[str]:
    """Host and port of a real gRPC server in a thread."""
    loop, found, ended = asyncio.new_event_loop(), list[int](), threading.Event()
    started = threading.Event()

    async def run() -> None:
        server = grpc.aio.server()
        add_inference_service(Servicer(served), server)
        found.append(server.add_insecure_port("127.0.0.1:0"))
        await server.start()
        started.set()
        await asyncio.to_thread(ended.wait)
        await server.stop(None)

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), name="grpc")
    thread.start()
    assert started.wait(30.0), "the server did not start"
    try:
        yield f"127.0.0.1:{found[0]}"
    finally:
        ended.set()
        thread.join(30.0)
        loop.close()


def test_tritonclient_works_unchanged() -> None:
    client_of = pytest.importorskip("tritonclient.grpc", reason="needs tritonclient[grpc]")
    import numpy as np

    served = Served()
    with listening(served) as address:
        client = client_of.InferenceServerClient(address)
        assert (client.is_server_live(), client.is_server_ready(), client.is_model_ready(MODEL)) == (True, True, True)
        assert client.get_server_metadata().extensions == ["binary_tensor_data"]
        card = client.get_model_metadata(MODEL, "r1", as_json=True)
        assert card["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": ["-1"]}]
        text = client_of.InferInput("text", [2, 1], "BYTES")
        text.set_data_from_numpy(np.array([[b"play some jazz"], ["wake me at seven"]], dtype=np.object_))
        answer = client.infer(MODEL, [text], request_id="q-1", timeout=90_000, headers={"x-caller-id": "tenant-4"})
        assert answer.as_numpy("intent").tolist() == [b"play_music", b"play_music"]
        assert answer.as_numpy("confidence").tolist() == [pytest.approx(0.97)] * 2
        assert answer.get_response().parameters["source"].string_param == "primary"
        assert (served.asked[0].request_id, served.asked[0].timeout_ms, served.asked[0].caller) == (
            "q-1",
            90.0,
            "tenant-4",
        )
        served.follow(plan(Stage.DEGRADED, share=0.0))
        assert (client.is_server_ready(), client.is_model_ready(MODEL)) == (True, False)
        wanted = [client_of.InferRequestedOutput("source")]
        assert client.infer(MODEL, [text], outputs=wanted).as_numpy("source").tolist() != [b"primary"] * 2
        with pytest.raises(Exception, match=r"NOT_FOUND.*no model 'other'"):
            client.infer("other", [text])
        client.close()
