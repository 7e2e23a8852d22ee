from __future__ import annotations

import errno
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn

from failsoft.training.guard import StepGuard
from failsoft.training.memory.attempt import SharedAttempt
from failsoft.training.memory.oom import Trouble, free_caches, let_go, requested_bytes, trouble_of

CUDA = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 15.77 GiB of which 1.2 GiB is free"
)
CPU = "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes. Error code 12 (Cannot allocate memory)"  # noqa: E501 -- one line of torch's
WINDOWS = "DefaultCPUAllocator: not enough memory: you tried to allocate 32768 bytes."
NUMPY = "Unable to allocate 7.45 GiB for an array with shape (1000000000,) and data type float64"


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (torch.OutOfMemoryError(CUDA), round(2.5 * 2**30)),
        (RuntimeError(CPU), 4096),
        (RuntimeError(WINDOWS), 32768),
        (MemoryError(NUMPY), None),
        (MemoryError(), None),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), None),
        (RuntimeError("CUDA error: out of memory"), None),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), None),
        (RuntimeError("MPS backend out of memory (MPS allocated: 1 GB). Tried to allocate 20.00 MB"), 20 * 2**20),
    ],
)
def test_running_out_of_memory_is_known_by_all_its_names(error: Exception, asked: int | None) -> None:
    trouble = trouble_of(error)
    assert trouble is not None
    if asked is not None:
        assert trouble.requested_bytes == asked


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"),
        RuntimeError("[../gloo/transport/tcp/pair.cc:553] Connection closed by peer"),
        ValueError("out of memory"),
        KeyError("memory"),
        OSError(errno.ENOSPC, "No space left on device"),
    ],
)
def test_other_errors_are_not_about_memory(error: Exception) -> None:
    assert trouble_of(error) is None


def test_a_size_is_read_in_bytes_where_there_is_one() -> None:
    assert requested_bytes("tried to allocate 1 KiB") == 1024
    assert requested_bytes("Tried to allocate 3.00 MiB") == 3 * 2**20
    assert requested_bytes("no size") is None


def test_what_is_told_is_the_line_outside_torch_and_the_rank() -> None:
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.nn.functional.linear(_hungry(), _hungry())
    trouble = trouble_of(caught.value, rank=3)
    assert trouble is not None
    assert trouble.where.startswith("test_oom.py:")
    assert trouble.where.endswith("in _hungry")
    assert trouble.in_words().startswith("rank 3 ran out of memory at test_oom.py:")


def _hungry() -> Tensor:
    raise torch.OutOfMemoryError(CUDA)


@contextmanager
def _wrapped() -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise RuntimeError("CUDA out of memory, said by a layer above") from error


class Activations(nn.Module):
    """Keeps a weak reference to what its forward pass made."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.seen: list[weakref.ref[Tensor]] = []
        self.fails = True

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.layer(inputs)
        self.seen.append(weakref.ref(hidden))
        activated = hidden.tanh()
        self.seen.append(weakref.ref(activated))
        if self.fails:
            raise torch.OutOfMemoryError(CUDA)
        out: Tensor = activated.sum()
        return out


@pytest.mark.parametrize("wrapped", [False, True])
def test_nothing_of_the_failed_passes_is_alive_when_the_retry_begins(wrapped: bool) -> None:
    model = Activations()
    guard = StepGuard(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    attempt = SharedAttempt(guard)

    def compute() -> Tensor:
        batch = torch.ones(2, 4)
        if not wrapped:
            return torch.as_tensor(model(batch))
        with _wrapped():
            return torch.as_tensor(model(batch))

    trouble = attempt(compute, None, [], 0)
    assert isinstance(trouble, Trouble)
    assert [alive() for alive in model.seen] == [None, None]
    assert all(parameter.grad is None for parameter in model.parameters())


def test_without_letting_go_the_activations_outlive_the_error() -> None:
    """The trap that the test above would catch: the traceback holds the frames, and they hold the tensors."""
    model = Activations()
    with pytest.raises(torch.OutOfMemoryError) as caught:
        model(torch.ones(2, 4))
    assert all(alive() is not None for alive in model.seen)
    let_go(caught.value)
    del caught
    assert [alive() for alive in model.seen] == [None, None]


def test_an_error_that_is_not_about_memory_goes_up_with_its_traceback() -> None:
    model = nn.Linear(2, 1)
    guard = StepGuard(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(RuntimeError, match="shapes"):
        SharedAttempt(guard)(lambda: torch.as_tensor(model(torch.ones(2, 5))).sum(), None, [], 0)


def test_caches_are_freed_without_a_device_too() -> None:
    class Cycle:
        pass

    one = Cycle()
    one.__dict__["self"] = one
    alive = weakref.ref(one)
    del one
    free_caches()
    assert alive() is None
