"""The way out of a run that was told to leave."""

from __future__ import annotations

from collections.abc import Mapping

from failsoft.errors import PreemptedError
from failsoft.training.checkpoints.checkpoint import Checkpoints
from failsoft.training.chronicle import Chronicle
from failsoft.training.state import TrainingState


def save_and_leave(
    why: str, state: TrainingState, checkpoints: Checkpoints, metrics: Mapping[str, float], chronicle: Chronicle
) -> PreemptedError:
    """Publish the present state unless it is published, and say so; on all ranks together, between two batches.

    Returns:
        What to raise. An ill state, or a disk that refuses, saves nothing: the checkpoint before stands.
    """
    checkpoints.settle()
    with chronicle.handing_over():
        saved = checkpoints.position == state.position or checkpoints.publish(state, metrics)
    checkpoints.leave()
    chronicle.left(why, saved=saved)
    where = f"batch {state.position}" if saved else "its last checkpoint"
    return PreemptedError(f"{why}; start the run again, it goes on from {where}")
