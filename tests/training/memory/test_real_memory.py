"""Memory that really runs out: a capped process, and a CUDA device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from failsoft.training.guard import StepGuard
from failsoft.training.memory.batch import Batch
from failsoft.training.memory.micro_batches import Indices
from failsoft.training.memory.net import MemoryNet
from failsoft.training.memory.offload import StateOffload
from failsoft.training.memory.rungs import MemoryPolicy, Rung
from tests.conftest import ROOT
from tests.training.memory.capped_process import SAMPLES, STEPS

cuda = pytest.mark.cuda
no_device = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def capped(room_mib: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.training.memory.capped_process", str(room_mib)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "1048576"},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    return dict(json.loads(done.stdout))


@pytest.mark.skipif(sys.platform != "linux", reason="caps the address space by RLIMIT_AS and reads /proc")
def test_under_a_real_cap_every_batch_is_done_in_pieces_that_fit() -> None:
    """A whole batch's activations take about 280 MiB; without a cap nothing moves, and then 150 are left."""
    found = capped(150)
    free, short = found["free"], found["capped"]
    assert (free["applied"], free["levels"], free["samples"]) == ([True] * STEPS, [], SAMPLES * STEPS)
    assert short["applied"] == [True] * STEPS
    assert short["levels"][0] == "caches freed"
    assert short["levels"][1].startswith("micro-batches")
    assert short["samples"] >= SAMPLES * STEPS  # a forward pass that fitted may be done again for its backward pass
    assert any(asked is not None and asked > 2**20 for asked in short["asked"])


def trained(*, offloaded: bool, device: str = "cpu") -> list[Tensor]:
    torch.manual_seed(0)
    model = nn.Linear(4, 3).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    offload = StateOffload(optimizer)
    for step in range(6):
        if offloaded and step == 2:
            offload.on()
        if offloaded and step == 4:
            offload.off()
        optimizer.zero_grad()
        model(torch.ones(2, 4, device=device)).square().sum().backward()
        optimizer.step()
    return [parameter.detach().cpu() for parameter in model.parameters()]


def test_an_update_with_its_state_away_in_between_is_equal_to_the_bit() -> None:
    for here, there in zip(trained(offloaded=False), trained(offloaded=True), strict=True):
        assert torch.equal(here, there)


def test_on_the_host_there_is_nothing_to_offload() -> None:
    assert not StateOffload.useful(torch.optim.AdamW(nn.Linear(2, 2).parameters()))


@cuda
@no_device
def test_on_cuda_the_state_lies_in_host_ram_between_updates_and_the_update_is_the_same() -> None:
    for here, there in zip(
        trained(offloaded=False, device="cuda"), trained(offloaded=True, device="cuda"), strict=True
    ):
        assert torch.equal(here, there)
    model = nn.Linear(512, 512, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    model(torch.ones(2, 512, device="cuda")).sum().backward()
    optimizer.step()
    before = torch.cuda.memory_allocated()
    offload = StateOffload(optimizer)
    offload.on()
    assert before - torch.cuda.memory_allocated() >= 2 * model.weight.nbytes
    optimizer.step()
    assert all(slot["exp_avg"].device.type == "cpu" for slot in optimizer.state.values())


@cuda
@no_device
def test_on_cuda_a_batch_that_does_not_fit_is_done_in_pieces() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(1024, 1024), nn.Tanh()))).cuda()
    guard = StepGuard(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    inputs = torch.randn(64, 1, 1024)

    def loss(indices: Indices) -> Tensor:
        batch = inputs[torch.from_numpy(indices)].cuda().expand(-1, 256, -1)
        return torch.as_tensor(model(batch)).square().mean()

    room = torch.cuda.memory_allocated() + 400 * 2**20  # the whole batch's activations take about 1 GiB
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(room / torch.cuda.get_device_properties(0).total_memory)
    try:
        net = MemoryNet(guard=guard, policy=MemoryPolicy(), task=None, global_batch=64)
        net.begin()
        outcome = net.step(Batch(position=1, whole=np.arange(64, dtype=np.int64), loss=loss))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert outcome.applied
    assert net.ladder.notch.rung is Rung.MICRO_BATCHES
