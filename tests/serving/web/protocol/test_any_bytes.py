"""Whatever bytes come, in JSON, after it, or in a message: an answer or a refusal in words, and never a 5xx."""

from __future__ import annotations

import json
import struct
from functools import cache
from typing import Any

import grpc
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from failsoft.errors import BadRequestError
from failsoft.serving.config import GatewayConfig
from failsoft.serving.web.protocol import http_bodies
from failsoft.serving.web.protocol.grpc_messages import message
from failsoft.serving.web.protocol.http_bodies import read_body
from failsoft.serving.web.protocol.tensors import (
    BYTES,
    LAYOUT,
    Tensor,
    as_bytes,
    element_count,
    from_bytes,
    from_values,
)
from tests.serving.web.protocol.served import MODEL, Served, infer_path
from tests.serving.web.protocol.test_grpc import FakeContext

pytestmark = pytest.mark.anyio


@cache
def served() -> Served:
    """One for all examples: what was asked before changes nothing."""
    return Served()


_sizes = st.one_of(st.integers(-2, 9), st.sampled_from([2**31, 2**62, 2**64, 10**30]))
_kinds = st.sampled_from([*LAYOUT, BYTES, "BF16", "bytes", ""])
_leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5))
_data = st.recursive(_leaves, lambda inner: st.lists(inner, max_size=4), max_leaves=12)
_lengths = st.one_of(st.none(), st.integers(-3, 60), st.just(2**31), st.booleans(), st.text(max_size=3))
_inputs = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["text", "text", "instance", "", "\ud83d"]),
        "datatype": _kinds,
        "shape": st.lists(_sizes, max_size=4),
        "data": _data,
        "parameters": st.dictionaries(st.just("binary_data_size"), _lengths, max_size=1),
    },
)
_plain = st.fixed_dictionaries(
    {"name": st.just("text"), "datatype": st.just("BYTES"), "shape": st.just([1])},
    optional={"data": st.lists(st.text(max_size=5), max_size=2), "parameters": st.just({"binary_data_size": 8})},
)
_bodies = st.fixed_dictionaries(
    {"inputs": st.lists(st.one_of(_inputs, _plain), max_size=3)},
    optional={
        "id": st.one_of(st.text(max_size=3), st.integers(), st.just("x" * 300)),
        "parameters": st.dictionaries(
            st.sampled_from(["timeout", "caller", "sequence_id", "binary_data_output", "timeout_ms"]), _leaves
        ),
        "outputs": st.lists(st.dictionaries(st.sampled_from(["name", "parameters"]), st.sampled_from(["intent", {}]))),
    },
)
_tails = st.one_of(
    st.just(b""),
    st.binary(max_size=60),
    st.lists(st.binary(max_size=9)).map(lambda parts: b"".join(struct.pack("<I", len(part)) + part for part in parts)),
)
_announced = st.one_of(st.none(), st.text("0123456789 -+٣x", max_size=25))


@st.composite
def nearly_right(draw: st.DrawFn) -> tuple[bytes, str | None]:
    """A body that can be answered, or one byte away from it."""
    parts = draw(st.lists(st.binary(max_size=9), min_size=1, max_size=4))
    raw = b"".join(struct.pack("<I", len(part)) + part for part in parts)
    shape = draw(st.sampled_from([[len(parts)], [len(parts), 1]]))
    tensor = {"name": "text", "datatype": "BYTES", "shape": shape, "parameters": {"binary_data_size": len(raw)}}
    said = {"timeout": draw(st.integers(1, 10**6)), "binary_data_output": draw(st.booleans())}
    head = json.dumps({"inputs": [tensor], "parameters": said}).encode()
    body = bytearray(head + raw)
    if draw(st.booleans()):
        body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    return bytes(body), str(len(head))


@st.composite
def requests(draw: st.DrawFn) -> tuple[bytes, str | None]:
    """A body, and what its header says of it: mostly the truth."""
    head = draw(st.one_of(_bodies.map(lambda body: json.dumps(body).encode()), st.binary(max_size=60)))
    truth = draw(st.integers(0, 3)) > 0
    return head + draw(_tails), str(len(head)) if truth else draw(_announced)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(sent=st.one_of(requests(), nearly_right()))
async def test_any_body_is_answered_or_refused_in_words_over_http(sent: tuple[bytes, str | None]) -> None:
    body, announced = sent
    headers = [] if announced is None else [(b"inference-header-content-length", announced.encode())]
    async with served().client(raises=True) as http:  # it raises whatever the app raises
        response = await http.post(infer_path(), content=body, headers=headers)
    assert response.status_code in (200, 400), response.text
    if response.status_code == 400:
        assert list(response.json()) == ["error"]
        assert 0 < len(response.json()["error"]) < 2_000


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(sent=st.one_of(requests(), nearly_right()))
def test_whatever_is_read_holds_as_many_values_as_its_shapes_say_and_never_more_than_came(
    sent: tuple[bytes, str | None],
) -> None:
    try:
        found = read_body(*sent)
    except BadRequestError:
        return
    for tensor in found.inputs:
        assert len(tensor.values) == element_count(tensor.name, tensor.datatype, tensor.shape) <= len(sent[0])


_parameters = st.dictionaries(st.sampled_from(["timeout", "caller"]), st.one_of(st.text(max_size=3), st.booleans()))


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """A ``ModelInferRequest`` of any fields, sometimes damaged."""
    asked = message("ModelInferRequest")(model_name=MODEL, id=draw(st.text(st.characters(codec="utf-8"), max_size=3)))
    for name, value in draw(_parameters).items():
        setattr(asked.parameters[name], "bool_param" if isinstance(value, bool) else "string_param", whole_text(value))
    for _ in range(draw(st.integers(0, 2))):
        shape = draw(st.lists(st.one_of(st.integers(-2, 5), st.just(2**62)), max_size=3))
        one = asked.inputs.add(name="text", datatype=draw(_kinds), shape=shape)
        one.contents.bytes_contents.extend(draw(st.lists(st.binary(max_size=5), max_size=3)))
    asked.raw_input_contents.extend(draw(st.lists(_tails, max_size=2)))
    raw: bytes = asked.SerializeToString()
    return raw if draw(st.booleans()) else raw[: draw(st.integers(0, len(raw)))]


def whole_text(value: Any) -> Any:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(raw=st.one_of(st.binary(max_size=80), messages()))
async def test_any_message_is_answered_or_refused_in_words_over_grpc(raw: bytes) -> None:
    context = FakeContext()
    said = await served().calls.call("ModelInfer", raw, context)
    assert context.code in (None, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND), context.details
    assert isinstance(said.SerializeToString(), bytes)
    assert context.code is None or context.details


_ODD: dict[str, tuple[str, dict[str, Any]]] = {
    "parameters": ("inputs.0.parameters", {"parameters": {f"a{place}": [] for place in range(9_000)}}),
    "sizes": ("inputs.0.shape", {"shape": ["1"] * 9_000}),
}


@pytest.mark.parametrize("name", _ODD)
def test_a_body_full_of_misfits_is_refused_at_the_first_for_others_wait_meanwhile(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    said = http_bodies.in_one_line

    def counting(error: ValidationError) -> str:
        counted.append(error.error_count())
        return said(error)

    monkeypatch.setattr(http_bodies, "in_one_line", counting)
    where, odd = _ODD[name]
    body = {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "data": ["x"]} | odd]}
    with pytest.raises(BadRequestError, match=where):
        read_body(json.dumps(body).encode(), None)
    assert counted[0] <= 64


@pytest.mark.parametrize("kind", [*LAYOUT, BYTES])
def test_what_a_datatype_holds_is_looked_up_once_and_not_for_each_of_half_a_million_values(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    limits = np.iinfo

    def looking(name: str) -> Any:
        looked.append(name)
        return limits(name)

    monkeypatch.setattr(np, "iinfo", looking)
    value: Any = "x" if kind == BYTES else True if kind == "BOOL" else 1
    assert len(from_values("t", kind, [1000], [value] * 1000).values) == 1000
    assert len(from_values("t", kind, [10, 100], [[value] * 100] * 10).values) == 1000
    assert len(looked) <= 2


async def test_nothing_beyond_the_cap_is_read_over_either_transport() -> None:
    small, context = Served(GatewayConfig(max_body_bytes=2_000)), FakeContext()
    async with small.client() as http:
        response = await http.post(infer_path(), content=b"{" * 2_001)
    await small.calls.call("ModelInfer", b"\0" * 2_001, context)
    assert (response.status_code, list(response.json())) == (413, ["error"])
    assert (context.code, "larger than 2000 bytes" in context.details) == (grpc.StatusCode.INVALID_ARGUMENT, True)
    assert small.asked == []


_values = {
    **{name: st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for name, bits in (("INT8", 8), ("INT64", 64))},
    "UINT16": st.integers(0, 2**16 - 1),
    "FP64": st.floats(allow_nan=False),
    "FP32": st.floats(width=32, allow_nan=False),
    "FP16": st.floats(width=16, allow_nan=False),
    "BOOL": st.booleans(),
    "BYTES": st.binary(max_size=12),
}


@given(kind=st.sampled_from(sorted(_values)), draw=st.data())
def test_what_goes_as_bytes_comes_back_the_same(kind: str, draw: st.DataObject) -> None:
    values = draw.draw(st.lists(_values[kind], max_size=6))
    tensor = Tensor(name="t", datatype=kind, shape=(len(values),), values=values)
    back = from_bytes("t", kind, tensor.shape, as_bytes(tensor))
    assert back == tensor
    assert from_values("t", kind, tensor.shape, values) == tensor
