"""The guard in Lightning's Trainer: one callback. Needs ``pip install 'failsoft[lightning]'``."""

import tempfile

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader

from failsoft.training.for_lightning import GuardCallback
from failsoft.training.letters.deadletters import read_dead_letters


class Net(LightningModule):
    """Learns the sum of four numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))

    def training_step(self, batch: dict[str, Tensor]) -> Tensor:
        """The squared error of a batch."""
        return (self.net(batch["x"]) - batch["x"].sum(1, keepdim=True)).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Any optimizer that steps on gradients."""
        return torch.optim.AdamW(self.parameters(), lr=0.01)


torch.manual_seed(0)
samples = [{"x": torch.randn(4), "sample_ids": number} for number in range(640)]
samples[333]["x"][2] = torch.nan

guard = GuardCallback()
quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "enable_checkpointing": False}
trainer = Trainer(max_epochs=1, accelerator="cpu", default_root_dir=tempfile.mkdtemp(), callbacks=[guard], **quiet)
trainer.fit(Net(), DataLoader(samples, batch_size=32))

run = guard.companion
print(f"{run.step} of {run.position} updates applied, {run.refused} refused")
for letter in read_dead_letters(run.letters_folder):
    print(f"update {letter.position}: {letter.reason}; samples {letter.sample_ids[0]} to {letter.sample_ids[-1]}")
