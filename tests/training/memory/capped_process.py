"""A process with a real cap on its memory, whose full batch does not fit: ``python -m … ROOM_MIB``; one JSON line."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from failsoft.training.degradation import Degradations
from failsoft.training.guard import StepGuard
from failsoft.training.memory.batch import Batch
from failsoft.training.memory.micro_batches import Indices
from failsoft.training.memory.net import MemoryNet
from failsoft.training.memory.oom import free_caches
from failsoft.training.memory.rungs import MemoryPolicy

SAMPLES, WIDTH, LAYERS = 64, 16, 8
PLACES = 1 << 14
"""Places of a sample; one layer's activations of the whole batch are 64 MiB."""
STEPS = 6


class Task:
    """A deep, narrow network over long inputs: all of its memory is activations."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
        self.model = nn.Sequential(*layers, nn.Linear(WIDTH, 1))
        self.inputs = torch.randn(SAMPLES, 1, WIDTH)
        self.samples = 0

    def loss(self, indices: Indices) -> Tensor:
        batch = self.inputs[torch.from_numpy(indices)].expand(-1, PLACES // 4, -1).contiguous()
        loss: Tensor = self.model(batch).square().mean()
        self.samples += len(indices)
        return loss


def cap(room_bytes: int) -> None:
    """No more address space than the process has now, and so much."""
    pages = int(Path("/proc/self/statm").read_text("utf-8").split()[0])
    limit = pages * resource.getpagesize() + room_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def trained(task: Task) -> dict[str, object]:
    """Some steps from full size, and what they told."""
    guard = StepGuard(model=task.model, optimizer=torch.optim.SGD(task.model.parameters(), lr=0.1))
    told: list[dict[str, object]] = []
    say = Degradations(lambda kind, why, **data: told.append({"level": data.get("level")} | data))
    policy = MemoryPolicy(climb_after_steps=STEPS, look_every_batches=10**9)
    net = MemoryNet(guard=guard, policy=policy, task=task, global_batch=SAMPLES, degradations=say)
    net.begin()
    whole, before = np.arange(SAMPLES, dtype=np.int64), task.samples
    applied = [net.step(Batch(position=1 + step, whole=whole, loss=task.loss)).applied for step in range(STEPS)]
    asked, levels = ([event.get(name) for event in told] for name in ("requested_bytes", "level"))
    return {"applied": applied, "samples": task.samples - before, "levels": levels, "asked": asked}


def main(room_mib: int) -> None:
    torch.set_num_threads(1)
    task = Task()
    free = trained(task)
    free_caches()
    cap(room_mib * 2**20)
    print(json.dumps({"free": free, "capped": trained(task)}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
