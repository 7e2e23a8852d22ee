"""Trackers are told of a run by what it leaves behind, under the names of the metric table."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from failsoft.artifacts.home import Home
from failsoft.errors import ConfigError
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import read_ledger
from failsoft.training.accounting.run_metrics import SEEN_NAME
from failsoft.training.trackers.run_watch import TOLD_NAME
from failsoft.training.trackers.tracker import Ending, Tracker
from failsoft.training.trackers.tracking import tracked
from tests.training.trackers.fakes import Raises, Remembers, Story, facts
from train_jobs.config import JobConfig
from train_jobs.exporting import facts_of


def follow(home: Path, open_it: Callable[[], Tracker], during: Callable[[Story], object]) -> None:
    """A driver's block, in which a run does something."""
    story = Story(home)
    with tracked(facts(home), story.ledger, [("board", open_it)], SystemClock(), every_s=60.0, end_within_s=60.0):
        during(story)


def test_numbers_events_and_the_end_of_a_run_arrive(tmp_path: Path) -> None:
    tracker = Remembers()
    follow(tmp_path, lambda: tracker, Story.whole)
    last = tracker.last
    assert last["failsoft_training_loss"] == 0.75
    assert last["failsoft_training_applied_steps"] == 40
    assert last["failsoft_training_refused_batches_total/loss"] == 1.0
    assert (last["failsoft_training_rollbacks_total"], last["failsoft_training_undone_steps_total"]) == (1.0, 4.0)
    assert (16, {"val_loss": 0.25, "val_accuracy": 0.5}) in tracker.told
    kinds = [(step, kind) for step, kind, _ in tracker.events]
    assert kinds == [(0, "run_started"), (10, "batch_refused"), (10, "rolled_back"), (40, "run_finished")]
    assert tracker.endings == [Ending.FINISHED]
    assert tracker.begun == [facts(tmp_path)]
    assert "failsoft_training_progress_age_seconds" not in last


def test_the_next_driver_tells_each_event_once_and_counts_over_all(tmp_path: Path) -> None:
    first, second = Remembers(), Remembers()
    follow(tmp_path, lambda: first, lambda story: story.tells("rolled_back", "one", step=3, undone_steps=2))
    follow(tmp_path, lambda: second, lambda story: story.tells("rolled_back", "two", step=9, undone_steps=5))
    assert [why for _, _, why in first.events] == ["one"]
    assert [why for _, _, why in second.events] == ["two"]
    assert second.last["failsoft_training_undone_steps_total"] == 7.0
    assert (first.endings, second.endings) == ([Ending.AWAY], [Ending.AWAY])
    assert (tmp_path / "runs/night" / TOLD_NAME).read_text("utf-8") == "2"


def test_a_run_that_stopped_says_so_to_its_trackers(tmp_path: Path) -> None:
    tracker = Remembers()
    follow(tmp_path, lambda: tracker, lambda story: story.tells("run_stopped", "the data is ill", step=3))
    assert tracker.endings == [Ending.STOPPED]


def test_what_the_exporter_remembers_of_the_run_is_left_alone(tmp_path: Path) -> None:
    follow(tmp_path, Remembers, Story.whole)
    assert not (tmp_path / "runs/night" / SEEN_NAME).exists()


def test_a_tracker_that_fails_is_told_in_the_ledger_and_ends_nothing(tmp_path: Path) -> None:
    follow(tmp_path, lambda: Raises(times=9), Story.whole)
    told = [event for event in read_ledger(tmp_path / "ledger.jsonl").events if event.kind == "callback_failed"]
    assert {event.data["name"] for event in told} == {"tracker board"}
    assert told[0].why == "ConnectionError: the tracking server is away"
    assert "messages never reached it, after" in told[-1].why


def test_a_run_ends_well_when_the_system_has_no_thread_left_for_its_trackers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    tracker = Remembers()
    story = Story(tmp_path)
    with (
        monkeypatch.context() as patched,
        tracked(facts(tmp_path), story.ledger, [("board", lambda: tracker)], SystemClock(), end_within_s=60.0),
    ):
        story.whole()
        patched.setattr(threading.Thread, "start", none_left)
    assert tracker.endings == [Ending.FINISHED]


def test_an_error_of_the_run_passes_through_with_trackers_told(tmp_path: Path) -> None:
    tracker = Remembers()

    def fails(_story: Story) -> None:
        raise KeyError("of the run")

    with pytest.raises(KeyError, match="of the run"):
        follow(tmp_path, lambda: tracker, fails)
    assert tracker.endings == [Ending.AWAY]


def test_a_run_without_trackers_starts_no_thread_and_writes_nothing(tmp_path: Path) -> None:
    with tracked(facts(tmp_path), tmp_path / "ledger.jsonl", [], SystemClock()):
        pass
    assert list(tmp_path.iterdir()) == []


def test_what_was_asked_for_becomes_flat_settings_without_passwords(tmp_path: Path) -> None:
    config = JobConfig(
        home=tmp_path, run="first", track=("mlflow:http://me:secret@host",), workers=(1, 4), keep_every_hours=None
    )
    told = facts_of(config, Home.find(tmp_path))
    assert (told.config["seed"], told.config["workers"], told.config["backoff.first_s"]) == ("7", "[1, 4]", "10.0")
    assert "secret" not in json.dumps(dict(told.config))
    assert "keep_every_hours" not in told.config
    other = facts_of(JobConfig(home=tmp_path / "other", run="first"), Home.find(tmp_path / "other"))
    assert other.identity != told.identity
    assert told.identity.startswith("first-")


def test_a_config_names_each_tracker_once_and_only_such_as_there_are(tmp_path: Path) -> None:
    for track, why in ((("comet:x",), "names no tracker"), (("wandb:x", "wandb:x"), "name each tracker once")):
        with pytest.raises(ConfigError, match=why):
            JobConfig(home=tmp_path, run="first", track=track)
