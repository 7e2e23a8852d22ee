"""Inferences as messages of gRPC: the same requests and answers as over HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from failsoft.errors import BadRequestError
from failsoft.serving.web.protocol.grpc_messages import message
from failsoft.serving.web.protocol.http_bodies import MAX_TENSORS
from failsoft.serving.web.protocol.tensors import (
    BYTES,
    InferRequest,
    InferResponse,
    Tensor,
    Wanted,
    as_bytes,
    as_octets,
    from_bytes,
    from_values,
)

_CONTENTS: Mapping[str, str] = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    BYTES: "bytes_contents",
}
"""Where a message holds values of a datatype; those of FP16 come as bytes only."""


def read_message(asked: Any) -> InferRequest:
    """What a ``ModelInferRequest`` asks.

    Raises:
        BadRequestError: its tensors are none.
    """
    if len(asked.inputs) > MAX_TENSORS or len(asked.outputs) > MAX_TENSORS:
        raise BadRequestError(f"more than {MAX_TENSORS} inputs or outputs; no model here has so many")
    return InferRequest(
        inputs=list(_inputs(asked)),
        request_id=asked.id,
        parameters=dict(_parameters(asked.parameters)),
        wanted=[Wanted(name=one.name) for one in asked.outputs],
        binary=bool(asked.raw_input_contents),
    )


def write_message(response: InferResponse, request: InferRequest) -> Any:
    """The ``ModelInferResponse``: values as bytes where they came as such, else by their datatype."""
    said = message("ModelInferResponse")(
        model_name=response.model, model_version=response.version, id=response.request_id
    )
    for name, value in response.parameters.items():
        setattr(said.parameters[name], _choice(value), value)
    for tensor in response.outputs:
        output = said.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        if request.binary:
            said.raw_output_contents.append(as_bytes(tensor))
        else:
            getattr(output.contents, _CONTENTS[tensor.datatype]).extend(_values(tensor))
    return said


def _inputs(asked: Any) -> Iterator[Tensor]:
    raws: Sequence[bytes] = asked.raw_input_contents
    if raws and len(raws) != len(asked.inputs):
        raise BadRequestError(
            f"{len(raws)} raw_input_contents for {len(asked.inputs)} inputs; each has its own, or none"
        )
    for place, one in enumerate(asked.inputs):
        if raws:
            yield from_bytes(one.name, one.datatype, one.shape, raws[place])
        elif one.datatype in _CONTENTS:
            yield from_values(one.name, one.datatype, one.shape, list(getattr(one.contents, _CONTENTS[one.datatype])))
        else:
            raise BadRequestError(f"input {one.name[:80]!r}: send {one.datatype[:20]!r} in raw_input_contents")


def _parameters(given: Any) -> Iterator[tuple[str, bool | int | float | str]]:
    for name, value in given.items():
        chosen = value.WhichOneof("parameter_choice")
        if chosen is not None:
            yield name, getattr(value, chosen)


def _choice(value: bool | int | float | str) -> str:  # noqa: FBT001 -- a value like the others
    if isinstance(value, bool):
        return "bool_param"
    if isinstance(value, int):
        return "int64_param"
    return "double_param" if isinstance(value, float) else "string_param"


def _values(tensor: Tensor) -> list[Any]:
    if tensor.datatype == BYTES:
        return [as_octets(value) for value in tensor.values]
    return [float("nan") if value is None else value for value in tensor.values]
