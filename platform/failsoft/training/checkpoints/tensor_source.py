"""The tensors of a checkpoint as numpy arrays, whether they lie in one file or in shards. Loads no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from failsoft.errors import DamagedArtifactError
from failsoft.training.boxes import Box
from failsoft.training.checkpoints.formats import SCALARS, SHARDS, TENSORS, read_scalars
from failsoft.training.checkpoints.shard_layout import ShardLayout
from failsoft.training.checkpoints.tensor_file import TensorFile, TensorSpec


class TensorSource(Protocol):
    """Named tensors, read one at a time."""

    @property
    def specs(self) -> Mapping[str, TensorSpec]:
        """Of whole tensors."""
        ...

    def read(self, name: str) -> NDArray[Any]:
        """One whole tensor; as :meth:`TensorFile.read` says."""
        ...

    def refuse_gaps(self) -> None:
        """Raise DamagedArtifactError unless each tensor is there whole."""
        ...

    def __iter__(self) -> Iterator[str]: ...


class ShardedTensors:
    """Tensors put together from the pieces in several files.

    Of those that each rank has its own of (buffers), rank 0's.

    Raises:
        DamagedArtifactError: a file is torn, or lacks a piece that the layout says it holds.
    """

    def __init__(self, folder: Path, layout: ShardLayout) -> None:
        self._layout = layout
        self._files = [TensorFile(folder / file) for file in layout.files]
        self.specs: Mapping[str, TensorSpec] = {name: layout.tensors[name].spec for name in sorted(layout.tensors)}
        for name, tensor in layout.tensors.items():
            for piece in tensor.pieces:
                self._refuse_other(piece.file, name, TensorSpec(dtype=tensor.spec.dtype, shape=piece.box.size))

    def read(self, name: str) -> NDArray[Any]:
        """One whole tensor."""
        reads = self._layout.reads(name, Box.whole(self.specs[name].shape), rank=0, world=len(self._files))
        parts = [(read, self._files[read.piece.file].read(name)) for read in reads]
        if len(parts) == 1:
            return parts[0][1]
        kind = parts[0][1].dtype if parts else np.dtype(np.float32)  # no part: no number in it
        whole = np.empty(self.specs[name].shape, dtype=kind)
        for read, numbers in parts:
            whole[read.box.seen_from((0,) * whole.ndim)] = numbers[read.source]
        return whole

    def refuse_gaps(self) -> None:
        """See :class:`TensorSource`."""
        self._layout.refuse_gaps()

    def __iter__(self) -> Iterator[str]:
        return iter(self.specs)

    def _refuse_other(self, file: int, name: str, promised: TensorSpec) -> None:
        found = self._files[file].specs.get(name)
        if found != promised:
            said = "nothing of it" if found is None else f"{found.dtype} {list(found.shape)}"
            raise DamagedArtifactError(
                f"{self._files[file].path} should hold {promised.dtype} {list(promised.shape)} of {name}, but holds "
                f"{said}"
            )


def layout_in(folder: Path) -> ShardLayout | None:
    """Which file holds what; None for a checkpoint that is not sharded.

    Raises:
        DamagedArtifactError: ``state.json`` is none.
        IncompatibleArtifactError: it is of a newer form.
    """
    where = folder / SCALARS
    plain = read_scalars(where.read_bytes(), where=str(where))[SHARDS]
    return None if plain is None else ShardLayout.from_plain(plain, where=str(where))


def open_tensors(folder: Path) -> TensorSource:
    """The tensors of a checkpoint's folder.

    Raises:
        DamagedArtifactError: a file is torn.
        IncompatibleArtifactError: it is of a newer form.
    """
    layout = layout_in(folder)
    return TensorFile(folder / TENSORS) if layout is None else ShardedTensors(folder, layout)
