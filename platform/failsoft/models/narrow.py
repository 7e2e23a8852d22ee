"""Smaller weights that can be served: stored narrow, held narrow in memory, widened where they are used.

Weight-only: linear layers and embeddings keep their weights in bf16, fp16 or int8; biases, norms and arithmetic stay
float32, so that a narrow release answers on any machine as it was measured. int8 is symmetric with one scale for each
output channel (row), the scheme of Jacob et al. 2018 (arXiv 1712.05877) for weights. ``torch.ao`` is deprecated and not
used. The width stands in the metadata of the weights' file, so that every loader of a release finds it there.
"""
# O outputs, I inputs, V rows of a table

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from failsoft.errors import ConfigError, IncompatibleArtifactError
from failsoft.models.network import IntentNer, NetworkConfig, load_weights
from failsoft.models.unfilled import build_unfilled

_INT8_MAX = 127.0


class Width(StrEnum):
    """How weights are stored."""

    BF16 = "bf16"
    FP16 = "fp16"
    INT8 = "int8"


_DTYPES = {Width.BF16: torch.bfloat16, Width.FP16: torch.float16, Width.INT8: torch.int8}


@dataclass(frozen=True, kw_only=True)
class Int8Tensor:
    """A weight in eight bits: ``values * scales``, one scale for each row of the first dimension."""

    values: Tensor
    """int8, shape of the weight."""
    scales: Tensor
    """float32, shape (rows, 1, …)."""

    def widened(self) -> Tensor:
        """The float32 weight that these bits stand for."""
        return self.values.to(torch.float32) * self.scales


def to_int8(weight: Tensor) -> Int8Tensor:
    """Round a floating weight of two or more dimensions to eight bits for each row.

    A row that holds NaN or Inf gets such a scale, so that whoever looks for what is not finite finds it.

    Raises:
        ConfigError: the weight is a vector, or not floating.
    """
    if weight.dim() < 2 or not weight.is_floating_point():
        raise ConfigError(
            f"a {weight.dim()}-d {weight.dtype} tensor stays as it is; int8 is for floating weights of 2-d or more"
        )
    wide = weight.detach().to(torch.float32)
    peaks = wide.abs().amax(dim=tuple(range(1, wide.dim())), keepdim=True)
    scales = torch.where(peaks == 0, torch.ones_like(peaks), peaks / _INT8_MAX)  # NaN, Inf stay: gates see them
    rounded = torch.nan_to_num(torch.round(wide / scales), nan=1.0)  # a cast of NaN varies by machine
    values = torch.clamp(rounded, -_INT8_MAX, _INT8_MAX).to(torch.int8)
    return Int8Tensor(values=values, scales=scales)


class NarrowWeight(nn.Module):
    """One matrix, held narrow.

    Args:
        weight: (rows, columns), floating. Values that the width can't hold become what they become when stored (Inf in
            fp16), and the gates see them.
        width: how it is held.
    """

    def __init__(self, weight: Tensor, width: Width) -> None:
        super().__init__()
        eight = to_int8(weight) if width is Width.INT8 else None
        self.values: Tensor
        self.scales: Tensor | None
        self.register_buffer("values", eight.values if eight else weight.detach().to(_DTYPES[width]))
        self.register_buffer("scales", eight.scales if eight else None)

    def widened(self, rows: Tensor | None = None) -> Tensor:
        """Float32 weights: all of them, or those of some row numbers (any shape) with the columns behind."""
        values = self.values if rows is None else self.values[rows]
        if self.scales is None:
            return values.to(torch.float32)
        return values.to(torch.float32) * (self.scales if rows is None else self.scales[rows])


class NarrowLinear(nn.Module):
    """A linear layer whose (O, I) weight is held narrow."""

    def __init__(self, whole: nn.Linear, width: Width) -> None:
        super().__init__()
        self.weight = NarrowWeight(whole.weight, width)
        self.bias = whole.bias

    def forward(self, inputs: Tensor) -> Tensor:
        """(…, I) to (…, O)."""
        return F.linear(inputs, self.weight.widened(), self.bias)


class NarrowEmbedding(nn.Module):
    """A table of V rows that is held narrow; only the rows asked for are widened."""

    def __init__(self, whole: nn.Embedding, width: Width) -> None:
        super().__init__()
        self.weight = NarrowWeight(whole.weight, width)

    def forward(self, numbers: Tensor) -> Tensor:
        """Row numbers of any shape to their rows."""
        return self.weight.widened(numbers)


def narrow_copy(model: IntentNer, width: Width) -> IntentNer:
    """The same network with all its linear layers and embeddings held narrow; the given one stays as it is."""
    narrow = copy.deepcopy(model).eval()
    _narrow_inside(narrow, width)
    return narrow


def save_narrow(model: IntentNer, path: Path, width: Width, *, of: str) -> IntentNer:
    """Write a narrow copy's weights, as :func:`load_network` reads them, and return the copy.

    Args:
        model: with full weights.
        path: of the safetensors file.
        width: how the weights are stored.
        of: name of the release whose weights they are, kept in the file.
    """
    narrow = narrow_copy(model, width)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in narrow.state_dict().items()}
    save_file(tensors, path, metadata={"width": str(width), "of": of})
    return narrow


@dataclass(frozen=True, kw_only=True)
class Stored:
    """How the weights in a file are stored."""

    width: Width | None
    """None: whole."""
    of: str | None
    """The release that has them whole; None for whole ones."""


def stored_as(path: Path) -> Stored:
    """What a file of weights says of itself.

    Raises:
        IncompatibleArtifactError: the file holds no tensors, or a width that this code does not know.
    """
    metadata = _metadata(path)
    if "width" not in metadata:
        return Stored(width=None, of=None)
    try:
        return Stored(width=Width(metadata["width"]), of=metadata.get("of"))
    except ValueError as error:
        known = ", ".join(Width)
        raise IncompatibleArtifactError(
            f"{path} stores its weights as {metadata['width']!r}, this code reads {known} and whole ones"
        ) from error


def load_network(config: NetworkConfig, path: Path) -> IntentNer:
    """A network with the weights of a file, whole or narrow, in evaluation mode.

    Raises:
        IncompatibleArtifactError: the file holds no tensors, or others than this network has.
    """
    width, model = stored_as(path).width, build_unfilled(config).eval()
    if width is not None:
        _narrow_inside(model, width)
    load_weights(model, path)
    return model


def _narrow_inside(module: nn.Module, width: Width) -> None:
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, NarrowLinear(child, width))
        elif isinstance(child, nn.Embedding):
            setattr(module, name, NarrowEmbedding(child, width))
        else:
            _narrow_inside(child, width)


def _metadata(path: Path) -> Mapping[str, str]:
    try:
        with safe_open(path, framework="pt") as opened:
            return dict(opened.metadata() or {})
    except (OSError, SafetensorError) as error:
        raise IncompatibleArtifactError(f"{path} holds no weights: {error}") from error
