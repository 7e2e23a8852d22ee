"""A run that is asked to save now and goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from failsoft.artifacts.home import Home
from failsoft.cli import main as _main  # noqa: F401 -- hangs every command on the app
from failsoft.cli.app import app
from failsoft.errors import ArtifactMissingError, ConfigError, TrainingError
from failsoft.health.clock import ManualClock, SystemClock
from failsoft.health.ledger import Event, Ledger, Side, read_ledger
from failsoft.training.loop import TrainLoop
from failsoft.training.progress import Phase, Progress, ProgressFile
from failsoft.training.ranks import SoloRank
from failsoft.training.survival.agreement import NoticedRanks
from failsoft.training.survival.notice import Deadline, Notice, NoticePolicy, passing_on
from failsoft.training.survival.saving_asked import (
    Wish,
    Wishes,
    drop_wish,
    read_wishes,
    withdraw_wishes,
)
from tests.training.toys import same, toy_loop, weights_of


def told(folder: Path, kind: str) -> list[Event]:
    return [event for event in read_ledger(folder / "ledger.jsonl").events if event.kind == kind]


def asked_at(folder: Path, asks: dict[int, list[Wish]]) -> TrainLoop:
    """A run that is asked for these before the batches at these positions."""
    notice = Notice()
    ranks = NoticedRanks(SoloRank(), notice)
    loop = toy_loop(folder, ranks=ranks)

    def told_to() -> str | None:
        for wish in asks.get(loop.state.position, []):
            notice.wishes.give(wish)
        return ranks.told()

    loop.told = told_to
    return loop


def positions(loop: TrainLoop) -> list[int]:
    return [int(event.data["position"]) for event in told(loop.desk.folder, "checkpoint_published")]


A, B = Wish(id="a", why="before the weekend"), Wish(id="b", why="by hand")


def test_it_saves_before_the_next_batch_once_for_each_request_and_ends_as_the_run_that_was_not_asked(
    tmp_path: Path,
) -> None:
    whole = toy_loop(tmp_path / "whole")
    whole.run()
    loop = asked_at(tmp_path / "asked", {0: [A], 5: [A, B], 6: [B]})
    loop.run()
    assert positions(loop) == [0, 5, 13, 21, 24]  # eight steps after each
    asked = told(tmp_path / "asked", "save_asked")
    assert [(event.data["position"], event.data["requests"]) for event in asked] == [(0, ["a"]), (5, ["b"])]
    assert same(weights_of(loop.state.model), weights_of(whole.state.model))


def test_two_requests_at_the_same_step_are_one_checkpoint(tmp_path: Path) -> None:
    loop = asked_at(tmp_path, {5: [A, B]})
    loop.run()
    assert positions(loop) == [5, 13, 21, 24]
    (asked,) = told(tmp_path, "save_asked")
    assert (asked.why, asked.data["requests"]) == ("before the weekend; by hand", ["a", "b"])


def test_a_step_that_is_saved_already_is_not_saved_again(tmp_path: Path) -> None:
    loop = asked_at(tmp_path, {8: [A]})
    loop.run()
    assert positions(loop) == [8, 16, 24]
    assert told(tmp_path, "checkpoint_failed") == []


def test_who_is_told_to_leave_as_well_leaves(tmp_path: Path) -> None:
    loop = asked_at(tmp_path, {5: [A]})
    ask = loop.told

    def both() -> str | None:
        ask()
        return "SIGTERM" if loop.state.position == 5 else None

    loop.told = both
    with pytest.raises(TrainingError, match="SIGTERM"):
        loop.run()
    assert positions(loop) == [5]
    assert told(tmp_path, "save_asked") == []


def test_an_ill_state_is_not_saved_for_anybody_and_the_run_goes_back(tmp_path: Path) -> None:
    loop = asked_at(tmp_path, {6: [A]})
    ask = loop.told

    def ill() -> str | None:
        if loop.state.position == 6 and not told(tmp_path, "save_asked"):
            next(loop.state.model.parameters()).data.fill_(float("nan"))
        return ask()

    loop.told = ill
    loop.run()
    assert 6 not in positions(loop)
    assert [event.data["position"] for event in told(tmp_path, "rolled_back")] == [6]
    assert loop.state.position == 24


def test_requests_lie_in_the_runs_folder_until_they_are_served_or_another_run_starts(tmp_path: Path) -> None:
    first, second = drop_wish(tmp_path, "one"), drop_wish(tmp_path, "two")
    (tmp_path / "asked" / "torn.json").write_text("{", "utf-8")
    assert sorted(read_wishes(tmp_path), key=lambda wish: wish.why) == [first, second]
    withdraw_wishes(tmp_path, [first])
    withdraw_wishes(tmp_path, [first])
    assert read_wishes(tmp_path) == [second]
    assert read_wishes(tmp_path / "elsewhere") == []
    with passing_on(Notice(), tmp_path):
        assert read_wishes(tmp_path) == []


def test_a_request_that_another_rank_told_of_first_does_not_count_again_when_its_file_is_seen(tmp_path: Path) -> None:
    wishes = Wishes()
    wish = drop_wish(tmp_path, "one")
    wishes.serve([wish])
    for seen in read_wishes(tmp_path):
        wishes.give(seen)
    assert wishes.open == []


def test_a_look_around_finds_requests_and_they_are_no_notice(tmp_path: Path) -> None:
    notice, clock = Notice(), ManualClock()
    ledger = Ledger(tmp_path / "ledger.jsonl", clock, side=Side.TRAINING, subject="r")
    deadline = Deadline(notice, tmp_path, policy=NoticePolicy(), ledger=ledger, clock=clock)
    wish = drop_wish(tmp_path, "one")
    deadline.look()
    deadline.look()
    assert notice.wishes.open == [wish]
    assert notice.heard is None


class Run:
    """A run as the command finds it: its folder, its progress and its ledger."""

    def __init__(self, root: Path, phase: Phase | None) -> None:
        self.home = Home(root=root)
        self.folder = self.home.run("r")
        self.folder.mkdir(parents=True)
        self.ledger = Ledger(self.home.ledger, SystemClock(), side=Side.TRAINING, subject="r")
        if phase is not None:
            ProgressFile(self.folder, SystemClock()).write(Progress(phase=phase))

    def asked(self, *words: str) -> Result:
        return CliRunner().invoke(app, ["ckpt", "now", "r", *words, "--home", str(self.home.root)])

    def answers(self, monkeypatch: pytest.MonkeyPatch, *events: tuple[str, dict[str, object]]) -> None:
        """The run's next words, once it is asked."""

        def drop(folder: Path, why: str) -> Wish:
            wish = drop_wish(folder, why)
            for kind, data in events:
                self.ledger.record(kind, "why", **(data | ({"requests": [wish.id]} if kind == "save_asked" else {})))
            return wish

        monkeypatch.setattr("failsoft.training.survival.saving_asked.drop_wish", drop)


def test_the_command_leaves_a_request_and_returns(tmp_path: Path) -> None:
    run = Run(tmp_path, Phase.TRAINING)
    done = run.asked("--why", "by hand", "--json")
    assert json.loads(done.stdout) == {"run": "r", "asked": True, "position": None}
    assert [wish.why for wish in read_wishes(run.folder)] == ["by hand"]


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        (Phase.FINISHED, "does not train any more (it is finished)"),
        (Phase.STOPPED, "does not train any more (it is stopped)"),
        (Phase.PUBLISHING, "does not train any more (it is publishing)"),
        (None, "has not begun"),
    ],
)
def test_a_run_that_does_not_train_is_refused_in_words(tmp_path: Path, phase: Phase | None, said: str) -> None:
    run = Run(tmp_path, phase)
    done = run.asked()
    assert isinstance(done.exception, TrainingError)
    assert said in str(done.exception)
    assert read_wishes(run.folder) == []


def test_a_run_that_is_not_there_and_a_wait_that_is_none_are_refused(tmp_path: Path) -> None:
    run = Run(tmp_path, Phase.TRAINING)
    assert isinstance(run.asked("--wait", "-1").exception, ConfigError)
    run.folder.rename(run.folder.with_name("other"))
    assert isinstance(run.asked().exception, ArtifactMissingError)


SAVED: tuple[str, dict[str, object]] = ("save_asked", {"position": 7, "there": False})


@pytest.mark.parametrize(
    "events",
    [
        [SAVED, ("checkpoint_published", {"position": 5}), ("checkpoint_published", {"position": 7})],
        [("checkpoint_published", {"position": 7}), SAVED],
        [("save_asked", {"position": 7, "there": True})],
    ],
)
def test_who_waits_hears_which_batch_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: list[tuple[str, dict[str, object]]]
) -> None:
    run = Run(tmp_path, Phase.TRAINING)
    run.answers(monkeypatch, *events)
    assert json.loads(run.asked("--wait", "5", "--json").stdout)["position"] == 7


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([SAVED, ("checkpoint_failed", {"position": 7})], "could not save batch 7: why"),
        ([SAVED, ("snapshot_withheld", {"position": 7})], "could not save batch 7: why"),
        ([SAVED, ("checkpoint_replaced", {"position": 7})], "is still writing after 0.1 s"),
        ([("run_finished", {"position": 24})], "ended (run_finished: why)"),
        ([("checkpoint_published", {"position": 7})], "has not come to its next step after 0.1 s"),
        ([SAVED], "is still writing after 0.1 s"),
    ],
)
def test_who_waits_hears_why_it_was_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: list[tuple[str, dict[str, object]]], said: str
) -> None:
    run = Run(tmp_path, Phase.TRAINING)
    run.answers(monkeypatch, *events)
    done = run.asked("--wait", "0.1")
    assert isinstance(done.exception, TrainingError)
    assert said in str(done.exception)


def test_a_newer_checkpoint_that_took_the_place_of_the_one_that_was_asked_for_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, Phase.TRAINING)
    run.answers(monkeypatch, SAVED, ("checkpoint_replaced", {"position": 7}), ("checkpoint_published", {"position": 9}))
    assert json.loads(run.asked("--wait", "5", "--json").stdout)["position"] == 9
