"""The protocol's messages for gRPC, made at run time from a table of its fields: no generated code, no compiler.

They live in a pool of their own. In the process-wide one they would collide with those of a client library that is
loaded beside them, for all of them have the same names. Names and numbers are those of the protocol's public
``inference`` package; a test holds them against the messages of a real client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"
METHODS = ("ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer")
"""Each takes a message ``…Request`` and gives a ``…Response``."""

_PARAMETERS = "map InferParameter parameters"
FIELDS: Mapping[str, str] = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "bool live = 1",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "bool ready = 1",
    "ModelReadyRequest": "string name = 1; string version = 2",
    "ModelReadyResponse": "bool ready = 1",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "string name = 1; string version = 2; repeated string extensions = 3",
    "ModelMetadataRequest": "string name = 1; string version = 2",
    "ModelMetadataResponse": "string name = 1; repeated string versions = 2; string platform = 3; "
    "repeated ModelMetadataResponse.TensorMetadata inputs = 4; "
    "repeated ModelMetadataResponse.TensorMetadata outputs = 5",
    "ModelMetadataResponse.TensorMetadata": "string name = 1; string datatype = 2; repeated int64 shape = 3",
    "InferParameter": "oneof bool bool_param = 1; oneof int64 int64_param = 2; oneof string string_param = 3; "
    "oneof double double_param = 4; oneof uint64 uint64_param = 5",
    "InferTensorContents": "repeated bool bool_contents = 1; repeated int32 int_contents = 2; "
    "repeated int64 int64_contents = 3; repeated uint32 uint_contents = 4; repeated uint64 uint64_contents = 5; "
    "repeated float fp32_contents = 6; repeated double fp64_contents = 7; repeated bytes bytes_contents = 8",
    "ModelInferRequest": "string model_name = 1; string model_version = 2; string id = 3; "
    f"{_PARAMETERS} = 4; repeated ModelInferRequest.InferInputTensor inputs = 5; "
    "repeated ModelInferRequest.InferRequestedOutputTensor outputs = 6; repeated bytes raw_input_contents = 7",
    "ModelInferRequest.InferInputTensor": "string name = 1; string datatype = 2; repeated int64 shape = 3; "
    f"{_PARAMETERS} = 4; InferTensorContents contents = 5",
    "ModelInferRequest.InferRequestedOutputTensor": f"string name = 1; {_PARAMETERS} = 2",
    "ModelInferResponse": "string model_name = 1; string model_version = 2; string id = 3; "
    f"{_PARAMETERS} = 4; repeated ModelInferResponse.InferOutputTensor outputs = 5; "
    "repeated bytes raw_output_contents = 6",
    "ModelInferResponse.InferOutputTensor": "string name = 1; string datatype = 2; repeated int64 shape = 3; "
    f"{_PARAMETERS} = 4; InferTensorContents contents = 5",
}
"""Each message, and its fields as a ``.proto`` file has them; a map's keys are strings, a message has one oneof."""


_FIELD = re.compile(r"(?:(repeated|map|oneof) )?(\S+) (\S+) = (\d+)")
_REPEATED, _OPTIONAL = FieldDescriptorProto.LABEL_REPEATED, FieldDescriptorProto.LABEL_OPTIONAL


def message(name: str) -> Any:
    """The class of a message, as ``ModelInferRequest``."""
    return GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


def _pool() -> DescriptorPool:
    file = FileDescriptorProto(name="failsoft/open_inference.proto", package=PACKAGE, syntax="proto3")
    made: dict[str, DescriptorProto] = {}
    for name in FIELDS:
        outer, _, inner = name.rpartition(".")
        made[name] = made[outer].nested_type.add(name=inner) if outer else file.message_type.add(name=name)
    for name, fields in FIELDS.items():
        for declared in filter(None, fields.split("; ")):
            _add_field(made[name], name, declared)
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool


def _add_field(to: DescriptorProto, inside: str, declared: str) -> None:
    """Add one field, declared as ``[repeated|map|oneof] type name = number``."""
    how, kind, name, number = _FIELD.fullmatch(declared).groups()  # type: ignore[union-attr]  # of the table above
    label = _REPEATED if how in ("repeated", "map") else _OPTIONAL
    field = to.field.add(name=name, number=int(number), label=label)
    if how == "map":
        kind = f"{inside}.{_add_entry(to, name, kind)}"
    if how == "oneof":
        field.oneof_index = 0
        if not to.oneof_decl:
            to.oneof_decl.add(name="parameter_choice")
    _set_type(field, kind)


def _add_entry(to: DescriptorProto, name: str, kind: str) -> str:
    """A map's entry, which is a message of its own; its name."""
    entry = to.nested_type.add(name=f"{name.capitalize()}Entry")
    entry.options.map_entry = True
    _set_type(entry.field.add(name="key", number=1, label=_OPTIONAL), "string")
    _set_type(entry.field.add(name="value", number=2, label=_OPTIONAL), kind)
    return str(entry.name)


def _set_type(field: FieldDescriptorProto, kind: str) -> None:
    scalar = f"TYPE_{kind.upper()}"
    if scalar in FieldDescriptorProto.Type.DESCRIPTOR.values_by_name:
        field.type = FieldDescriptorProto.Type.Value(scalar)
    else:
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{kind}"


_POOL = _pool()
