"""Two ranks that are told to leave, both or one alone, in a look or while a checkpoint is written: one step for all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import PreemptedError
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Event, read_ledger
from failsoft.training.checkpoints.judged import judged, metrics_of
from failsoft.training.survival.notice import EXIT_PREEMPTED, NoticePolicy
from tests.rank_pair import ends_of_two
from tests.training.told_ranks import LOOKS_EVERY, PLAN, WHO, Judged, look_at
from tests.training.toys import toy_loop

Told = dict[str, list[dict[str, Any]]]
AT_ITS_STEP = [LOOKS_EVERY, 2 * LOOKS_EVERY]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("told")


@pytest.fixture(scope="module")
def told(folder: Path) -> Told:
    """By scene, what each rank ended with. Both processes end by the status of the last scene."""
    codes, outputs = ends_of_two("tests.training.told_ranks", str(folder))
    assert codes == [EXIT_PREEMPTED, EXIT_PREEMPTED]
    lines = [json.loads(line) for output in outputs for line in output.splitlines()]
    return {line["scene"]: [one for one in lines if one["scene"] == line["scene"]] for line in lines}


def events(folder: Path, kind: str) -> list[Event]:
    return [event for event in read_ledger(folder / "ledger.jsonl").events if event.kind == kind]


def positions(folder: Path) -> list[int]:
    shelf = ArtifactStore(folder / "checkpoints", SystemClock(), kind="checkpoint").listing()
    return [int(one.manifest.meta["position"]) for one in shelf]


def left_in_time(folder: Path, seen: list[dict[str, Any]], who: str) -> Event:
    """From the first signal to the last word; that every rank was told that should be."""
    (left,) = events(folder, "preempted")
    assert [len(one["told_s"]) for one in seen] == [int(rank in WHO[who]) for rank in range(2)]
    assert 0.0 <= left.at_s - min(told_s for one in seen for told_s in one["told_s"]) < NoticePolicy().grace_s
    assert events(folder, "notice_missed") == []
    return left


@pytest.mark.parametrize("who", WHO)
def test_told_in_a_look_all_ranks_save_the_very_step_of_the_look_and_leave_in_time(
    told: Told, folder: Path, who: str
) -> None:
    first, second = told[f"look {who}"]
    assert (first["position"], first["exit"]) == (LOOKS_EVERY, EXIT_PREEMPTED)
    assert (second["position"], second["exit"]) == (LOOKS_EVERY, EXIT_PREEMPTED)
    (left,) = events(folder / f"alone {who}", "preempted")
    assert (left.data["position"], left.data["saved"]) == (LOOKS_EVERY, True)
    left_in_time(folder / f"alone {who}", [first, second], who)


@pytest.mark.parametrize("who", WHO)
def test_the_look_is_made_up_by_two_ranks_which_end_bit_for_bit_as_the_undisturbed_ones(
    told: Told, folder: Path, who: str
) -> None:
    assert [one["exit"] for one in told[f"again {who}"]] == [0, 0]
    assert [one["weights"] for one in told[f"again {who}"]] == [one["weights"] for one in told["undisturbed"]]
    found, whole = events(folder / f"look {who}", "validated"), events(folder / "undisturbed", "validated")
    assert [one.data["step"] for one in found] == [one.data["step"] for one in whole] == list(range(3, 25, 3))
    assert [one.data["metrics"] for one in found[1:]] == [one.data["metrics"] for one in whole[1:]]
    assert [one.data["position"] for one in events(folder / f"look {who}", "run_started")] == [0, LOOKS_EVERY]


@pytest.mark.usefixtures("told")
def test_one_rank_alone_finds_what_two_find_and_it_counts_for_the_checkpoint(folder: Path) -> None:
    """Both look at what the checkpoint holds; where the ranks' batch statistics had drifted apart, at those of one."""
    place = folder / "alone rank 1"
    loop = look_at(toy_loop(place, plan=PLAN, clock=SystemClock()), Judged())
    loop.told = lambda: "enough" if loop.state.position == LOOKS_EVERY + 1 else None
    with pytest.raises(PreemptedError, match="enough"):
        loop.run()
    (found,) = (event.data["metrics"] for event in events(place, "validated"))
    (by_two, *_) = (event.data["metrics"] for event in events(folder / "look rank 1", "validated"))
    assert found == pytest.approx(by_two, rel=1e-6)
    later, (owed, *_) = judged(loop.checkpoints.store.root), loop.checkpoints.store.listing()
    assert int(owed.manifest.meta["position"]) == LOOKS_EVERY
    assert metrics_of(owed.manifest, later)["val_loss"] == found["val_loss"]


@pytest.mark.parametrize("who", WHO)
def test_told_while_a_checkpoint_is_being_written_all_ranks_save_the_same_later_step_and_leave_in_time(
    told: Told, folder: Path, who: str
) -> None:
    first, second = told[f"writer {who}"]
    assert first["busy"] == [True]
    assert (first["position"], second["position"]) == (10, 10)
    assert (first["exit"], second["exit"]) == (EXIT_PREEMPTED, EXIT_PREEMPTED)
    left = left_in_time(folder / f"writer {who}", [first, second], who)
    assert (left.data["position"], left.data["saved"]) == (10, True)
    assert positions(folder / f"writer {who}") == [8, 10]


def test_asked_on_one_rank_all_save_the_same_next_step_once_and_go_on_also_while_the_writer_is_busy(
    told: Told, folder: Path
) -> None:
    first, second = told["asked"]
    assert (first["position"], second["position"]) == (24, 24)
    assert [one["weights"] for one in told["asked"]] == [one["weights"] for one in told["undisturbed"]]
    served = [(one.data["position"], one.data["requests"]) for one in events(folder / "asked", "save_asked")]
    assert served == [(3, ["first"]), (4, ["second"]), (18, ["both"])]
    replaced = {int(one.data["position"]) for one in events(folder / "asked", "checkpoint_replaced")}
    assert {3, 24} <= set(positions(folder / "asked"))
    assert {4, 18} <= replaced | set(positions(folder / "asked"))  # a newer one takes the place of one that waits
