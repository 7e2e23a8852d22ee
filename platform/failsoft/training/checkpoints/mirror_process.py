"""The process that copies checkpoints to a remote store, started by the training and fed over a socket.

``python -m failsoft.training.checkpoints.mirror_process HANDLE PARENT``

A process of its own, apart from the writer's: a store that hangs can be got rid of by killing it, and never holds up
what is written to the local disk. The training itself loads no library of any store.
"""

from __future__ import annotations

import sys

from failsoft.artifacts.remote_place import place_of
from failsoft.training.checkpoints.mirror_work import MirrorWork
from failsoft.training.checkpoints.served_process import Wire, serve


def work(wire: Wire) -> None:
    """Until the training closes its end, or is gone."""
    mirror = MirrorWork(place_of, wire.clock)
    for message, _memory in wire.orders():
        wire.tell(mirror.answer(message, wire.beat))


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]), work)
