"""What is held of ledger and answers, however much of them there is."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from failsoft.console import answers_seen
from failsoft.console import feed as feed_module
from failsoft.console.feed import Feed
from failsoft.health.clock import ManualClock, SystemClock
from failsoft.health.ledger import Ledger, Side
from failsoft.incidents.finding import incidents_of
from failsoft.serving.watching.answer_history import FILE_NAME
from tests.console.made import Scene
from tests.incidents.made import BEGAN_S, Told


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def feed_of(scene: Scene, *, wall_s: float = BEGAN_S) -> Feed:
    return Feed(scene.home, status=scene.status, rollout=scene.rollout, clock=ManualClock(wall_s=wall_s))


def from_disk(feed: Feed) -> dict[str, Any]:
    feed.read_disk()
    return feed._from_disk


def test_an_incident_that_goes_on_stays_in_sight_however_much_training_writes(scene: Scene) -> None:
    Told(scene.home.root).plan("degraded", "ill")
    run = Ledger(scene.home.ledger, ManualClock(wall_s=BEGAN_S), side=Side.TRAINING, subject="run")
    for _ in range(5001):
        run.record("batch_refused", "so")
    said = from_disk(feed_of(scene))
    assert [one["name"] for one in said["incidents"]] == ["incident-11"]
    assert [one["name"] for one in said["happening"]] == ["incident-11"]


def test_a_fall_stays_in_sight_in_a_wave_of_many_gateways_and_many_hours(scene: Scene) -> None:
    told = Told(scene.home.root)
    told.plan("degraded", "ill")
    for _ in range(5001):
        told.clock.advance(4.0)
        told.event("overload_goes_on", "31 of the last 100 calls")
    said = from_disk(feed_of(scene, wall_s=told.clock.wall_s()))
    assert sorted(one["section"] for one in said["happening"]) == ["FailsoftDegraded", "FailsoftOverload"]


@pytest.mark.parametrize("words", ["größe", "GRÖSSE", "音楽", "🎵", "r1 Größe", "Straße"])
def test_words_of_any_language_are_found_in_the_ledger(scene: Scene, words: str) -> None:
    told = Told(scene.home.root)
    told.plan("degraded", "r1 Größe 音楽 🎵 Straße")
    told.plan("serving", "another")
    feed = feed_of(scene)
    feed.read_disk()
    assert [one["why"] for one in feed.search(words, None)] == ["r1 Größe 音楽 🎵 Straße"]


def test_where_no_answer_is_known_nobody_is_told_that_nobody_was_hit(scene: Scene) -> None:
    told = Told(scene.home.root)
    told.plan("degraded", "ill")
    told.clock.jump_wall(-3600.0)
    told.answers(5, gbdt=40)
    said = from_disk(feed_of(scene, wall_s=told.clock.wall_s()))
    assert said["happening"][0]["saw"].startswith("not known here")
    assert said["incidents"][0]["replaced"] == "see its report"


def test_the_runs_that_were_heard_of_last_are_shown(scene: Scene) -> None:
    clock = ManualClock(wall_s=BEGAN_S)
    for number in range(15):
        run = f"run{number:02d}"
        scene.home.run(run).mkdir(parents=True)
        clock.advance(100.0)
        Ledger(scene.home.ledger, clock, side=Side.TRAINING, subject=run).record("run_started", "so")
    feed = feed_of(scene, wall_s=clock.wall_s())
    feed.read_disk()
    shown = [row[0] for row in feed._run_rows(clock.wall_s() + 60.0)]
    assert shown == [f"run{number:02d}" for number in range(14, 4, -1)]


def test_whoever_comes_after_a_while_gets_no_old_incidents_and_who_looks_all_the_time_costs_little(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, found = Told(scene.home.root), 0
    feed = Feed(scene.home, status=scene.status, rollout=scene.rollout, clock=told.clock)
    whole = incidents_of

    def counted(*given: Any, **named: Any) -> Any:
        nonlocal found
        found += 1
        return whole(*given, **named)

    monkeypatch.setattr(feed_module, "incidents_of", counted)
    for _ in range(20):
        feed.read_disk()
        told.clock.advance(0.5)
    assert found == 2
    told.plan("degraded", "ill")
    told.clock.advance(3600.0)
    assert [one["name"] for one in from_disk(feed)["happening"]] == ["incident-11"], "at the first look"


def test_no_line_is_read_twice_and_never_more_than_a_bound(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(scene.home.root)
    told.plan("degraded")
    told.answers(200, gbdt=10)
    feed = Feed(scene.home, status=scene.status, rollout=scene.rollout, clock=told.clock)
    assert from_disk(feed)["incidents"][0]["replaced"] == "2,000 of 2,000 (100%)"
    path = scene.home.serving / FILE_NAME
    for number in range(29, 33):
        path.rename(path.with_name(f"answers-{number:06d}.jsonl"))
        told.answers(200, gbdt=10)
    monkeypatch.setattr(answers_seen, "READ_BYTES", path.stat().st_size // 2)
    told.clock.advance(5.0)
    feed.read_disk()
    assert feed._from_disk["incidents"][0]["replaced"].startswith("at least ")
    assert 50 < len(feed._answers._counts) <= 100, "the others were passed over, and that is said"


def test_how_many_saw_an_incident_that_lies_too_far_back_is_not_guessed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(scene.home.root)
    told.plan("degraded")
    told.answers(20, gbdt=10)
    told.plan("serving")
    told.clock.advance(3600.0)
    told.answers(20, primary=10)
    monkeypatch.setattr(answers_seen, "READ_BYTES", 1000)
    feed = Feed(scene.home, status=scene.status, rollout=scene.rollout, clock=told.clock)
    assert [one["replaced"] for one in from_disk(feed)["incidents"]] == ["see its report"]


def test_what_an_event_quotes_at_length_is_not_held(scene: Scene) -> None:
    ledger = Ledger(scene.home.ledger, ManualClock(), side=Side.SERVING, subject="g")
    ledger.record("stage_move", "so", epoch=3, stage="degraded", release="r1", texts=["x" * 1000] * 50, long="y" * 9000)
    feed = feed_of(scene)
    (shown,) = from_disk(feed)["incidents"]
    assert (shown["name"], shown["stage"]) == ("incident-3", "degraded")
    assert len(feed._events[0].to_line()) < 1000


def test_a_search_goes_well_while_events_come(scene: Scene) -> None:
    feed, over = feed_of(scene), threading.Event()
    ledger = Ledger(scene.home.ledger, SystemClock(), side=Side.SERVING, subject="g")
    for _ in range(4000):
        ledger.record("trip", "so")
    feed.read_disk()
    event = feed._events[0]

    def come() -> None:
        while not over.wait(0.0001):
            feed._hold(event)

    writer = threading.Thread(target=come)
    writer.start()
    try:
        for _ in range(3):
            assert feed.search("nowhere", None) == []
    finally:
        over.set()
        writer.join()
