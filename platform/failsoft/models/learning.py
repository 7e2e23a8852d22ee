"""What one training step needs of this workload: tensors, loss, optimizer, schedule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from failsoft.models.encoding import IGNORED_TAG
from failsoft.models.network import Scores
from failsoft.models.recipe import Recipe


def to_tensors(batch: Mapping[str, NDArray[np.generic]], device: torch.device | None = None) -> dict[str, Tensor]:
    """The same batch as tensors, on ``device``."""
    return {name: torch.from_numpy(np.ascontiguousarray(array)).to(device) for name, array in batch.items()}


@dataclass(frozen=True, kw_only=True)
class Share:
    """How much of a larger batch a batch is."""

    texts: float = 1.0
    words: float = 1.0


WHOLE = Share()


def joint_loss(scores: Scores, batch: Mapping[str, Tensor], recipe: Recipe, share: Share = WHOLE) -> Tensor:
    """Cross-entropy of the intents plus the weighted one of the tags, means over texts and over words; in float32.

    The intent target is the label, blended with the uniform distribution as far as the text deserves doubt. Of a part
    of a larger batch it is what the part adds to that one's loss.
    """
    log_probs_BC = scores.intent_logits_BC.float().log_softmax(-1)
    uniform_B = recipe.label_smoothing + (1.0 - recipe.label_smoothing) * batch["doubt"]
    right_B = -log_probs_BC.gather(1, batch["intent"].unsqueeze(1)).squeeze(1)
    intent = ((1.0 - uniform_B) * right_B - uniform_B * log_probs_BC.mean(-1)).mean()
    tags = F.cross_entropy(
        scores.slot_logits_BTS.float().flatten(0, 1), batch["tags"].flatten(), ignore_index=IGNORED_TAG
    )
    return share.texts * intent + share.words * recipe.slot_weight * tags


def loss_of(model: nn.Module, batch: Mapping[str, Tensor], recipe: Recipe, share: Share = WHOLE) -> Tensor:
    """Forward and loss of one batch; ``model`` may be wrapped (DDP)."""
    return joint_loss(model(batch), batch, recipe, share)


def make_optimizer(model: nn.Module, recipe: Recipe) -> AdamW:
    """Fused AdamW. Only matrices decay: norms, biases and embeddings keep their size."""
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    decays = [p for p in model.parameters() if p.ndim > 1 and id(p) not in embeddings]
    stays = [p for p in model.parameters() if p.ndim <= 1 or id(p) in embeddings]
    groups = [{"params": decays, "weight_decay": recipe.weight_decay}, {"params": stays, "weight_decay": 0.0}]
    return AdamW(groups, lr=recipe.learning_rate, betas=(0.9, 0.98), fused=True)


def schedule(optimizer: Optimizer, recipe: Recipe, total_steps: int) -> LambdaLR:
    """Linear warm-up to the peak rate, then half a cosine down to 1 % of it. Stepped once per applied update."""
    warmup = max(1, round(recipe.warmup_fraction * total_steps))

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        progress = min(1.0, (step - warmup) / max(1, total_steps - warmup))
        return 0.01 + 0.99 * 0.5 * (1.0 + math.cos(math.pi * progress))

    return LambdaLR(optimizer, factor)
