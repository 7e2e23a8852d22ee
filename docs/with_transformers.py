"""The guard in Hugging Face's Trainer: another class. Needs ``pip install 'failsoft[transformers]'``."""

import tempfile

import torch
from torch import Tensor, nn
from transformers import TrainingArguments

from failsoft.training.for_transformers import GuardedTrainer
from failsoft.training.letters.deadletters import read_dead_letters


class Net(nn.Module):
    """Learns the sum of four numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """The squared error of a batch."""
        return {"loss": (self.net(x) - x.sum(1, keepdim=True)).square().mean()}


torch.manual_seed(0)
samples = [{"x": torch.randn(4), "sample_ids": number} for number in range(640)]
samples[333]["x"][2] = torch.nan

quiet = {"report_to": [], "disable_tqdm": True, "save_strategy": "no", "dataloader_pin_memory": False, "use_cpu": True}
args = TrainingArguments(
    output_dir=tempfile.mkdtemp(), per_device_train_batch_size=32, num_train_epochs=1,
    train_sampling_strategy="sequential", **quiet,
)  # fmt: skip
trainer = GuardedTrainer(model=Net(), args=args, train_dataset=samples)
trainer.train()

run = trainer.companion
print(f"{run.step} of {run.position} updates applied, {run.refused} refused")
for letter in read_dead_letters(run.letters_folder):
    print(f"update {letter.position}: {letter.reason}; samples {letter.sample_ids[0]} to {letter.sample_ids[-1]}")
