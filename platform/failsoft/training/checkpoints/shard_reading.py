"""What one rank reads of a checkpoint: the slices that it is to hold, whoever wrote them, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from failsoft.artifacts.manifest import Manifest
from failsoft.errors import DamagedArtifactError, IncompatibleArtifactError
from failsoft.training.boxes import Box, Read
from failsoft.training.checkpoints.formats import TENSORS
from failsoft.training.checkpoints.inspection import tensor_files
from failsoft.training.checkpoints.shard_layout import ShardLayout
from failsoft.training.checkpoints.tensor_file import TensorFile, TensorSpec
from failsoft.training.checkpoints.tensor_source import layout_in
from failsoft.training.checkpoints.writer_slot import DTYPES
from failsoft.training.sharding import Shard, is_sharded, numbered, shard_of
from failsoft.training.state import TrainingState, model_tensors, module_tensors
from failsoft.training.state_fit import MOMENTS, misfits

_PARTS = ("model/", "ema/")


class ShardReader:
    """Reads slices of the tensors in a checkpoint's folder, sharded or not; files are opened when first needed.

    Args:
        folder: of the checkpoint; verified before.
        rank: of the reader.
        world: how many ranks read.
    """

    def __init__(self, folder: Path, *, rank: int, world: int) -> None:
        self._folder = folder
        self.layout = layout_in(folder) or ShardLayout.of_one_file(TENSORS, TensorFile(folder / TENSORS).specs)
        self._rank, self._world = rank, world
        self._files: dict[int, Any] = {}
        self._open = ExitStack()

    def read(self, name: str, wanted: Box | None = None) -> Tensor:
        """What is wanted of a tensor; None: all of it.

        Raises:
            DamagedArtifactError: the shards do not hold all of that.
        """
        spec = self.layout.tensors[name].spec
        box = Box.whole(spec.shape) if wanted is None else wanted
        reads = self.layout.reads(name, box, rank=self._rank, world=self._world)
        if len(reads) == 1 and reads[0].box == box:
            return self._slice(name, reads[0]).reshape(box.size)
        found = torch.empty(box.size, dtype=DTYPES[spec.dtype])
        for read in reads:
            found[read.box.seen_from(box.offset)] = self._slice(name, read)
        return found

    @property
    def opened(self) -> set[int]:
        """Numbers of the files that something was read of."""
        return set(self._files)

    def close(self) -> None:
        """Let go of the files."""
        self._open.close()

    def _slice(self, name: str, read: Read) -> Tensor:
        file = self._file(read.piece.file)
        return torch.as_tensor(file.get_tensor(name) if read.whole else file.get_slice(name)[read.source])

    def _file(self, number: int) -> Any:
        if number not in self._files:
            path = self._folder / self.layout.files[number]
            self._files[number] = self._open.enter_context(safe_open(path, framework="pt"))
        return self._files[number]


def read_here(reader: ShardReader, state: TrainingState, *, convert: bool) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What this rank is to hold of a checkpoint, as the live model lies now.

    Args:
        reader: of the checkpoint.
        state: the live parts; not changed.
        convert: another dtype is no misfit.

    Returns:
        Tensors by flat names, and descriptions of those that are sharded.

    Raises:
        IncompatibleArtifactError: names, whole shapes or dtypes of the model's tensors differ.
        DamagedArtifactError: a shard lacks what it should hold.
    """
    live = model_tensors(state.model) | ({} if state.ema is None else module_tensors(state.ema, _PARTS[1]))
    specs = {name: tensor.spec for name, tensor in reader.layout.tensors.items()}
    refuse_other_model(specs, live, convert=convert)
    shards = _wanted(specs, live, numbered(state.optimizer))
    names = [name for name in specs if name in live or name.startswith(MOMENTS)]
    tensors = {name: reader.read(name, None if (shard := shards.get(name)) is None else shard.box) for name in names}
    return tensors, {name: shard.to_plain() for name, shard in shards.items()}


def files_needed(folder: Path, manifest: Manifest, state: TrainingState, *, rank: int, world: int) -> list[str]:
    """Which tensor files of a checkpoint hold something of what this rank is to hold.

    Args:
        folder: holds its ``state.json``; of its tensor files none is looked at.
        manifest: of all of it.
        state: the live parts, as they lie now.
        rank: of the reader.
        world: how many ranks read.

    Raises:
        DamagedArtifactError: ``state.json`` is none, or the pieces leave a gap.
    """
    layout = layout_in(folder)
    if layout is None:
        return tensor_files(manifest)
    live = model_tensors(state.model) | ({} if state.ema is None else module_tensors(state.ema, _PARTS[1]))
    specs = {name: tensor.spec for name, tensor in layout.tensors.items()}
    shards = _wanted(specs, live, numbered(state.optimizer))
    found: set[str] = set()
    for name, spec in specs.items():
        box = shards[name].box if name in shards else Box.whole(spec.shape)
        if name in live or name.startswith(MOMENTS):
            found |= {layout.files[read.piece.file] for read in layout.reads(name, box, rank=rank, world=world)}
    return sorted(found)


def refuse_other_model(specs: Mapping[str, TensorSpec], live: Mapping[str, Tensor], *, convert: bool) -> None:
    """Refuse a checkpoint of another model; judged by whole shapes, so that the message means the model.

    Raises:
        IncompatibleArtifactError: naming keys, shapes and dtypes that differ.
    """
    saved = {name: _empty(spec) for name, spec in specs.items()}
    wrong: list[str] = []
    for part in _PARTS:
        mine, theirs = ({name: one for name, one in each.items() if name.startswith(part)} for each in (live, saved))
        if part == _PARTS[0] or (mine and theirs):  # an average that one of them lacks is no misfit
            wrong += misfits(theirs, mine, prefix=part, convert=convert)
    if wrong:
        more = f" and {len(wrong) - 8} more" if len(wrong) > 8 else ""
        raise IncompatibleArtifactError(
            f"the saved state does not fit the model: {'; '.join(wrong[:8])}{more}; use the recipe it was trained "
            "with, or another run name to start afresh"
        )


def _empty(spec: TensorSpec) -> Tensor:
    if spec.dtype not in DTYPES:
        raise DamagedArtifactError(
            f"a tensor of {spec.dtype}, which torch does not know; there are {', '.join(DTYPES)}"
        )
    return torch.empty(spec.shape, dtype=DTYPES[spec.dtype], device="meta")


def _wanted(specs: Mapping[str, TensorSpec], live: Mapping[str, Tensor], parameters: list[Tensor]) -> dict[str, Shard]:
    """Of what is sharded now, this rank's piece; a moment lies as its parameter does."""
    found = {name: shard for name, tensor in live.items() if (shard := shard_of(name, tensor)) is not None}
    for name in specs:
        if not name.startswith(MOMENTS):
            continue
        index = int(name[len(MOMENTS) :].split("/", 1)[0])
        owner = parameters[index].detach() if index < len(parameters) else None
        if owner is not None and is_sharded(owner) and tuple(owner.shape) == specs[name].shape:
            shard = shard_of(name, owner)
            found |= {} if shard is None else {name: shard}
    return found
