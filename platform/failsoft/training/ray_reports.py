"""What Ray is told of checkpoints: of each when it lies where it is to lie, by Ray's upload call, and uploaded by ours.

``report(…, ASYNC, checkpoint_upload_fn)`` runs the function in a thread of Ray's. It waits there for the copy that our
own process makes (digests, rename, tries, patience: ``mirror``), and gives back the folder in the run's storage. So
nothing is copied twice, the training thread waits for nothing, not even for the controller's next poll, and Ray's list
names a checkpoint once it is as safe as it will be. What else the call would do is kept from it (Ray 2.60):

- An upload that raises ends the worker (``_upload_checkpoint_and_report`` hands its error to the training thread). The
  function here raises nothing: trouble with the store is the mirror's, which tries again and tells.
- One that never returns holds the worker at its end (``checkpoint_upload_threadpool.shutdown()`` has no limit), and
  every later report behind it. So it waits only so long, and not beyond the end of the run's work.
- ASYNC removes the local folder afterwards unless told otherwise: it is the run's own checkpoint, so it is told.
- A checkpoint outside of Ray's own storage path is refused, by an error that ends the worker. So Ray is given the
  folder there, never the remote address; and nothing at all of a checkpoint that lies on the remote store alone
  (shards of ranks without a shared folder), only its metrics. To put Ray's storage path on the remote store instead
  would have its controller write its list there at each report, before it polls any worker again: a store that hangs
  or refuses would take a healthy run with it, which it may not.
- Ray removes checkpoints of its list only to keep a number of them (``num_to_keep``), which this run never sets: our
  rules of keeping are the only ones that remove. Our manifests are the truth; Ray's list is for those who ask Ray.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import ray.train
from ray.train import CheckpointUploadMode

PATIENCE_S = 120.0
"""For a copy, before Ray is told without it: as long as the process that copies may say nothing."""


class RayReports:
    """Tells Ray of one run's checkpoints; as ``Deliver`` all ranks call it together. Rank 0 also follows the copies.

    Args:
        patience_s: for the remote copy of a checkpoint.
    """

    def __init__(self, *, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._on_their_way: set[str] = set()
        self._over = False

    def __call__(self, published: Path | None, metrics: Mapping[str, float]) -> None:
        """Tell of a checkpoint that is published; its folder on rank 0. Costs Ray's barrier of all ranks."""
        ray.train.report(
            dict(metrics),
            checkpoint=None if published is None else ray.train.Checkpoint(str(published)),
            checkpoint_upload_mode=CheckpointUploadMode.ASYNC,
            delete_local_checkpoint_after_upload=False,
            checkpoint_upload_fn=self.landed,
        )

    def copy_begun(self, name: str) -> None:
        """See :class:`failsoft.training.checkpoints.delivering.FollowsCopies`."""
        with self._changed:
            self._on_their_way.add(name)

    def copy_over(self, name: str) -> None:
        """As above."""
        with self._changed:
            self._on_their_way.discard(name)
            self._changed.notify_all()

    def end(self) -> None:
        """The run's work is over here: whoever still waits for a copy goes on without it."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def landed(self, checkpoint: ray.train.Checkpoint, _name: str) -> ray.train.Checkpoint:
        """Ray's ``checkpoint_upload_fn``: wait for our copy, in a thread of Ray's; never raises.

        Returns:
            The checkpoint as it is in the run's storage.
        """
        name = Path(checkpoint.path).name
        with self._changed:
            self._changed.wait_for(lambda: self._over or name not in self._on_their_way, self._patience_s)
        return checkpoint
