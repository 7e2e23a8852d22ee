"""Where a state waits to be written: memory laid out as the file that it becomes, shared with the writer.

Copying into it is all that the training thread does for a checkpoint. The memory has no name (``memfd_create``), so it
is gone when both processes are, and the size of ``/dev/shm`` does not limit it.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from failsoft.training.checkpoints.copying import Copiers, Stretch
from failsoft.training.checkpoints.tensor_file import STAMP_PLACE, Stamp, TensorSpec, lay_out

_NAMES: Mapping[torch.dtype, str] = {
    torch.complex64: "C64",
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
DTYPES: Mapping[str, torch.dtype] = {name: dtype for dtype, name in _NAMES.items()}
"""By their names in the files."""
_LEAST_ROOM_BYTES = 256 * 1024


class _Place(NamedTuple):
    """Where one tensor goes; asked for each time, so looked up beforehand."""

    there: Tensor
    address: int
    size_bytes: int


class Slot:
    """Memory for one state of one layout. Made once, its pages touched, then filled again and again.

    Args:
        tensors: their names, kinds and shapes are the layout; not yet copied.
        scalars_bytes: size of the small part now; it may grow to twice as much.
        shared: whether another process will read it.
        copiers: move plain memory.

    Raises:
        OSError: no memory.
        ConfigError: a tensor of a kind that the file format has no name for.
    """

    def __init__(
        self, tensors: Mapping[str, Tensor], scalars_bytes: int, *, shared: bool, copiers: Copiers | None = None
    ) -> None:
        self._copiers = copiers or Copiers()
        self._layout = lay_out({name: spec_of(tensor) for name, tensor in tensors.items()})
        self._room_bytes = max(2 * scalars_bytes, _LEAST_ROOM_BYTES)
        size = self._layout.total_bytes + self._room_bytes
        self.handle = _nameless_file(size) if shared else -1
        populate = getattr(mmap, "MAP_POPULATE", 0)  # so that the first checkpoint waits for no page
        kind = mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        try:
            self.memory = mmap.mmap(self.handle, size, flags=kind | populate)
        except OSError:
            self._drop_handle()
            raise
        self.memory[: len(self._layout.header)] = self._layout.header
        self._kinds = {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
        self._places = {name: self._place(name, tensor) for name, tensor in tensors.items() if tensor.numel()}
        self._from_cuda = any(tensor.is_cuda for tensor in tensors.values())
        self._pinned = self._from_cuda and _pin(self.memory)
        self.scalars_bytes = 0

    @property
    def tensors_bytes(self) -> int:
        """Size of the tensor file."""
        return self._layout.total_bytes

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of the tensor file and of the small part after it."""
        return self.tensors_bytes, self.scalars_bytes

    @property
    def held_bytes(self) -> int:
        """Memory taken."""
        return len(self.memory)

    def room(self, scalars_bytes: int) -> bool:
        """Whether a small part of this size fits."""
        return scalars_bytes <= self._room_bytes

    def fits(self, tensors: Mapping[str, Tensor], scalars_bytes: int) -> bool:
        """Whether this state has the layout that the memory was made for."""
        kinds = self._kinds
        return (
            self.room(scalars_bytes)
            and len(kinds) == len(tensors)
            and all(kinds.get(name) == (tensor.dtype, tensor.shape) for name, tensor in tensors.items())
        )

    def fill(self, tensors: Mapping[str, Tensor], scalars: bytes, stamp: Stamp) -> None:
        """:meth:`copy` a state that fits, and :meth:`seal` it."""
        self.copy(tensors)
        self.seal(scalars, stamp)

    @torch.no_grad()
    def copy(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy the tensors. On CUDA the copies run side by side and are waited for together.

        Plain CPU memory is moved by threads that meet once: torch's own copy has all its threads meet for each tensor,
        and on a busy machine each meeting waits for the slowest (60 MB in 360 tensors, two threads: 366 ms, not 15).
        """
        plain: list[Stretch] = []
        others: list[str] = []
        for name, place in self._places.items():
            if _is_plain(tensors[name], self._kinds[name]):
                plain.append(Stretch(place.address, tensors[name].data_ptr(), place.size_bytes))
            else:
                others.append(name)
        if others:
            torch._foreach_copy_(
                [self._places[name].there for name in others], [tensors[name] for name in others], non_blocking=True
            )
        self._copiers.copy(plain, threads=torch.get_num_threads())
        if self._from_cuda:
            torch.cuda.synchronize()

    def seal(self, scalars: bytes, stamp: Stamp) -> None:
        """Add the small part, which must have :meth:`room` here, and say of which moment all of it is."""
        self.memory[STAMP_PLACE] = stamp.to_header()
        self.scalars_bytes = len(scalars)
        self.memory[self.tensors_bytes : self.tensors_bytes + len(scalars)] = scalars

    def close(self) -> None:
        """Give the memory back; a writer that still reads it keeps its own hold."""
        if self._pinned:
            _unpin(self.memory)
        self._places.clear()
        self.memory.close()
        self._drop_handle()

    def _drop_handle(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)

    def _place(self, name: str, tensor: Tensor) -> _Place:
        begin = self._layout.begins[name]
        flat = torch.frombuffer(self.memory, dtype=tensor.dtype, count=tensor.numel(), offset=begin)
        there = flat.view(tensor.shape)
        return _Place(there, there.data_ptr(), there.nbytes)


class Slots:
    """Memory at hand. Two states at most are on their way at a time, so no more than two are ever made."""

    def __init__(self, *, shared: bool) -> None:
        self._shared = shared
        self._copiers = Copiers()
        self._free: list[Slot] = []

    @property
    def held_bytes(self) -> int:
        """Memory that waits to be filled again."""
        return sum(slot.held_bytes for slot in self._free)

    def take(self, tensors: Mapping[str, Tensor], scalars_bytes: int) -> Slot:
        """Memory that fits, made if there is none; memory of another layout is given up.

        Raises:
            OSError: no memory.
        """
        unfit = [slot for slot in self._free if not slot.fits(tensors, scalars_bytes)]
        self._free = [slot for slot in self._free if slot not in unfit]
        for slot in unfit:
            slot.close()
        if self._free:
            return self._free.pop()
        return Slot(tensors, scalars_bytes, shared=self._shared, copiers=self._copiers)

    def give_back(self, slot: Slot) -> None:
        """It may be filled again."""
        self._free.append(slot)

    def close(self) -> None:
        """Give all of it back to the system."""
        for slot in self._free:
            slot.close()
        self._free.clear()
        self._copiers.close()


def _is_plain(tensor: Tensor, kind: tuple[torch.dtype, torch.Size]) -> bool:
    """Whether its numbers lie in this process's memory as they are to be in the file, end to end."""
    return (
        type(tensor) is Tensor
        and (tensor.dtype, tensor.shape) == kind
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


def spec_of(tensor: Tensor) -> TensorSpec:
    """Kind and shape, in the words of the file; a kind without a name there by torch's."""
    return TensorSpec(dtype=_NAMES.get(tensor.dtype, str(tensor.dtype)), shape=tuple(tensor.shape))


def unnamed(tensors: Mapping[str, Tensor]) -> str:
    """Why these tensors can't be saved; empty when each is of a kind that the file has a name for."""
    for name, tensor in tensors.items():
        if tensor.dtype not in _NAMES:
            return f"{name} is of {tensor.dtype}, which can't be saved; there are {', '.join(_NAMES.values())}"
    return ""


def _nameless_file(size: int) -> int:
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("failsoft-checkpoint", os.MFD_CLOEXEC)
    else:  # other systems than Linux
        aside, path = tempfile.mkstemp(prefix="failsoft-")
        os.unlink(path)
        handle = aside
    try:
        os.ftruncate(handle, size)
    except OSError:
        os.close(handle)
        raise
    return handle


def _address(memory: mmap.mmap) -> int:
    return torch.frombuffer(memory, dtype=torch.uint8, count=1).data_ptr()


def _pin(memory: mmap.mmap) -> bool:
    """Page-lock for CUDA, which then copies at full speed and several at once; slower but right where it refuses."""
    return int(torch.cuda.cudart().cudaHostRegister(_address(memory), len(memory), 0)) == 0  # type: ignore[no-untyped-call]


def _unpin(memory: mmap.mmap) -> None:
    torch.cuda.cudart().cudaHostUnregister(_address(memory))  # type: ignore[no-untyped-call]
