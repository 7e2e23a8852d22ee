"""A guarded loop in plain PyTorch. One of its batches holds a NaN; nothing of it remains."""

import torch
from torch import nn

from failsoft.training.guard import StepGuard

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
batches = [torch.randn(32, 4) for _ in range(100)]
batches[50][7, 2] = torch.nan

guard = StepGuard(model=model, optimizer=optimizer)
for position, batch in enumerate(batches):
    outcome = guard.step(lambda x=batch: (model(x) - x.sum(1, keepdim=True)).square().mean(), position=position)
    if not outcome.applied:
        print(f"batch {position} refused: {outcome.refusal}, first seen in {outcome.bad_tensor}")
print(f"loss {outcome.loss:.3f}, unhealthy: {guard.first_unhealthy()}")
