"""The parts of the writer: memory, limits, succession, the wire."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load

from failsoft.errors import ConfigError
from failsoft.health.clock import ManualClock
from failsoft.training.checkpoints.tensor_file import Stamp, stamp_in
from failsoft.training.checkpoints.writer_link import take
from failsoft.training.checkpoints.writer_policy import WriterPolicy, WriterRecord, hopeless
from failsoft.training.checkpoints.writer_slot import Slot
from failsoft.training.checkpoints.writer_succession import at_work, until_free

MOMENT = Stamp(position=3, step=2)


def odd_tensors() -> dict[str, torch.Tensor]:
    return {
        "strided": torch.arange(12.0).reshape(3, 4).t(),
        "half": torch.randn(3).bfloat16(),
        "flag": torch.tensor([True, False]),
        "count": torch.tensor(7),
        "empty": torch.empty(0, 4),
        "leaf": torch.ones(2, requires_grad=True),
        "c": torch.tensor([1 + 2j], dtype=torch.complex64),
        "conjugate": torch.tensor([1 + 2j, 3 - 4j]).conj(),
        "negative": torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
        "expanded": torch.ones(1, 3).expand(2, 3),
        "part": torch.arange(10.0)[3:7],
        "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "f8": torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn),
    }


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128)


def test_plain_memory_is_copied_without_a_meeting_of_torchs_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """One meeting for each tensor held the training up for twenty times the copy where cores were busy."""
    slot = Slot({"w": torch.zeros(4), "t": torch.zeros(2, 3)}, 10, shared=False)
    copied: list[int] = []
    real = torch._foreach_copy_

    def counted(to: list[torch.Tensor], source: list[torch.Tensor], *, non_blocking: bool) -> None:
        copied.append(len(source))
        real(to, source, non_blocking=non_blocking)

    monkeypatch.setattr(torch, "_foreach_copy_", counted)
    slot.fill({"w": torch.ones(4), "t": torch.ones(2, 3)}, b"{}", MOMENT)
    assert copied == []
    slot.fill({"w": torch.ones(4), "t": torch.ones(3, 2).t()}, b"{}", MOMENT)
    assert copied == [1]
    slot.close()


def test_a_state_of_another_kind_is_never_moved_as_bytes_beyond_its_place() -> None:
    slot = Slot({"w": torch.zeros(4)}, 10, shared=False)
    with pytest.raises(RuntimeError):
        slot.fill({"w": torch.ones(5)}, b"{}", MOMENT)
    slot.fill({"w": torch.full((4,), 3.0, dtype=torch.float64)}, b"{}", MOMENT)
    assert torch.equal(load(bytes(slot.memory[: slot.tensors_bytes]))["w"], torch.full((4,), 3.0))
    slot.close()


@pytest.mark.parametrize("shared", [False, True])
def test_the_memory_is_the_file(shared: bool) -> None:
    tensors = odd_tensors()
    slot = Slot(tensors, 10, shared=shared)
    slot.fill(tensors, b'{"a": 1}', MOMENT)
    read = load(bytes(slot.memory[: slot.tensors_bytes]))
    assert read.keys() == tensors.keys()
    assert all(torch.equal(_wide(read[name]), _wide(tensors[name])) for name in read)
    assert torch.equal(read["c"], tensors["c"])
    assert slot.memory[slot.tensors_bytes : slot.tensors_bytes + slot.scalars_bytes] == b'{"a": 1}'
    slot.close()


def test_filling_again_leaves_nothing_of_before() -> None:
    slot = Slot({"w": torch.ones(4)}, 10, shared=False)
    slot.fill({"w": torch.ones(4)}, b"long words", MOMENT)
    slot.fill({"w": torch.zeros(4)}, b"short", MOMENT)
    assert torch.equal(load(bytes(slot.memory[: slot.tensors_bytes]))["w"], torch.zeros(4))
    assert slot.scalars_bytes == 5


@pytest.mark.parametrize(
    "other",
    [{"w": torch.ones(5)}, {"w": torch.ones(4).half()}, {"v": torch.ones(4)}, {"w": torch.ones(4), "v": torch.ones(1)}],
)
def test_memory_fits_only_its_own_layout(other: dict[str, torch.Tensor]) -> None:
    slot = Slot({"w": torch.ones(4)}, 10, shared=False)
    assert slot.fits({"w": torch.zeros(4)}, 10)
    assert not slot.fits(other, 10)
    assert not slot.fits({"w": torch.zeros(4)}, 10**9)


def test_a_tensor_that_the_file_cannot_hold_is_refused_by_its_kind() -> None:
    with pytest.raises(ConfigError, match="complex128"):
        Slot({"w": torch.ones(2, dtype=torch.complex128)}, 1, shared=False)


def test_the_memory_bears_the_moment_it_was_filled_at_and_no_older_one() -> None:
    slot = Slot({"w": torch.ones(4)}, 10, shared=False)
    for position in (3, 10**15):
        slot.fill({"w": torch.ones(4)}, b"{}", Stamp(position=position, step=position - 1))
        file = bytes(slot.memory[: slot.tensors_bytes])
        assert stamp_in(file) == Stamp(position=position, step=position - 1)
        assert torch.equal(load(file)["w"], torch.ones(4))
    slot.close()


def test_memory_that_cannot_be_mapped_leaves_no_handle_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    before = sorted(os.listdir("/proc/self/fd"))
    monkeypatch.setattr("failsoft.training.checkpoints.writer_slot.mmap.mmap", full)
    with pytest.raises(OSError, match="Cannot allocate"):
        Slot({"w": torch.ones(4)}, 10, shared=True)
    assert len(os.listdir("/proc/self/fd")) == len(before)


@pytest.mark.cuda
def test_a_state_on_a_gpu_arrives_whole_in_page_locked_memory() -> None:
    tensors = {str(index): torch.randn(1000, device="cuda") for index in range(20)}
    slot = Slot(tensors, 10, shared=True)
    slot.fill(tensors, b"{}", MOMENT)
    read = load(bytes(slot.memory[: slot.tensors_bytes]))
    assert all(torch.equal(read[name], tensor.cpu()) for name, tensor in tensors.items())
    slot.close()


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 6))
def test_only_an_unbroken_row_of_failures_is_hopeless(outcomes: list[bool], limit: int) -> None:
    policy, record = WriterPolicy(max_failures_in_a_row=limit), WriterRecord(saved_at_s=0.0)
    row = 0
    for now_s, good in enumerate(outcomes):
        record = record.succeeded(float(now_s)) if good else record.failed_with("full")
        row = 0 if good else row + 1
        assert (hopeless(record, policy, now_s=float(now_s)) is not None) == (row >= limit)
    assert (record.published, record.failed) == (sum(outcomes), len(outcomes) - sum(outcomes))


def test_too_long_without_success_is_hopeless_but_only_when_something_failed() -> None:
    policy, record = WriterPolicy(max_unsaved_s=100.0), WriterRecord(saved_at_s=0.0)
    assert hopeless(record, policy, now_s=1e9) is None
    failed = record.failed_with("stale mount")
    assert hopeless(failed, policy, now_s=99.0) is None
    assert "stale mount" in str(hopeless(failed, policy, now_s=100.0))
    assert hopeless(failed, policy, now_s=math.nan) is not None


@pytest.mark.parametrize("wrong", [{"patience_s": 0.0}, {"max_unsaved_s": math.nan}, {"max_failures_in_a_row": 0}])
def test_limits_that_are_none_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        WriterPolicy(**wrong)  # type: ignore[arg-type]


def test_who_comes_after_waits_for_the_writer_and_not_for_ever(tmp_path: Path) -> None:
    clock = ManualClock()
    assert until_free(tmp_path / "nowhere", clock, patience_s=5.0)
    with at_work(tmp_path):
        assert not until_free(tmp_path, clock, patience_s=5.0)
    waited_s = clock.monotonic_s()
    assert 5.0 <= waited_s < 5.1
    assert until_free(tmp_path, clock, patience_s=5.0)
    assert clock.monotonic_s() == waited_s


def test_messages_arrive_whole_however_the_bytes_come() -> None:
    heard, got = bytearray(), []
    for byte in b'\0\0\0\x0a{"say": 1}\0\0\0\x02{}':
        heard.append(byte)
        if (message := take(heard)) is not None:
            got.append(message)
    assert got == [{"say": 1}, {}]
