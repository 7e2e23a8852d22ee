"""What happens is written down when the disk allows; whoever answers callers does not wait for that."""

from __future__ import annotations

import threading
from pathlib import Path

from failsoft.health.clock import ManualClock
from failsoft.health.ledger import Event, Ledger, Side, read_ledger
from failsoft.serving.watching.diary import Diary


class HungDisk(Ledger):
    """A ledger on storage that does not return until it is told to."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, ManualClock(), side=Side.SERVING, subject="gateway-1")
        self.back, self.done = threading.Event(), threading.Event()

    def record(self, kind: str, why: str, **data: object) -> Event:
        assert self.back.wait(timeout=30.0)
        event = super().record(kind, why, **data)
        if kind == "second":
            self.done.set()
        return event


def test_a_disk_that_refuses_is_counted_and_raises_nothing(tmp_path: Path) -> None:
    disk = HungDisk(tmp_path / "ledger.jsonl")
    disk.path.mkdir()
    diary = Diary(disk)
    disk.back.set()
    diary.record("second", "21 bad of 100")
    assert disk.done.wait(timeout=30.0)
    assert diary.unrecorded == 1


def test_a_disk_that_hangs_holds_nobody_up_and_the_order_is_kept(tmp_path: Path) -> None:
    disk = HungDisk(tmp_path / "ledger.jsonl")
    diary = Diary(disk)
    diary.record("first", "a")
    diary.record("second", "b")
    assert read_ledger(disk.path).events == ()
    disk.back.set()
    assert disk.done.wait(timeout=30.0)
    assert [event.kind for event in read_ledger(disk.path).events] == ["first", "second"]
