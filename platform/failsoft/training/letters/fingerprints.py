"""Short names for large things: the tensors of a model, the state of the generators. Equal names, equal bits."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping

import torch
from blake3 import blake3
from torch import Tensor

from failsoft.artifacts.manifest import digest_bytes

_CPU = "cpu"


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """Digest of names, types, shapes and bits of some tensors, wherever they live and in whatever order they are given.

    Copies one tensor after the other to the host; NaN is equal to a NaN of the same bits.
    """
    hasher = blake3(max_threads=max(1, torch.get_num_threads()))
    for name in sorted(tensors):
        tensor = tensors[name].detach()
        hasher.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        hasher.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return f"blake3:{hasher.hexdigest()}"


def bytes_of(tensors: Mapping[str, Tensor]) -> int:
    """How many bytes :func:`tensors_digest` would read."""
    return sum(tensor.nbytes for tensor in tensors.values())


def pack_generators(device: torch.device) -> dict[str, str]:
    """State of torch's generators for the CPU and, on CUDA, for ``device``: compressed, as text, about 3.5 kB."""
    packed = {_CPU: _pack(torch.get_rng_state())}
    if device.type == "cuda":
        packed[device.type] = _pack(torch.cuda.get_rng_state(device))
    return packed


def unpack_generators(packed: Mapping[str, str], device: torch.device) -> None:
    """Set torch's generators as :func:`pack_generators` saw them; the CUDA one only where ``device`` has one."""
    torch.set_rng_state(_unpack(packed[_CPU]))
    if device.type == "cuda" and device.type in packed:
        torch.cuda.set_rng_state(_unpack(packed[device.type]), device)


def generators_digest(packed: Mapping[str, str]) -> str:
    """Digest of packed generators; equal digests draw equal numbers."""
    return digest_bytes(b"".join(f"{name} ".encode() + _bytes_of(text) for name, text in sorted(packed.items())))


def device_of(model: torch.nn.Module) -> torch.device:
    """Where the model's parameters live; the CPU when it has none."""
    return next((parameter.device for parameter in model.parameters()), torch.device(_CPU))


def _pack(state: Tensor) -> str:
    return base64.b85encode(zlib.compress(state.numpy().tobytes(), 9)).decode("ascii")


def _bytes_of(text: str) -> bytes:
    return zlib.decompress(base64.b85decode(text))


def _unpack(text: str) -> Tensor:
    return torch.frombuffer(bytearray(_bytes_of(text)), dtype=torch.uint8)
