"""The writer, started by the training and fed over a socket.

``python -m failsoft.training.checkpoints.writer_process HANDLE PARENT``

It takes orders one at a time: the memory comes as a file handle, is written, digested, synced, renamed, and the answer
goes back.
"""

from __future__ import annotations

import mmap
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import FailsoftError
from failsoft.training.checkpoints.served_process import Wire, serve
from failsoft.training.checkpoints.shard_writing import Around
from failsoft.training.checkpoints.writer_order import Order, carry_out
from failsoft.training.checkpoints.writer_succession import at_work


class Writer:
    """Carries out orders from one socket until it closes."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def serve(self) -> None:
        """Until the training closes its end, or is gone."""
        for message, memory in self._wire.orders():
            self._wire.tell(self._answer(Order.from_plain(message), memory))

    def _answer(self, order: Order, memory: int) -> dict[str, Any]:
        try:
            with mmap.mmap(memory, 0, prot=mmap.PROT_READ) as mapped, memoryview(mapped) as view:
                return self._carried_out(order, view)
        finally:
            os.close(memory)

    def _carried_out(self, order: Order, view: memoryview) -> dict[str, Any]:
        """Every error ends here: one on its way up would hold pieces of the memory, which then can't be closed."""
        clock, wire = self._wire.clock, self._wire
        store = ArtifactStore(Path(order.root), clock, kind=order.kind)
        started_s = clock.monotonic_s()
        try:
            leads = order.shard is None or order.shard.leads  # a new attempt waits for who publishes, and only for that
            with at_work(store.root) if leads else nullcontext():
                written = carry_out(order, view, store, around=Around(clock=clock, beat=wire.beat, alone=wire.alone))
        except (OSError, FailsoftError) as error:
            return {"say": "refused", "why": str(error)}
        return {
            "say": "written",
            "bytes": written.size_bytes,
            "removed": list(written.removed),
            "unpruned": written.unpruned,
            "took_s": clock.monotonic_s() - started_s,
        }


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]), lambda wire: Writer(wire).serve())
