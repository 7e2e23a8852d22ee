"""The Open Inference Protocol's gRPC port: any message to any of its methods, with any metadata, from anywhere.

Messages are drawn from the protocol's own descriptors, so each field of each of them takes any value that it can hold;
others are such with bytes changed, cut, doubled, or none at all. An answer, or a refusal in words that no caller's
words or traceback are part of; never INTERNAL, which is an error that nobody thought of.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import anyio
import grpc
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from failsoft.errors import BadRequestError
from failsoft.serving.config import GatewayConfig
from failsoft.serving.web.protocol.grpc_bodies import read_message
from failsoft.serving.web.protocol.grpc_calls import is_loopback
from failsoft.serving.web.protocol.grpc_messages import METHODS, SERVICE, message
from failsoft.serving.web.protocol.tensors import BYTES, LAYOUT, element_count
from tests.serving.web.protocol.served import MODEL, Served
from tests.serving.web.protocol.test_grpc import FakeContext, infer, listening

REFUSALS = {
    None,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
_WELL_KNOWN = ["text", MODEL, "r1", "timeout", "timeout_ms", "caller", "session", "sequence_id", *LAYOUT, BYTES, "BF16"]
_TEXTS = st.sampled_from(_WELL_KNOWN) | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


def values_of(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    """Any that one field can hold."""
    kind = field.cpp_type
    if kind in _INTEGERS:
        least, most = _INTEGERS[kind]
        return st.integers(max(least, -3), 9) | st.integers(least, most)
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return st.binary(max_size=20) if field.type == FieldDescriptor.TYPE_BYTES else _TEXTS
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return st.booleans()
    return st.floats(width=32 if kind == FieldDescriptor.CPPTYPE_FLOAT else 64)


@st.composite
def filled(draw: st.DrawFn, descriptor: Descriptor, made: Any) -> Any:
    """A message with some of its fields set, nested ones too."""
    for field in draw(st.lists(st.sampled_from(list(descriptor.fields)), unique_by=lambda one: one.name, max_size=5)):
        _fill(draw, field, made)
    return made


def _fill(draw: st.DrawFn, field: FieldDescriptor, made: Any) -> None:
    there = getattr(made, field.name)
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        for name in draw(st.lists(_TEXTS, max_size=2, unique=True)):
            draw(filled(inner.fields_by_name["value"].message_type, there[name]))
    elif inner is not None:
        for _ in range(draw(st.integers(1, 2))) if field.is_repeated else [0]:
            draw(filled(inner, there.add() if field.is_repeated else there))
    elif field.is_repeated:
        there.extend(draw(st.lists(values_of(field), max_size=4)))
    else:
        setattr(made, field.name, draw(values_of(field)))


@st.composite
def damaged(draw: st.DrawFn, raw: bytes) -> bytes:
    """Whole in half of all cases; else cut, doubled, or with some bytes changed."""
    how = draw(st.sampled_from(["whole", "whole", "whole", "cut", "doubled", "changed"]))
    if how == "cut":
        return raw[: draw(st.integers(0, len(raw)))]
    if how == "doubled":  # fields that are there twice: the last one counts, lists grow
        return raw + raw
    body = bytearray(raw)
    for place in draw(st.lists(st.integers(0, max(0, len(raw) - 1)), max_size=3)) if how == "changed" and raw else ():
        body[place] = draw(st.integers(0, 255))
    return bytes(body)


@st.composite
def nearly_right(draw: st.DrawFn) -> bytes:
    """A request that can be answered, but for one thing perhaps."""
    made = message("ModelInferRequest").FromString(
        infer(*draw(st.lists(st.binary(max_size=20), min_size=1, max_size=3)))
    )
    fields = made.DESCRIPTOR.fields_by_name
    for name in draw(st.lists(st.sampled_from(["id", "parameters", "outputs", "inputs"]), unique=True, max_size=2)):
        _fill(draw, fields[name], made)
    raw: bytes = made.SerializeToString()
    return raw


@st.composite
def sent(draw: st.DrawFn) -> tuple[str, bytes]:
    """A method, and what is sent to it: its request, another method's, or any bytes."""
    method, shape = draw(st.sampled_from(METHODS)), draw(st.sampled_from((*METHODS, *["ModelInfer"] * 6)))
    method = shape if draw(st.integers(0, 4)) else method
    if draw(st.integers(0, 9)) == 0:
        return method, draw(st.binary(max_size=100))
    if draw(st.integers(0, 2)) == 0:
        return "ModelInfer", draw(nearly_right().flatmap(damaged))
    made = message(f"{shape}Request")()
    if "model_name" in made.DESCRIPTOR.fields_by_name and draw(st.integers(0, 3)):
        made.model_name = MODEL
    if made.DESCRIPTOR.fields:
        draw(filled(made.DESCRIPTOR, made))
    return method, draw(damaged(made.SerializeToString()))


_names = st.sampled_from(["x-request-timeout-ms", "x-caller-id", "x-session-id", "x-request-id", "other"])
_words = ["nan", "inf", "-1", "0", "1e9", "1e-320", "١٢", "1_0", "250", "a" * 300, ""]
_said = st.tuples(_names, st.sampled_from(_words) | _TEXTS) | st.tuples(st.just("trace-bin"), st.binary(max_size=9))
metadata = st.lists(_said, max_size=4)
"""As gRPC hands it on: text, but for names that end in -bin."""
peers = st.one_of(
    st.sampled_from(["ipv4:127.0.0.1:1", "ipv6:%5B::1%5D:80", "unix:", "ipv4:10.0.0.7:1", "ipv6:[::ffff:127.0.0.1]:9"]),
    st.text(max_size=30),
)


@cache
def served() -> Served:
    """One for all examples: what was asked before changes nothing."""
    return Served(GatewayConfig(max_body_bytes=4_000))


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(asked=sent(), said=metadata, peer=st.just("ipv4:127.0.0.1:1") | peers)
def test_any_message_to_any_method_is_answered_or_refused_in_words(
    asked: tuple[str, bytes], said: list[tuple[str, Any]], peer: str
) -> None:
    method, raw = asked
    context = FakeContext(peer, said)
    response = anyio.run(partial(served().calls.call, method, raw, context))
    assert context.code in REFUSALS, (context.code, context.details)
    assert (context.code is None) == (context.details == "")
    assert "Traceback" not in context.details
    assert len(context.details) <= 1_000
    back = type(response).FromString(response.SerializeToString())
    assert back.DESCRIPTOR.name == f"{method}Response"
    if context.code is not None:
        assert response.ByteSize() == 0, "a refusal has no answer beside it"
    if context.code is not grpc.StatusCode.PERMISSION_DENIED:
        assert is_loopback(peer)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(made=st.builds(message("ModelInferRequest")).flatmap(lambda made: filled(made.DESCRIPTOR, made)))
def test_what_is_read_of_a_message_is_never_more_than_came(made: Any) -> None:
    try:
        found = read_message(made)
    except BadRequestError:
        return
    came = max(1, made.ByteSize())
    for tensor in found.inputs:
        assert len(tensor.values) == element_count(tensor.name, tensor.datatype, tensor.shape) <= came


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    """A few bytes that would be a value for each of 2**62 places, and a shape that multiplies to nothing."""
    for shape in ([2**62], [2**31, 2**31], [2**62, 0], [2**32, 2**32], [-1], [-(2**63)]):
        for kind in (*LAYOUT, BYTES):
            made = message("ModelInferRequest")(model_name=MODEL, raw_input_contents=[b""])
            made.inputs.add(name="text", datatype=kind, shape=shape)
            context = FakeContext()
            anyio.run(partial(served().calls.call, "ModelInfer", made.SerializeToString(), context))
            assert context.code is grpc.StatusCode.INVALID_ARGUMENT, (kind, shape, context.details)


def code_of(call: Any, raw: bytes) -> grpc.StatusCode | None:
    """How a call over the network ended; None: with an answer."""
    try:
        call(raw, timeout=30.0)
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return None


@pytest.mark.parametrize("squeeze", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_over_a_real_port_whatever_came_before_the_next_caller_is_answered(squeeze: grpc.Compression) -> None:
    with listening(served()) as address, grpc.insecure_channel(address, compression=squeeze) as channel:
        calls = {method: channel.unary_unary(f"/{SERVICE}/{method}") for method in METHODS}

        @settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(asked=sent())
        def send(asked: tuple[str, bytes]) -> None:
            assert code_of(calls[asked[0]], asked[1]) in REFUSALS

        send()
        answer = message("ModelInferResponse").FromString(calls["ModelInfer"](infer(b"play some jazz"), timeout=30.0))
        assert "intent" in [output.name for output in answer.outputs]
