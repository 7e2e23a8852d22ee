"""The training's side of the mirror: one at a time, the newest first, patience, and nothing of it costs a run."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import ConfigError, DamagedArtifactError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import ManualClock
from failsoft.training.checkpoints.mirror import Mirror
from failsoft.training.checkpoints.mirror_policy import MirrorPolicy, MirrorRecord, hopeless
from failsoft.training.checkpoints.writer_link import Message
from failsoft.training.checkpoints.writer_news import NewsKind, Ticket
from tests.training.fake_link import BEAT, Dies, FakeLink, Links, refused

MIRRORED, FAILED, DROPPED = NewsKind.MIRRORED, NewsKind.MIRROR_FAILED, NewsKind.MIRROR_DROPPED
COPIED: Message = {"say": "copied", "folder": "f", "bytes": 10, "removed": [], "unpruned": "", "took_s": 0.5}
STEADY = BackoffPolicy(first_s=10.0, factor=3.0, cap_s=90.0, jitter_fraction=0.0)
POLICY = MirrorPolicy(patience_s=30.0, backoff=STEADY, tries_to_read=2)


def ticket(position: int) -> Ticket:
    return Ticket(name=f"at-{position}", position=position, step=position, meta={"position": position})


class Bench:
    """A mirror, its clock and its links."""

    def __init__(self, folder: Path, *scripts: list[object], policy: MirrorPolicy = POLICY) -> None:
        self.clock = ManualClock()
        self.links = Links(*(FakeLink(self.clock, *script) for script in scripts))  # type: ignore[arg-type]
        store = ArtifactStore(folder / "checkpoints", self.clock, kind="checkpoint")
        self.mirror = Mirror(
            store, "s3://bucket/runs", clock=self.clock, rng=random.Random(1), policy=policy, start=self.links
        )

    def told(self) -> list[tuple[NewsKind, int]]:
        return [(news.kind, news.ticket.position) for _ in range(3) for news in self.mirror.look()]

    @property
    def sent(self) -> list[str]:
        return [order["what"] for link in self.links.started for order in link.orders]


def test_nothing_is_started_before_there_is_something_to_copy(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [])
    assert (bench.told(), bench.links.started, bench.mirror.busy) == ([], [], False)


def test_one_is_copied_one_waits_and_a_newer_one_takes_its_place_and_is_counted(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [])
    for position in (1, 2, 3, 4):
        bench.mirror.offer(ticket(position))
    assert bench.told() == [(DROPPED, 2), (DROPPED, 3)]
    bench.links.started[0].says += [COPIED, COPIED]
    assert bench.told() == [(MIRRORED, 1), (MIRRORED, 4)]
    assert bench.sent == ["at-1", "at-4"]
    assert (bench.mirror.record.copied, bench.mirror.record.dropped, bench.mirror.busy) == (2, 2, False)


def test_a_failed_copy_is_tried_again_after_waits_that_grow(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [refused("503 Slow Down")])
    bench.mirror.offer(ticket(1))
    assert bench.told() == [(FAILED, 1)]
    for wait_s in (10.0, 30.0, 90.0, 90.0):
        bench.clock.advance(wait_s - 0.1)
        assert bench.told() == []
        bench.clock.advance(0.2)
        bench.links.started[0].says.append(refused("503 Slow Down"))
        assert bench.told() == [(FAILED, 1)]
    assert bench.mirror.record.failures_in_a_row == 5
    bench.clock.advance(91.0)
    bench.links.started[0].says.append(COPIED)
    assert bench.told() == [(MIRRORED, 1)]
    assert bench.mirror.record.failures_in_a_row == 0


def test_after_a_failure_the_newer_one_is_tried_instead_of_the_old_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [])
    bench.mirror.offer(ticket(1))
    bench.mirror.offer(ticket(2))
    bench.links.started[0].says.append(refused("no route to host"))
    assert bench.told() == [(FAILED, 1), (DROPPED, 1)]
    bench.clock.advance(11.0)
    bench.links.started[0].says.append(COPIED)
    assert bench.told() == [(MIRRORED, 2)]


def test_one_that_was_pruned_here_before_its_turn_is_dropped_and_not_tried_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [{"say": "gone", "why": "was removed"}])
    bench.mirror.offer(ticket(1))
    assert bench.told() == [(DROPPED, 1)]
    assert not bench.mirror.busy


def test_a_store_that_hangs_is_killed_and_tried_again_by_another_process(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [], [COPIED])
    bench.mirror.offer(ticket(1))
    bench.clock.advance(29.0)
    assert bench.told() == []
    bench.clock.advance(1.0)
    assert bench.told() == [(FAILED, 1)]
    assert bench.links.started[0].stopped
    bench.clock.advance(11.0)
    assert bench.told() == [(MIRRORED, 1)]


def test_a_slow_store_that_moves_is_left_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [])
    bench.mirror.offer(ticket(1))
    for _ in range(10):
        bench.clock.advance(29.0)
        bench.links.started[0].says.append(BEAT)
        assert bench.told() == []
    bench.links.started[0].says.append(COPIED)
    assert bench.told() == [(MIRRORED, 1)]


@pytest.mark.parametrize("script", [[Dies], []], ids=["dies", "takes no order"])
def test_a_process_that_dies_is_started_again(tmp_path: Path, script: list[object]) -> None:
    bench = Bench(tmp_path, script, [COPIED])
    bench.links.waiting[0].deaf = not script
    bench.mirror.offer(ticket(1))
    assert bench.told() == [(FAILED, 1)]
    bench.clock.advance(11.0)
    assert bench.told() == [(MIRRORED, 1)]


def test_where_no_process_can_be_had_training_goes_on_and_it_is_tried_later(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.mirror.offer(ticket(1))
    assert bench.told() == [(FAILED, 1)]
    assert bench.mirror.busy


def test_trouble_alone_stops_no_run_unless_a_limit_is_set(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [refused("403 Forbidden")])
    bench.mirror.offer(ticket(1))
    bench.told()
    bench.clock.advance(1e6)
    assert bench.mirror.hopeless() is None


def test_with_a_limit_only_a_long_row_of_failures_stops_a_run() -> None:
    policy = MirrorPolicy(stop_after_s=3600.0)
    fresh = MirrorRecord(copied_at_s=0.0)
    failing = fresh.failed_with("403 Forbidden")
    assert hopeless(fresh, policy, now_s=1e6) is None
    assert hopeless(failing, policy, now_s=3599.0) is None
    said = str(hopeless(failing, policy, now_s=3600.0))
    assert all(words in said for words in ("403 Forbidden", "mend the store", "local checkpoint"))
    assert hopeless(failing, policy, now_s=float("nan")) is not None
    assert hopeless(failing.succeeded(3000.0).failed_with("x"), policy, now_s=3700.0) is None


@pytest.mark.parametrize("field", ["patience_s", "orphan_after_s", "stop_after_s", "wait_at_end_s"])
def test_limits_that_are_none_are_refused(field: str) -> None:
    wrong: dict[str, Any] = {field: float("nan")}
    with pytest.raises(ConfigError, match=field):
        MirrorPolicy(**wrong)


def test_the_end_waits_for_the_last_copy_and_its_tries_but_not_for_ever(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [refused("503"), refused("503"), COPIED])
    bench.mirror.offer(ticket(1))
    assert bench.mirror.drain(within_s=600.0)
    assert bench.told() == [(FAILED, 1), (FAILED, 1), (MIRRORED, 1)]
    bench.mirror.offer(ticket(2))
    begun_s = bench.clock.monotonic_s()
    assert not bench.mirror.drain(within_s=5.0)
    assert 5.0 <= bench.clock.monotonic_s() - begun_s <= 6.0


def test_parting_lets_the_process_finish_and_says_what_is_left(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [])
    bench.mirror.offer(ticket(1))
    bench.mirror.offer(ticket(2))
    bench.mirror.part()
    assert (bench.links.started[0].parted, bench.links.started[0].stopped) == (True, False)
    assert bench.told() == [(DROPPED, 1), (DROPPED, 2)]
    assert not bench.mirror.busy


def test_a_question_is_tried_again_and_its_last_error_is_the_answer(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [refused("no route"), refused("no route, still")])
    request = bench.mirror.ask_listing()
    assert request.poll(60.0)
    with pytest.raises(OSError, match="still"):
        request.result()
    assert [order["do"] for order in bench.links.started[0].orders] == ["list", "list"]


def test_a_question_can_be_asked_piece_by_piece(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [])
    request = bench.mirror.ask_fetch("f")
    assert not request.poll(5.0)
    bench.links.started[0].says += [BEAT, {"say": "fetched", "name": "at-1", "bytes": 1, "took_s": 0.1}]
    assert request.poll(5.0)
    assert request.result()["name"] == "at-1"


def test_what_is_damaged_is_not_asked_for_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [{"say": "damaged", "why": "bits"}])
    request = bench.mirror.ask_fetch("f")
    assert request.poll(5.0)
    with pytest.raises(DamagedArtifactError, match="bits"):
        request.result()
