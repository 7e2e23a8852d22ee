"""What is found in folders, where a phase is, and how far weights are apart."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from failsoft.drills.fault import DrillFault, Phase, PlannedFault
from failsoft.drills.training.attempt import Attempt
from failsoft.drills.training.command import TrainCommand
from failsoft.drills.training.damage import damage
from failsoft.drills.training.end_look import distance, end_state, finite
from failsoft.drills.training.folder_look import newest_large, torn_files
from failsoft.drills.training.inside.marks import Marks
from failsoft.drills.training.inside.orders import Event, Trigger
from failsoft.drills.training.points import Observed, observed, point_of
from failsoft.drills.training.seen import what_was_seen
from failsoft.errors import ConfigError

ONES = {"w": torch.ones(4, 4)}


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_whole_files_are_not_torn_and_cut_ones_are(tmp_path: Path) -> None:
    torch.save(ONES, tmp_path / "state.pt")
    save_file(ONES, tmp_path / "state.safetensors")
    (tmp_path / "state.json").write_text(json.dumps({"step": 3}), "utf-8")
    (tmp_path / "log.txt").write_text("half a li", "utf-8")
    assert torn_files(tmp_path) == []
    for name in ("state.pt", "state.safetensors", "state.json"):
        cut(tmp_path / name)
    assert [line.partition(":")[0] for line in torn_files(tmp_path)] == ["state.json", "state.pt", "state.safetensors"]
    assert torn_files(tmp_path, known={tmp_path / "state.pt"})[0].startswith("state.json")


@pytest.mark.parametrize("name", [".hidden/state.pt", "state.pt.tmp", "quarantine/state.pt"])
def test_what_no_reader_opens_may_be_torn(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    torch.save(ONES, path)
    cut(path)
    assert torn_files(tmp_path) == []


def test_an_empty_archive_and_a_changed_one_are_torn_and_an_old_pickle_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "empty.pt").touch()
    (tmp_path / "old.pt").write_bytes(b"\x80\x02}q\x00.")
    torch.save({"w": torch.zeros(4096)}, tmp_path / "flipped.pt")
    damage(tmp_path / "flipped.pt", PlannedFault(kind=DrillFault.FLIPPED_CHECKPOINT, phase=Phase.TRAINING))
    assert [line.partition(":")[0] for line in torn_files(tmp_path)] == ["empty.pt", "flipped.pt"]


@pytest.mark.parametrize(
    "kind", [DrillFault.TORN_CHECKPOINT, DrillFault.FLIPPED_CHECKPOINT, DrillFault.MISSING_CHECKPOINT]
)
def test_damage_changes_the_file_and_not_its_time_and_the_same_seed_the_same(tmp_path: Path, kind: DrillFault) -> None:
    left = []
    for name in ("one", "two"):
        path = tmp_path / name
        path.write_bytes(bytes(range(256)))
        os.utime(path, ns=(1, 2))
        assert name in damage(path, PlannedFault(kind=kind, phase=Phase.TRAINING, seed=5))
        left.append(path.read_bytes() if path.exists() else None)
        assert left[0] != bytes(range(256))
        assert not path.exists() or path.stat().st_mtime_ns == 2
    assert left[0] == left[1]


def test_the_checkpoint_of_a_restart_is_the_newest_large_file_where_saves_were_seen(tmp_path: Path) -> None:
    for age, name in enumerate(["ckpt/step-20/w.pt", "ckpt/step-10/w.pt", "record/big.pt", "note.json"]):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * (4 if name == "note.json" else 400))
        os.utime(path, ns=(0, 100 - age))
    os.utime(tmp_path / "record/big.pt", ns=(0, 999))
    assert newest_large(tmp_path) == tmp_path / "record/big.pt"
    assert newest_large(tmp_path, below="ckpt/step-#") == tmp_path / "ckpt/step-20/w.pt"
    assert newest_large(tmp_path, "step-10/*.pt") == tmp_path / "ckpt/step-10/w.pt"
    assert newest_large(tmp_path / "nothing") is None


SAVES = tuple({"key": "rename ckpt-#", "bytes": 900, "backwards": 10 * n, "what": "save"} for n in range(5))
MET = Observed(backwards=100, looks=4, saves=(*SAVES, {"key": "open log", "bytes": 5, "backwards": 3}), processes=1)


def planned(phase: Phase, at: float = 0.5) -> PlannedFault:
    return PlannedFault(kind=DrillFault.KILL_WORKER, phase=phase, at=at)


def test_each_phase_is_a_point_that_the_quiet_run_has_met() -> None:
    assert point_of(planned(Phase.START), MET) == Trigger(event=Event.START)
    assert point_of(planned(Phase.FIRST_STEP), MET) == Trigger(event=Event.FORWARD)
    assert point_of(planned(Phase.TRAINING), MET) == Trigger(event=Event.FORWARD, count=60)
    assert point_of(planned(Phase.VALIDATION, 1.0), MET) == Trigger(event=Event.LOOK, count=3)
    assert point_of(planned(Phase.SAVING), MET) == Trigger(event=Event.SAVE, count=1, key="rename ckpt-#")
    assert point_of(planned(Phase.SAVING, 1.0), MET) == Trigger(event=Event.SAVE, count=4, key="rename ckpt-#")
    assert point_of(planned(Phase.LOAD), MET) is None


def test_a_phase_that_was_not_met_is_no_point() -> None:
    bare = Observed(backwards=1, looks=0, saves=(), processes=1)
    assert all(point_of(planned(phase), bare) is None for phase in (Phase.TRAINING, Phase.VALIDATION, Phase.SAVING))
    nothing = observed([], {})
    assert nothing.save_key is None
    assert point_of(planned(Phase.FIRST_STEP), nothing) is None


def test_distance_is_relative_and_what_can_not_be_compared_is_infinitely_far() -> None:
    assert distance(ONES, ONES) == 0.0
    assert distance({"w": torch.ones(4, 4) * 1.5}, ONES) == pytest.approx(0.5)
    assert distance({"w": ONES["w"] * math.nan}, ONES) == math.inf
    assert distance({"w": torch.ones(2)}, ONES) == math.inf
    assert distance({"v": torch.ones(4, 4)}, ONES) == math.inf
    assert distance({"step": torch.tensor(1)}, {"step": torch.tensor(2)}) == math.inf
    assert distance(ONES | {"result a/b": torch.ones(1)}, ONES) == math.inf
    assert not finite({"w": torch.tensor([math.inf])})


def test_named_results_belong_to_the_end_state(tmp_path: Path) -> None:
    (tmp_path / "marks").mkdir()
    torch.save({"net": ONES, "step": 3}, tmp_path / "model.pt")
    (tmp_path / "scores.txt").write_text("0.5", "utf-8")
    found = end_state(Marks(tmp_path / "marks"), tmp_path, ["model.pt", "scores.txt", "absent.pt"])
    assert found is not None
    assert sorted(found) == ["result model.pt//net/w", "result scores.txt/bytes"]
    assert end_state(Marks(tmp_path / "marks"), tmp_path, []) is None


def test_what_was_seen_names_signals_and_last_words(tmp_path: Path) -> None:
    attempt = Attempt(status=-9, seconds=1.0, backwards=3, passes=3, hung=False, left=(), last_words="step 3")
    hung = Attempt(status=-9, seconds=1.0, backwards=3, passes=3, hung=True, left=(), last_words="")
    seen = what_was_seen(tmp_path, [attempt, hung], [])
    assert seen == ("start 1 was ended by SIGKILL: step 3", "start 2 stood still until it was ended by hand")


def test_a_command_names_exactly_one_thing_that_is_there(tmp_path: Path) -> None:
    script = tmp_path / "own.py"
    script.touch()
    words = TrainCommand(script=script, arguments=("--out", "{run}/x")).words(tmp_path)
    assert words[1:] == [str(script), "--out", f"{tmp_path}/x"]
    for wrong in (
        {},
        {"script": script, "module": "x"},
        {"script": tmp_path / "no.py"},
        {"program": ("no-such-tool",)},
    ):
        with pytest.raises(ConfigError):
            TrainCommand(**wrong)
