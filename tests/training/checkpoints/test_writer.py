"""The training's side of the writer: what it does when the other side is slow, gone, silent or refused by the disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch

from failsoft.artifacts.store import Artifact, ArtifactStore
from failsoft.health.clock import ManualClock
from failsoft.training.checkpoints.retention import Last
from failsoft.training.checkpoints.writer import CheckpointWriter
from failsoft.training.checkpoints.writer_news import News, NewsKind, Ticket
from failsoft.training.checkpoints.writer_policy import WriterPolicy
from failsoft.training.checkpoints.writer_stage import Stage
from tests.training.fake_link import BEAT, WRITTEN, Dies, FakeLink, Links, refused

PUBLISHED, FAILED, REPLACED, LOST = NewsKind.PUBLISHED, NewsKind.FAILED, NewsKind.REPLACED, NewsKind.LOST
POLICY = WriterPolicy(patience_s=30.0, max_failures_in_a_row=3, max_unsaved_s=3600.0)


class Bench:
    """A writer, its clock and its links."""

    def __init__(self, folder: Path, *scripts: list[object]) -> None:
        self.clock = ManualClock()
        self.links = Links(*(FakeLink(self.clock, *script) for script in scripts))  # type: ignore[arg-type]
        self.store = ArtifactStore(folder / "checkpoints", self.clock, kind="checkpoint")
        self.writer = CheckpointWriter(
            self.store, rules=(Last(count=2),), clock=self.clock, policy=POLICY, start=self.links
        )

    def offer(self, position: int, *, size: int = 4) -> None:
        ticket = Ticket(name=f"at-{position}", position=position, step=position, meta={"position": position})
        self.writer.offer(ticket, {"w": torch.full((size,), float(position))}, b"{}")

    def told(self) -> list[tuple[NewsKind, int]]:
        return [(news.kind, news.ticket.position) for news in self.news()]

    def news(self) -> list[News]:
        """A writer started in one look is heard in the next."""
        return [news for _ in range(3) for news in self.writer.look()]


def test_a_checkpoint_is_published_when_the_writer_says_so_and_not_before(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [])
    bench.offer(1)
    assert (bench.told(), bench.writer.busy, bench.writer.stage) == ([], True, Stage.WRITING)
    bench.links.started[0].says.append(WRITTEN)
    assert bench.told() == [(PUBLISHED, 1)]
    assert (bench.writer.busy, bench.writer.parent) == (False, "at-1")


def test_one_is_written_one_waits_and_a_newer_one_takes_the_place_of_the_waiting_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [])
    for position in (1, 2, 3, 4):
        bench.offer(position)
    assert bench.told() == [(REPLACED, 2), (REPLACED, 3)]
    (link,) = bench.links.started
    assert [order["name"] for order in link.orders] == ["at-1"]
    link.says += [WRITTEN, WRITTEN]
    assert bench.told() == [(PUBLISHED, 1), (PUBLISHED, 4)]
    assert [(order["name"], order["meta"]["parent"]) for order in link.orders] == [("at-1", None), ("at-4", "at-1")]
    assert (bench.writer.record.published, bench.writer.record.replaced) == (2, 2)


def test_however_many_are_due_memory_for_two_is_all_that_is_taken(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [])
    bench.offer(1)
    one = bench.writer.held_bytes
    for position in range(2, 9):
        bench.offer(position)
    assert bench.writer.held_bytes == 2 * one
    bench.writer.drain(within_s=1.0)
    bench.writer.close()
    assert bench.writer.held_bytes == 0


def test_a_writer_that_dies_is_started_again_and_given_the_same_work(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [Dies], [WRITTEN])
    bench.offer(1)
    assert bench.told() == [(LOST, 1), (PUBLISHED, 1)]
    assert [link.orders[0]["name"] for link in bench.links.started] == ["at-1", "at-1"]


def test_work_that_two_writers_died_of_is_done_here_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [Dies], [Dies])
    bench.offer(1)
    assert bench.told() == [(LOST, 1), (LOST, 1), (PUBLISHED, 1)]
    assert bench.store.open("at-1").manifest.meta["position"] == 1


def test_where_no_process_can_be_had_the_training_writes_itself(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.offer(1)
    (lost, published) = bench.news()
    assert (lost.kind, published.kind) == (LOST, PUBLISHED)
    assert "this process writes it" in lost.why
    assert bench.store.open("at-1").manifest.meta["position"] == 1


def test_a_writer_that_takes_no_order_is_replaced(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [], [WRITTEN])
    bench.writer.prepare({"w": torch.ones(4)}, scalars_bytes=2)
    bench.links.started[0].deaf = True
    bench.offer(1)
    assert bench.told() == [(LOST, 1), (PUBLISHED, 1)]


def test_a_writer_that_dies_with_nothing_to_do_costs_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [WRITTEN, Dies], [WRITTEN])
    bench.offer(1)
    assert bench.told() == [(PUBLISHED, 1)]
    bench.offer(2)
    assert bench.told() == [(PUBLISHED, 2)]


def test_a_silent_writer_is_killed_and_its_work_given_up_but_not_done_here(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [], [WRITTEN])
    bench.offer(1)
    bench.offer(2)
    bench.clock.advance(POLICY.patience_s - 1.0)
    assert bench.told() == []
    bench.clock.advance(1.0)
    (failed, published) = bench.news()
    assert (failed.kind, failed.ticket.position, published.ticket.position) == (FAILED, 1, 2)
    assert "said nothing for 30 s" in failed.why
    assert bench.links.started[0].stopped
    assert not (bench.store.root / "at-1").exists()


def test_a_slow_writer_that_speaks_is_left_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [])
    bench.offer(1)
    for _ in range(10):
        bench.clock.advance(POLICY.patience_s - 1.0)
        bench.links.started[0].says.append(BEAT)
        assert bench.told() == []
    bench.links.started[0].says.append(WRITTEN)
    assert bench.told() == [(PUBLISHED, 1)]


def test_a_disk_that_refuses_costs_the_checkpoint_and_the_next_one_is_tried(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [refused("No space left on device")])
    bench.offer(1)
    (failed,) = bench.news()
    assert "No space left on device; the older checkpoints stand, training goes on" in failed.why
    bench.offer(2)
    bench.links.started[0].says.append(WRITTEN)
    assert bench.told() == [(PUBLISHED, 2)]
    assert bench.writer.hopeless() is None


def test_failures_in_a_row_are_hopeless_and_one_success_begins_anew(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [])
    for position, says in enumerate((refused("full"), refused("full"), WRITTEN, refused("full"), refused("full"))):
        bench.offer(position)
        bench.links.started[0].says.append(says)
        bench.news()
        assert bench.writer.hopeless() is None
    bench.offer(9)
    bench.links.started[0].says.append(refused("read-only file system"))
    bench.news()
    diagnosis = str(bench.writer.hopeless())
    assert "3 checkpoints in a row" in diagnosis
    assert "read-only file system" in diagnosis


def test_waiting_for_the_end_ends_with_the_writer_or_with_the_time_given(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [BEAT, WRITTEN])
    bench.offer(1)
    bench.writer.drain()
    assert bench.told() == [(PUBLISHED, 1)]
    bench.offer(2)
    begun_s = bench.clock.monotonic_s()
    bench.writer.drain(within_s=5.0)
    assert bench.told() == [(FAILED, 2)]
    assert bench.clock.monotonic_s() - begun_s <= 6.0


def test_the_writer_spares_the_training_until_somebody_waits(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [])
    bench.offer(1)
    (link,) = bench.links.started
    assert link.hurried == 0
    bench.offer(2)
    assert link.hurried == 1
    link.says += [WRITTEN, BEAT, WRITTEN]
    bench.writer.drain()
    assert link.hurried >= 2
    assert bench.told() == [(PUBLISHED, 1), (PUBLISHED, 2)]


def test_closing_finishes_what_is_on_its_way(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [])
    bench.offer(1)
    link = bench.links.started[0]
    link.says.append(WRITTEN)
    bench.writer.close()
    assert (link.closed, link.stopped, bench.told()) == (True, False, [(PUBLISHED, 1)])


def test_a_state_of_another_layout_gets_memory_of_its_own(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [WRITTEN])
    bench.offer(1)
    bench.news()
    bench.offer(2, size=4000)
    bench.links.started[0].says.append(WRITTEN)
    assert bench.told() == [(PUBLISHED, 2)]
    sizes = [order["tensors_bytes"] for order in bench.links.started[0].orders]
    assert sizes[1] - sizes[0] >= 4 * 3996


def test_what_cannot_be_held_in_memory_is_a_failure_and_no_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, [])

    def none_left(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("failsoft.training.checkpoints.writer_slot.Slot", none_left)
    bench.offer(1)
    (failed,) = bench.news()
    assert "Cannot allocate memory" in failed.why


def test_a_disk_that_refuses_the_pruning_leaves_the_new_checkpoint_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ArtifactStore(tmp_path / "checkpoints", ManualClock(), kind="checkpoint")
    writer = CheckpointWriter(store, rules=(Last(count=1),), clock=ManualClock())

    def read_only(_name: str) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(store, "remove", read_only)
    for position in (1, 2):
        meta = {"position": position, "healthy": True}
        writer.offer(Ticket(name=f"at-{position}", position=position, step=1, meta=meta), {"w": torch.ones(2)}, b"{}")
    last = writer.look()[-1]
    assert last.kind is PUBLISHED
    assert "Read-only" in str(last.data["unpruned"])


def test_with_one_kept_a_full_disk_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ArtifactStore(tmp_path / "checkpoints", ManualClock(), kind="checkpoint")
    writer = CheckpointWriter(store, rules=(Last(count=1),), clock=ManualClock())
    publish, refuses = store.publish, list[bool]()

    def maybe(name: str, write: Callable[[Path], None], *, meta: Mapping[str, object]) -> Artifact:
        if refuses:
            raise OSError(28, "No space left on device")
        return publish(name, write, meta=meta)

    monkeypatch.setattr(store, "publish", maybe)
    for position in (1, 2, 3):
        meta = {"position": position, "healthy": True}
        writer.offer(Ticket(name=f"at-{position}", position=position, step=1, meta=meta), {"w": torch.ones(2)}, b"{}")
        refuses += [True] if position == 2 else []
    assert [news.kind for news in writer.look()] == [PUBLISHED, PUBLISHED, FAILED]
    assert [artifact.name for artifact in store.listing()] == ["at-2"]
