"""How the job looks at its model between two batches: on the validation split, by loss and accuracies."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from failsoft.models.encoding import IGNORED_TAG, EncodedSplit
from failsoft.models.learning import to_tensors
from failsoft.models.recipe import Recipe
from failsoft.training.chronicle import Desk
from failsoft.training.ranks import Ranks
from failsoft.training.state import TrainingState
from failsoft.training.validation import Validator
from train_jobs.config import JobConfig
from train_jobs.workload import Workload


class IntentNerValidation:
    """The validation split as samples to be judged on; each metric is a mean over sentences.

    ``val_loss`` is the loss of the intent plus the weighted mean loss of the words' tags, without smoothing and doubt;
    ``val_intent_accuracy`` the part of sentences whose intent is right; ``val_tag_accuracy`` the part of a sentence's
    words whose tag is right.
    """

    def __init__(self, split: EncodedSplit, recipe: Recipe, device: torch.device) -> None:
        self._split = split
        self._recipe = recipe
        self._device = device

    @property
    def validation_samples(self) -> int:
        """Sentences of the split."""
        return len(self._split)

    def validate(self, model: nn.Module, indices: NDArray[np.int64]) -> Mapping[str, float]:
        """Means over these sentences."""
        batch = to_tensors(self._split.take(indices), self._device)
        scores = model(batch)
        intents_BC, tags_BTS = scores.intent_logits_BC.float(), scores.slot_logits_BTS.float()
        intent_B = F.cross_entropy(intents_BC, batch["intent"], reduction="none")
        tag_BT = F.cross_entropy(tags_BTS.transpose(1, 2), batch["tags"], ignore_index=IGNORED_TAG, reduction="none")
        known_BT = batch["tags"] != IGNORED_TAG
        loss_B = intent_B + self._recipe.slot_weight * _mean_where(tag_BT, known_BT)
        right_B = (intents_BC.argmax(-1) == batch["intent"]).float()
        tagged_B = _mean_where((tags_BTS.argmax(-1) == batch["tags"]).float(), known_BT)
        return {
            "val_loss": loss_B.mean().item(),
            "val_intent_accuracy": right_B.mean().item(),
            "val_tag_accuracy": tagged_B.mean().item(),
        }


def validator_of(
    config: JobConfig, workload: Workload, state: TrainingState, ranks: Ranks, desk: Desk, *, batches_per_epoch: int
) -> Validator | None:
    """What looks at the model while it trains; None where nobody asked for it, or the corpus has no such split."""
    plan = config.validation
    if not plan.looks or workload.validation is None or not len(workload.validation):
        return None
    device = next(state.model.parameters()).device
    task = IntentNerValidation(workload.validation, workload.recipe, device)
    return Validator(task, state, ranks, desk, plan, batches_per_epoch=batches_per_epoch)


def _mean_where(values_BT: Tensor, known_BT: Tensor) -> Tensor:
    """Mean over a sentence's known words; 0 for one without any."""
    return (values_BT * known_BT).sum(-1) / known_BT.sum(-1).clamp(min=1)
