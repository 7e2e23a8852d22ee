"""Opens a rank's place in memory of the host: the key that binds it to the run, the folder, the lock."""

from __future__ import annotations

import json
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from failsoft.health.clock import Clock
from failsoft.training.ranks import Ranks, from_rank_zero
from failsoft.training.snapshots.refuge import Refuge
from failsoft.training.snapshots.refuge_folder import RefugeFolder
from failsoft.training.snapshots.refuge_note import Owner
from failsoft.training.snapshots.snapshot import SnapshotPolicy

KEY_NAME = "host_memory.key"
"""In the run's folder. A folder that was removed takes its key along, so nothing that a run of the same name has left
in memory can come back."""
_KEY = re.compile(r"[0-9a-f]{16}")
_PATIENCE_S = 5.0
"""For the lock of a worker that was killed: the kernel lets go of it when the process is gone."""


class Opened(NamedTuple):
    """A refuge, or why there is none."""

    refuge: Refuge | None
    refusal: str
    """Empty also where none was asked for."""


def open_refuge(policy: SnapshotPolicy, *, run_folder: Path, bound: str, ranks: Ranks, clock: Clock) -> Opened:
    """A place that outlives this process, if it can be had. All ranks call it together, whatever their policy says.

    Args:
        policy: where, and how much of it.
        run_folder: holds the key, which rank 0 reads or makes.
        bound: digest of what must be the same for a snapshot to be used.
        ranks: of the run.
        clock: waits for the lock.
    """
    said = {"key": _key(run_folder), "group": secrets.token_hex(8)} if ranks.rank == 0 else {}
    heard = json.loads(from_rank_zero(ranks, json.dumps(said)))
    if policy.host_folder is None:
        return Opened(None, "")
    if not heard["key"]:
        return Opened(None, f"{run_folder / KEY_NAME} can't be read or written on rank 0")
    owner = Owner(run=heard["key"], rank=ranks.rank, world=ranks.world, bound=bound)
    folder = RefugeFolder(policy.host_folder, owner)
    try:
        folder.open(clock, patience_s=_PATIENCE_S)
    except OSError as error:
        return Opened(None, str(error))
    fraction = policy.max_host_fraction
    return Opened(Refuge(folder, owner=owner, place=policy.where, group=heard["group"], max_fraction=fraction), "")


def _key(run_folder: Path) -> str:
    """Drawn once for the life of the run's folder; "" when the disk refuses."""
    path = run_folder / KEY_NAME
    with suppress(OSError):
        run_folder.mkdir(parents=True, exist_ok=True)
        found = path.read_text("utf-8", "replace").strip() if path.exists() else ""
        if _KEY.fullmatch(found):
            return found
        key = secrets.token_hex(8)
        path.write_text(key, "utf-8")
        return key
    return ""
