"""Trouble with a place of checkpoints is one degradation from its first word to its last."""

from __future__ import annotations

from pathlib import Path

from failsoft.health.clock import ManualClock
from failsoft.health.ledger import Ledger, Side, read_ledger
from failsoft.training.checkpoints.storage_trouble import StorageTrouble
from failsoft.training.checkpoints.writer_news import News, NewsKind, Ticket


def told(folder: Path, *kinds: NewsKind) -> list[tuple[str, str, str]]:
    ledger = Ledger(folder / "ledger.jsonl", ManualClock(), side=Side.TRAINING, subject="run")
    trouble = StorageTrouble(ledger=ledger)
    for position, kind in enumerate(kinds):
        ticket = Ticket(name=f"at-{position}", position=position, step=position, meta={})
        trouble.heard(News(kind=kind, why=f"news {position}", ticket=ticket))
    events = read_ledger(ledger.path).events
    return [(one.kind.removeprefix("degradation_"), one.data["name"], one.data.get("level", "")) for one in events]


def test_refusals_in_a_row_are_one_degradation_and_the_next_success_ends_it(tmp_path: Path) -> None:
    failed, good = NewsKind.FAILED, NewsKind.PUBLISHED
    assert told(tmp_path, good, failed, failed, failed, good, good) == [
        ("began", "local", "refused"),
        ("ended", "local", ""),
    ]


def test_the_remote_place_is_told_apart_and_being_late_becomes_being_refused(tmp_path: Path) -> None:
    kinds = (NewsKind.MIRROR_DROPPED, NewsKind.PUBLISHED, NewsKind.MIRROR_FAILED, NewsKind.MIRROR_DROPPED)
    assert told(tmp_path, *kinds, NewsKind.MIRRORED) == [
        ("began", "remote", "late"),
        ("changed", "remote", "refused"),
        ("ended", "remote", ""),
    ]


def test_a_writer_that_was_replaced_is_no_degradation(tmp_path: Path) -> None:
    assert told(tmp_path, NewsKind.LOST) == []
