"""The toy in a plain DDP loop, for torchrun and for bare Ray Train: ``recovery_plain.py torchrun|ray FOLDER``.

Each saves and finds its checkpoint in the way of its own documentation; all else is one script.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.benchmarks.leash import led, ray_in_time
from tests.benchmarks.recovery_toy import (
    BATCH,
    CHECKPOINT_EVERY,
    SAMPLES,
    WORKERS,
    Marks,
    await_turn,
    paced,
    toy_data,
    toy_model,
)

State = dict[str, Any]
FILE = "state.pt"


def train(folder: Path, restore: Callable[[], State | None], save: Callable[[State], None]) -> None:
    """Train until killed, from the newest checkpoint if there is one; the process group is there."""
    torch.set_num_threads(1)
    marks, (inputs, targets) = Marks(folder, dist.get_rank()), toy_data()
    model = DistributedDataParallel(toy_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    restored, step = restore(), 0
    if restored is not None:
        model.module.load_state_dict(restored["model"])
        optimizer.load_state_dict(restored["optimizer"])
        step = restored["step"]
    while True:
        await_turn(folder)
        rows = torch.arange(step * BATCH, (step + 1) * BATCH) % SAMPLES
        optimizer.zero_grad()
        paced(lambda rows=rows: nn.functional.mse_loss(model(inputs[rows]), targets[rows])).backward()  # type: ignore[misc]
        optimizer.step()
        step += 1
        marks.done(step)
        if step % CHECKPOINT_EVERY == 0:
            save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step})


def under_torchrun(folder: Path) -> None:
    """One worker that torchrun started."""
    dist.init_process_group("gloo")
    kept = folder / FILE

    def save(state: State) -> None:
        if dist.get_rank() == 0:
            torch.save(state, kept.with_suffix(".new"))
            os.replace(kept.with_suffix(".new"), kept)

    train(folder, lambda: torch.load(kept, weights_only=True) if kept.exists() else None, save)


def under_ray(folder: Path) -> None:
    """The driver of bare Ray Train at its defaults, with retries without end."""
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    def start() -> None:
        ray.init(address="local", num_cpus=WORKERS, include_dashboard=False, _node_ip_address="127.0.0.1")

    with led() as leash:
        ray_in_time(leash, start)
        TorchTrainer(
            on_ray,
            train_loop_config={"folder": folder},
            scaling_config=ScalingConfig(num_workers=WORKERS),
            run_config=RunConfig(
                name="run",
                storage_path=str(folder),
                failure_config=FailureConfig(max_failures=-1),
            ),
        ).fit()


def on_ray(config: State) -> None:
    """One worker of Ray's."""
    import ray.train

    def restore() -> State | None:
        checkpoint = ray.train.get_checkpoint()
        if checkpoint is None:
            return None
        with checkpoint.as_directory() as folder:
            state: State = torch.load(Path(folder) / FILE, weights_only=True)
        return state

    def save(state: State) -> None:
        if dist.get_rank() > 0:
            ray.train.report({"step": state["step"]})
            return
        with tempfile.TemporaryDirectory() as folder:
            torch.save(state, Path(folder) / FILE)
            ray.train.report({"step": state["step"]}, checkpoint=ray.train.Checkpoint.from_directory(folder))

    train(config["folder"], restore, save)


if __name__ == "__main__":
    from tests.benchmarks.recovery_plain import under_ray as named_ray  # so that workers can import what they are sent

    {"torchrun": under_torchrun, "ray": named_ray}[sys.argv[1]](Path(sys.argv[2]))
