"""One rank's writer, publishing checkpoints until it is killed: ``python -m … FOLDER RANK WORLD ATTEMPT FIRST BYTES``.

Rank 0 prints each position once it is published. With ``BYTES`` of 0 or more, kills itself when exactly so many bytes
have gone to the disk. No rank runs ahead of the others by more than one checkpoint, as in a run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from failsoft.artifacts import digested as module
from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import ArtifactError
from failsoft.health.clock import SystemClock
from failsoft.training.checkpoints.retention import Last, to_plain
from failsoft.training.checkpoints.shard_layout import ShardPlace
from failsoft.training.checkpoints.shard_writing import Around
from failsoft.training.checkpoints.tensor_file import Stamp, TensorSpec, lay_out
from failsoft.training.checkpoints.writer_order import Order, carry_out
from tests.drills.ckpt_victim import Doom

NUMBERS = 100_000


def content(rank: int, position: int) -> bytes:
    """A rank's shard of a position."""
    layout = lay_out({"w": TensorSpec(dtype="U32", shape=(NUMBERS,))})
    whole = bytearray(layout.header + (1000 * position + rank).to_bytes(4, "little") * NUMBERS)
    stamp = Stamp(position=position, step=position).to_header()
    whole[9 : 9 + len(stamp)] = stamp
    return bytes(whole)


def write(store: ArtifactStore, place: ShardPlace, position: int) -> None:
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
        rules=tuple(to_plain([Last(count=2)])),
        shard=place,
    )
    carry_out(order, memoryview(tensors + scalars), store, around=Around(clock=SystemClock()))


def main(folder: Path, place: ShardPlace, first: int, doom_bytes: int) -> None:
    if doom_bytes >= 0:
        module._CHUNK_BYTES = 4096
        module._write_whole = Doom(doom_bytes).write_whole
    clock = SystemClock()
    store = ArtifactStore(folder, clock, kind="checkpoint")
    for position in range(first, first + 10_000):
        while position > first and not any(int(one.name.split("-")[1]) >= position - 1 for one in store.listing()):
            clock.sleep_s(0.005)
        try:
            write(store, place, position)
        except (ArtifactError, OSError) as error:  # a fellow died; the group ends
            print(error, file=sys.stderr)
            return
        if place.leads:
            print(position, flush=True)


if __name__ == "__main__":
    at = ShardPlace(rank=int(sys.argv[2]), world=int(sys.argv[3]), attempt=sys.argv[4])
    main(Path(sys.argv[1]), at, int(sys.argv[5]), int(sys.argv[6]))
