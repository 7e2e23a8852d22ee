from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from failsoft.errors import PlanOvertakenError, PlanStoreError
from failsoft.health.sequential import Tally
from failsoft.serving.plan.planstore import PlanStore, RolloutState
from failsoft.serving.rollout import transitions
from failsoft.serving.rollout.evidence import Counts

FIRST = transitions.first_state("r1")
FULL = replace(
    transitions.forced(transitions.tripped(FIRST, rest_s=61.5, why="ill"), for_s=30.0, why="ordered"),
    order="ordered by me for 60 s: drill",
    proven=False,
    counts=Counts(in_stage=Tally(bad=1, total=9), on_trial=Tally(bad=2, total=99), active_s=12.5),
    rejected={"r0": "fell 3 times"},
)


def numbered(epoch: int) -> RolloutState:
    return replace(FIRST, plan=replace(FIRST.plan, epoch=epoch))


def stored(folder: Path) -> RolloutState:
    loaded = PlanStore(folder).load()
    assert loaded is not None
    assert loaded.damaged is None
    return loaded.state


def newest_file(folder: Path) -> Path:
    return max(folder.glob("plan-?.json"), key=lambda path: int(json.loads(path.read_bytes())["write"]))


def test_nothing_stored_is_no_plan(tmp_path: Path) -> None:
    assert PlanStore(tmp_path / "not made yet").load() is None


def test_everything_survives_storage(tmp_path: Path) -> None:
    PlanStore(tmp_path).save(FULL)
    assert stored(tmp_path) == FULL


def test_a_state_that_a_later_version_wrote_is_read_without_what_it_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = FULL.as_json() | {"added_later": [1, 2]}
    added["plan"] |= {"added_to_the_plan": 1.5}
    monkeypatch.setattr(RolloutState, "as_json", lambda _state: added)
    PlanStore(tmp_path).save(FULL)
    monkeypatch.undo()
    assert "added_later" in newest_file(tmp_path).read_text("utf-8")
    assert stored(tmp_path) == FULL


def with_a_later_stage(monkeypatch: pytest.MonkeyPatch, store: PlanStore, state: RolloutState) -> None:
    body = state.as_json()
    body["plan"]["stage"] = "a_later_stage"
    with monkeypatch.context() as patched:
        patched.setattr(RolloutState, "as_json", lambda _state: body)
        store.save(state)


def test_a_plan_that_this_version_cannot_read_is_not_written_over_by_whoever_led_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, later = PlanStore(tmp_path), PlanStore(tmp_path)
    before.save(numbered(1))
    later.load()
    with_a_later_stage(monkeypatch, later, numbered(2))
    with pytest.raises(PlanOvertakenError, match="another controller"):
        before.save(numbered(2))
    later.save(numbered(3))


def test_whoever_starts_on_a_plan_that_it_cannot_read_goes_on_from_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PlanStore(tmp_path)
    store.save(numbered(1))
    with_a_later_stage(monkeypatch, store, numbered(2))
    earlier = PlanStore(tmp_path)
    loaded = earlier.load()
    assert loaded is not None
    assert loaded.state == numbered(1)
    assert "a_later_stage" in str(loaded.damaged)
    earlier.save(numbered(3))
    loaded = PlanStore(tmp_path).load()
    assert loaded is not None
    assert loaded.state == numbered(3)
    with pytest.raises(PlanOvertakenError):
        store.save(numbered(4))
    earlier.save(numbered(4))
    assert stored(tmp_path) == numbered(4)


def in_format(folder: Path, made_in: int) -> None:
    """The newest file as another failsoft would have written it: what it means by a digest, nobody knows here."""
    path = newest_file(folder)
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"format": made_in, "digest": "of its own"}), "utf-8")


def test_a_plan_of_a_later_format_is_called_that_and_not_damage_and_the_one_before_is_gone_on_from(
    tmp_path: Path,
) -> None:
    store = PlanStore(tmp_path)
    store.save(numbered(1))
    store.save(numbered(2))
    in_format(tmp_path, 2)
    earlier = PlanStore(tmp_path)
    loaded = earlier.load()
    assert loaded is not None
    assert loaded.state == numbered(1)
    assert "plan-0.json was written by a newer failsoft (plan format 2, this one reads 1)" in str(loaded.damaged)
    assert "damaged" not in str(loaded.damaged)
    earlier.save(numbered(3))
    earlier.save(numbered(4))
    assert stored(tmp_path) == numbered(4)


def test_where_only_plans_of_a_later_format_are_left_the_mend_is_the_newer_failsoft(tmp_path: Path) -> None:
    PlanStore(tmp_path).save(FIRST)
    in_format(tmp_path, 7)
    with pytest.raises(
        PlanStoreError, match=r"plan format 7, this one reads 1.*Start that newer failsoft again, or move"
    ):
        PlanStore(tmp_path).load()


def test_a_plan_of_a_later_format_is_not_written_over_by_whoever_led_before(tmp_path: Path) -> None:
    """While an app is upgraded both controllers live for a moment."""
    before, later = PlanStore(tmp_path), PlanStore(tmp_path)
    before.save(numbered(1))
    later.load()
    later.save(numbered(2))
    in_format(tmp_path, 2)
    with pytest.raises(PlanOvertakenError, match="another controller"):
        before.save(numbered(2))


@pytest.mark.parametrize("made_in", [0, -1, "2", 2.5, None])
def test_a_format_that_none_ever_had_is_damage(tmp_path: Path, made_in: object) -> None:
    PlanStore(tmp_path).save(FIRST)
    path = newest_file(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"format": made_in}), "utf-8")
    with pytest.raises(PlanStoreError, match=r"is damaged.*can read; gateways keep the plan they have\. Move these"):
        PlanStore(tmp_path).load()


def test_the_last_of_many_writes_is_the_truth_and_only_two_files_stay(tmp_path: Path) -> None:
    store = PlanStore(tmp_path)
    for epoch in range(1, 12):
        store.save(numbered(epoch))
        assert stored(tmp_path).plan.epoch == epoch
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan-0.json", "plan-1.json"]


def test_a_new_process_goes_on_with_the_write_numbers(tmp_path: Path) -> None:
    for epoch in range(1, 6):
        store = PlanStore(tmp_path)
        store.load()
        store.save(numbered(epoch))
    assert stored(tmp_path).plan.epoch == 5


def test_a_damaged_newest_file_leaves_the_one_before_and_says_so(tmp_path: Path) -> None:
    store = PlanStore(tmp_path)
    store.save(numbered(1))
    store.save(numbered(2))
    content = newest_file(tmp_path).read_bytes()
    for damage in (
        b"",
        content[: len(content) // 2],
        content.replace(b'"epoch": 2', b'"epoch": 9'),
        b"\xff\x00",
        b"[]",
    ):
        newest = tmp_path / "plan-0.json"
        newest.write_bytes(damage)
        loaded = PlanStore(tmp_path).load()
        assert loaded is not None
        assert loaded.state.plan.epoch == 1
        assert "plan-0.json" in str(loaded.damaged)


def test_no_valid_plan_at_all_is_an_error_with_the_mend(tmp_path: Path) -> None:
    PlanStore(tmp_path).save(FIRST)
    newest_file(tmp_path).write_bytes(b"{")
    with pytest.raises(PlanStoreError, match="Move these files away"):
        PlanStore(tmp_path).load()


def test_storage_that_refuses_keeps_the_stored_plan_whole(tmp_path: Path) -> None:
    folder = tmp_path / "serving"
    store = PlanStore(folder)
    store.save(numbered(1))
    store.save(numbered(2))
    for slot in folder.glob("plan-?.json"):  # root ignores modes: a folder in a file's place refuses root too
        slot.with_suffix(".kept").write_bytes(slot.read_bytes())
    (folder / "plan-1.json").unlink()
    (folder / "plan-1.json").mkdir()
    with pytest.raises(PlanStoreError, match="stays in force"):
        store.save(numbered(3))
    (folder / "plan-1.json").rmdir()
    assert stored(folder).plan.epoch == 2
    assert not list(folder.glob(".aside-*"))
    store.save(numbered(3))
    assert stored(folder).plan.epoch == 3


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes into read-only folders")
def test_a_read_only_folder_keeps_the_stored_plan(tmp_path: Path) -> None:
    store = PlanStore(tmp_path)
    store.save(numbered(1))
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(PlanStoreError):
            store.save(numbered(2))
        assert stored(tmp_path).plan.epoch == 1
    finally:
        tmp_path.chmod(0o700)


def test_no_point_in_time_is_stored(tmp_path: Path) -> None:
    PlanStore(tmp_path).save(FULL)
    body = newest_file(tmp_path).read_text("utf-8")
    assert not [name for name in ("at_s", "since_s", "until", "opened", "_at") if name in body]
