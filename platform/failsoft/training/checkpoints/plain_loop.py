"""Checkpoints for a loop of one's own, under whatever started its processes (torchrun, say)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from failsoft.artifacts.home import Home
from failsoft.health.aside import Aside
from failsoft.health.clock import Clock, SystemClock
from failsoft.health.ledger import Ledger, Side
from failsoft.training.checkpoints.checkpoint import Checkpoints
from failsoft.training.checkpoints.retention import Best, Every, Last
from failsoft.training.checkpoints.writer import writer_behind
from failsoft.training.ranks import ranks_here


def checkpoints_of(
    home: Path,
    run: str,
    *,
    identity: Mapping[str, Any],
    rules: Sequence[Last | Best | Every] = (Last(),),
    clock: Clock | None = None,
) -> Checkpoints:
    """The checkpoints of a run, where ``failsoft ckpt ls|verify|show|diff|prune RUN --home HOME`` finds them.

    All ranks make them alike, after their process group: ``restore`` once, then ``submit`` (or ``publish``, which
    waits) whenever a checkpoint is due, ``tend`` now and then, ``close`` at the end.

    Args:
        home: a folder that all ranks share.
        run: name of the run.
        identity: what must be the same for a resumed run to be the same run, as small JSON.
        rules: which checkpoints stay.
        clock: None: the machine's.
    """
    place, clock = Home.find(home), clock or SystemClock()
    store = place.checkpoints(run, clock)
    return Checkpoints(
        store=store,
        identity=identity,
        ranks=ranks_here(),
        ledger=Ledger(place.ledger, clock, side=Side.TRAINING, subject=run, aside=Aside(clock)),
        writer=writer_behind(store, clock, rules=rules),
    )
