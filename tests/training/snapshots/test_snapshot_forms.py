"""Snapshots of states of every form: dtypes, memory orders, shared storage, moments that come and go, little RAM."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

import failsoft.training.snapshots.snapshot as snapshot_module
from failsoft.errors import ConfigError, NoSnapshotError
from failsoft.training.snapshots.snapshot import RamSnapshots, SnapshotPolicy
from failsoft.training.snapshots.snapshot_place import SnapshotPlace
from failsoft.training.state import TrainingState, flatten
from tests.training.toys import same, toy_data, toy_model


def copies(state: TrainingState) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in flatten(state).tensors.items()}


def toy_state(kind: Callable[..., Optimizer] = torch.optim.AdamW) -> TrainingState:
    model = toy_model()
    return TrainingState(model=model, optimizer=kind(model.parameters(), lr=0.01), scaler=GradScaler("cpu"))


def step(state: TrainingState, times: int = 1) -> None:
    for _ in range(times):
        state.optimizer.zero_grad()
        state.model(toy_data()[0]).square().mean().backward()
        state.optimizer.step()
        state.step += 1


class Odd(nn.Module):
    """Every form of tensor that a model may hold."""

    def __init__(self) -> None:
        super().__init__()
        storage = torch.arange(300_000.0)
        self.left, self.right = nn.Parameter(storage[:100_000]), nn.Parameter(storage[50_000:])  # shared, overlapping
        self.turned = nn.Parameter(torch.rand(70, 900).t())
        self.image = nn.Parameter(torch.rand(2, 3, 40, 50).to(memory_format=torch.channels_last))
        self.gaps = nn.Parameter(torch.rand(60, 2000)[:, ::2])
        self.empty, self.scalar = nn.Parameter(torch.empty(0, 3)), nn.Parameter(torch.tensor(2.5))
        for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.complex64):
            self.register_parameter(f"in_{dtype}".replace("torch.", ""), nn.Parameter(torch.rand(200).to(dtype)))
        self.register_buffer("flags", torch.tensor([True, False]))
        self.register_buffer("counts", torch.arange(7), persistent=False)


def odd_state() -> TrainingState:
    model = Odd()
    return TrainingState(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))


@torch.no_grad()
def change_all(tensors: Iterable[Tensor]) -> None:
    for tensor in tensors:
        tensor.copy_(torch.ones_like(tensor) if tensor.dtype is torch.bool else tensor + 1)


@pytest.mark.parametrize("place", SnapshotPlace)
def test_every_form_of_tensor_comes_back_into_its_place(place: SnapshotPlace) -> None:
    state = odd_state()
    snapshots = RamSnapshots(state, policy=SnapshotPolicy(where=place))
    before, addresses = copies(state), [p.data_ptr() for p in state.model.parameters()]
    assert snapshots.take() is None
    change_all([*state.model.parameters(), *state.model.buffers()])
    assert not same(before, copies(state))
    for _ in range(2):
        snapshots.restore()
        assert same(before, copies(state))
    assert [p.data_ptr() for p in state.model.parameters()] == addresses


@pytest.mark.parametrize(
    "name", ["left", "right", "turned", "image", "gaps", "scalar", "in_bfloat16", "in_float64", "in_complex64"]
)
def test_an_ill_number_is_found_in_every_form_of_tensor(name: str) -> None:
    state = odd_state()
    with torch.no_grad():
        numbers = state.model.get_parameter(name)
        numbers[(-1,) * numbers.ndim] = torch.inf
    assert RamSnapshots(state).take() == f"model/{name}"


def test_finite_numbers_whose_sum_overflows_are_healthy() -> None:
    state = toy_state()
    with torch.no_grad():
        for parameter in state.model.parameters():
            parameter.fill_(3.0e38)
    assert RamSnapshots(state).take() is None


def test_a_tensor_whose_memory_order_changed_meanwhile_gets_its_numbers_back() -> None:
    state = odd_state()
    snapshots, before = RamSnapshots(state), copies(state)
    snapshots.take()
    state.model.get_parameter("image").data = torch.zeros(2, 3, 40, 50)
    state.model.get_parameter("gaps").data = torch.zeros(60, 1000)
    snapshots.restore()
    assert same(before, copies(state))


class WideMoments(Optimizer):
    """An optimizer whose moments are wider than its weights, as those with master weights have them."""

    def __init__(self, params: Iterable[Tensor], lr: float) -> None:
        super().__init__(params, {"lr": lr})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for parameter in self.param_groups[0]["params"]:
            slot = self.state[parameter]
            slot.setdefault("master", parameter.detach().double() + 1e-12)
            slot["calls"] = slot.get("calls", 0) + 1


def test_moments_wider_than_the_weights_are_not_rounded() -> None:
    state = toy_state(WideMoments)
    step(state, 2)
    snapshots, before = RamSnapshots(state), copies(state)
    snapshots.take()
    change_all(slot["master"] for slot in state.optimizer.state.values())
    step(state)
    snapshots.restore()
    assert same(before, copies(state))
    assert {slot["calls"] for slot in state.optimizer.state.values()} == {2}


def test_no_live_tensor_is_the_snapshot_s_own() -> None:
    state = toy_state()
    step(state)
    snapshots, before = RamSnapshots(state), copies(state)
    snapshots.take()
    state.optimizer.state.clear()  # so that the moments have to be made anew
    snapshots.restore()
    change_all(flatten(state).tensors.values())
    snapshots.restore()
    assert same(before, copies(state))


def test_restoring_moves_no_moment_to_another_address() -> None:
    state = toy_state()
    step(state)
    snapshots = RamSnapshots(state)
    snapshots.take()
    addresses = {name: tensor.data_ptr() for name, tensor in flatten(state).tensors.items()}
    step(state)
    snapshots.restore()
    assert {name: tensor.data_ptr() for name, tensor in flatten(state).tensors.items()} == addresses


def test_the_loss_scale_comes_back_and_the_snapshot_s_numbers_do_not_change_with_the_live_ones() -> None:
    state = toy_state()
    assert state.scaler is not None
    snapshots, before = RamSnapshots(state), copy.deepcopy(state.scaler.state_dict())
    snapshots.take()
    for _ in range(2):
        state.scaler.load_state_dict(before | {"scale": 2.0, "_growth_tracker": 7})
        snapshots.restore()
        assert state.scaler.state_dict() == before


def test_moments_that_appear_later_find_room_and_the_small_buffer_goes() -> None:
    state = toy_state()
    snapshots = RamSnapshots(state)
    held = []
    for _ in range(3):
        snapshots.take()
        held.append(snapshots.held_bytes)
        step(state)
    whole = sum(tensor.nbytes for tensor in flatten(state).tensors.values())
    weights = sum(tensor.nbytes for name, tensor in flatten(state).tensors.items() if name.startswith("model/"))
    assert held == [weights, whole, 2 * whole]


def test_a_model_that_changed_shape_since_is_not_half_restored() -> None:
    state = toy_state()
    snapshots = RamSnapshots(state)
    snapshots.take()
    state.model.register_buffer("late", torch.zeros(2))
    change_all(state.model.parameters())
    before = copies(state)
    with pytest.raises(ConfigError, match="model/late changed shape, came or went"):
        snapshots.restore()
    assert same(before, copies(state))


def test_a_parameter_group_added_since_is_named() -> None:
    state = toy_state()
    snapshots = RamSnapshots(state)
    snapshots.take()
    state.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
    with pytest.raises(ConfigError, match=r"groups of \[6, 1\], the snapshot of \[6\]"):
        snapshots.restore()


def test_what_plainly_does_not_fit_is_refused_before_it_is_taken_and_the_old_snapshot_stands() -> None:
    state = toy_state()
    rooms = [10_000, 100]
    snapshots = RamSnapshots(state, available_bytes=lambda: rooms[0])
    assert snapshots.take() is None
    before, held = copies(state), snapshots.held_bytes
    step(state)
    rooms.pop(0)
    with pytest.raises(ConfigError, match=r"need \d+ bytes .* of the 100 bytes .*RANK_ZERO.*SHARDED"):
        snapshots.take()
    assert snapshots.held_bytes == held
    snapshots.restore()
    assert same(before, copies(state))


def test_a_buffer_that_the_system_does_not_give_leaves_the_old_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    state = toy_state()
    snapshots, before = RamSnapshots(state), copies(state)
    snapshots.take()
    step(state)

    def no_memory(_slices: object, **_buffer: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr(snapshot_module, "Arena", no_memory)
        with pytest.raises(ConfigError, match=r"no memory for a snapshot's buffer .* can't allocate memory"):
            snapshots.take()
    snapshots.restore()
    assert same(before, copies(state))
    step(state)
    assert snapshots.take() is None


def test_a_state_that_can_not_be_kept_is_refused_and_says_why() -> None:
    state = toy_state()
    state.model.register_buffer("mask", torch.zeros(1).expand(4))
    with pytest.raises(ConfigError, match="model/mask is expanded"):
        RamSnapshots(state).take()
    with pytest.raises(NoSnapshotError):
        RamSnapshots(state).restore()


@pytest.mark.parametrize("fraction", [0.0, -1.0, 1.1, float("nan")])
def test_an_impossible_fraction_of_ram_is_refused(fraction: float) -> None:
    with pytest.raises(ConfigError, match="max_ram_fraction"):
        SnapshotPolicy(max_ram_fraction=fraction)


def test_the_report_says_what_is_held_and_what_is_still_to_come() -> None:
    state = toy_state()
    step(state)
    snapshots = RamSnapshots(state, available_bytes=lambda: 1_000_000)
    one = sum(tensor.nbytes for tensor in flatten(state).tensors.values())
    assert (snapshots.report().held_bytes, snapshots.report().most_bytes) == (0, 2 * one)
    snapshots.take()
    report = snapshots.report()
    assert (report.held_bytes, report.most_bytes, report.pinned_bytes) == (one, 2 * one, 0)
    assert report.most_bytes_by_place == dict.fromkeys(SnapshotPlace, 2 * one)
    assert report.share_of_available == one / 1_000_000


@pytest.mark.cuda
@pytest.mark.parametrize("place", SnapshotPlace)
def test_a_state_on_a_gpu_comes_back_through_pinned_memory(place: SnapshotPlace) -> None:
    model = toy_model().to("cuda")
    state = TrainingState(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=0.01))

    def go() -> None:
        state.optimizer.zero_grad()
        model(toy_data()[0].cuda()).square().mean().backward()
        state.optimizer.step()

    go()
    snapshots, before = RamSnapshots(state, policy=SnapshotPolicy(where=place)), copies(state)
    assert snapshots.take() is None
    assert snapshots.report().pinned_bytes == snapshots.held_bytes > 0
    go()
    state.optimizer.state.clear()
    snapshots.restore()
    assert same(before, copies(state))
    with torch.no_grad():
        model.get_parameter("0.weight")[0, 0] = torch.nan
    assert snapshots.take() == "model/0.weight"
