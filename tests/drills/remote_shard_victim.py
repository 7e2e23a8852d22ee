"""One rank's writer, uploading until it is killed: ``python -m … DISK RANK WORLD ATTEMPT FIRST BYTES URL``.

Rank 0 prints each position once it counts on the remote store. With ``BYTES`` of 0 or more, kills itself when about so
many have gone to the store. No rank runs ahead of the others by more than one checkpoint, as in a run.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from failsoft.artifacts import remote_assembly as module
from failsoft.artifacts.manifest import digest_bytes
from failsoft.artifacts.remote_place import place_of
from failsoft.artifacts.remote_store import RemoteStore
from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import ArtifactError
from failsoft.health.clock import SystemClock
from failsoft.training.checkpoints.landing import Landing
from failsoft.training.checkpoints.shard_layout import ShardPlace
from failsoft.training.checkpoints.shard_writing import Around
from failsoft.training.checkpoints.writer_order import Order, carry_out
from tests.drills.shard_victim import content

PIECE_BYTES = 4096


class Doom:
    """Called after each piece that went to the store."""

    def __init__(self, doom_bytes: int) -> None:
        self.left = doom_bytes // PIECE_BYTES if doom_bytes >= 0 else -1

    def __call__(self) -> None:
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1


def landing_of(url: str, attempt: str, position: int) -> Landing:
    """Drawn by rank 0 in a run; here by all ranks alike."""
    digits = digest_bytes(f"{attempt} {position}".encode()).partition(":")[2][:16]
    return Landing(url=url, folder=f"position-{position:012d}.{digits}")


def write(store: ArtifactStore, place: ShardPlace, position: int, doom: Doom) -> None:
    """One checkpoint, this rank's part."""
    tensors = content(place.rank, position)
    scalars = json.dumps({"position": position, "step": position}).encode() if place.leads else b""
    order = Order(
        root=str(store.root),
        kind="checkpoint",
        name=f"position-{position:012d}",
        meta={"position": position, "step": position, "healthy": True, "shards": {"files": place.world}},
        tensors_bytes=len(tensors),
        scalars_bytes=len(scalars),
        shard=place,
    )
    carry_out(order, memoryview(tensors + scalars), store, around=Around(clock=SystemClock(), beat=doom))


def reached(remote: RemoteStore) -> int:
    """The newest position that counts."""
    return max((int(one.manifest.meta["position"]) for one in remote.shelf().there), default=0)


def main(disk: Path, place: tuple[int, int], attempt: str, *, first: int, doom: Doom, url: str) -> None:
    """Rank and world are the ``place``."""
    module._CHUNK_BYTES = PIECE_BYTES
    clock = SystemClock()
    rank, world = place
    store = ArtifactStore(disk, clock, kind="checkpoint")
    remote = RemoteStore(place_of(url), kind="checkpoint")
    for position in range(first, first + 10_000):
        while position > first and reached(remote) < position - 1:
            clock.sleep_s(0.02)
        mine = ShardPlace(rank=rank, world=world, attempt=attempt, landing=landing_of(url, attempt, position))
        try:
            write(store, mine, position, doom)
        except (ArtifactError, OSError) as error:  # a fellow died; the group ends
            print(error, file=sys.stderr)
            return
        if rank == 0:
            print(position, flush=True)


if __name__ == "__main__":
    folder, number, of, name, at, doomed, place_url = sys.argv[1:]
    main(Path(folder), (int(number), int(of)), name, first=int(at), doom=Doom(int(doomed)), url=place_url)
