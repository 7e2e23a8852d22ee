"""Own model, own data, on Ray: killed, resized, short of memory, it goes on. ``python docs/own_job.py [HOME]``."""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from train_jobs.config import JobConfig
from train_jobs.own import Learning, OwnJob, train_own

INPUTS = torch.randn(2048, 8, generator=torch.Generator().manual_seed(0))
TARGETS = INPUTS[:, :3].sum(1, keepdim=True).sin()


class Sines:
    """What is learnt: the mean loss of the samples with these indices."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def loss(self, indices: np.ndarray) -> Tensor:
        """Of a batch, or of a piece of one when memory is short."""
        return nn.functional.mse_loss(self.model(INPUTS[indices]), TARGETS[indices])


class Held:
    """What is looked at now and then."""

    validation_samples = 256

    def validate(self, model: nn.Module, indices: np.ndarray) -> dict[str, float]:
        """Means, by name; the lowest ``val_loss`` is the best."""
        return {"val_loss": nn.functional.mse_loss(model(INPUTS[indices]), TARGETS[indices]).item()}


def learn(device: torch.device) -> Learning:
    """Runs on each worker."""
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return Learning(model=model, optimizer=optimizer, task=Sines, validation=Held())


home = Path(sys.argv[1] if sys.argv[1:] else "work")
config = JobConfig(home=home, run="sines", validate_every_steps=100)  # workers=(1, 4): as many as there is room for
job = OwnJob(config=config, learn=learn, num_samples=2048, global_batch=64, total_batches=300)

if __name__ == "__main__":
    print(f"trained: {train_own(job, say=print).name}; see: failsoft runs --home {home} {config.run}")
