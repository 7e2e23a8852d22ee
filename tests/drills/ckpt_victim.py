"""Publishes checkpoints one after the other until it is killed: ``python -m … FOLDER FIRST BYTES``.

Prints each position once it is published. With ``BYTES`` of 0 or more, kills itself when exactly so many bytes have
gone to the disk, in the middle of a ``write`` if need be; with less, waits for its parent to do it.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from failsoft.artifacts import digested as module
from failsoft.artifacts.store import ArtifactStore
from failsoft.health.clock import SystemClock
from failsoft.training.checkpoints.retention import Last, to_plain
from failsoft.training.checkpoints.writer_order import Order, carry_out

TENSORS_BYTES, SCALARS_BYTES = 300_000, 2_000


def content(position: int) -> bytes:
    """What the checkpoint of a position holds."""
    return (position.to_bytes(4, "big") * ((TENSORS_BYTES + SCALARS_BYTES) // 4))[: TENSORS_BYTES + SCALARS_BYTES]


class Doom:
    """Lets so many bytes through to the disk, then kills the process."""

    def __init__(self, left: int) -> None:
        self.left = left

    def write_whole(self, handle: int, content: memoryview) -> None:
        os.write(handle, content[: self.left])
        self.left -= min(self.left, len(content))
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path, first: int, doom_bytes: int) -> None:
    if doom_bytes >= 0:
        module._CHUNK_BYTES = 4096
        module._write_whole = Doom(doom_bytes).write_whole
    store = ArtifactStore(folder, SystemClock(), kind="checkpoint")
    for position in range(first, first + 10_000):
        order = Order(
            root=str(folder),
            kind="checkpoint",
            name=f"position-{position:012d}",
            meta={"position": position, "healthy": True},
            tensors_bytes=TENSORS_BYTES,
            scalars_bytes=SCALARS_BYTES,
            rules=tuple(to_plain([Last(count=2)])),
        )
        carry_out(order, memoryview(content(position)), store)
        print(position, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
