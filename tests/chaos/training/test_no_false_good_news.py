"""What would pass for survival and is none: a fault that met nobody, weights that died with their process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from failsoft.drills.fault import DrillFault, Phase, PlannedFault
from failsoft.drills.training.attempt import Attempt, Patience
from failsoft.drills.training.command import TrainCommand
from failsoft.drills.training.end_look import distance, end_state
from failsoft.drills.training.inside.deeds import act
from failsoft.drills.training.inside.marks import Marks, born
from failsoft.drills.training.inside.orders import Event, Orders, Strike, Trigger
from failsoft.drills.training.inside.trouble import DiskTrouble
from failsoft.drills.training.judgement import Allowance, judge
from failsoft.drills.training.launch import ColdStarts
from failsoft.drills.training.script import ScriptOptions, TrainScript
from failsoft.drills.training.trial import Bench, Trial
from failsoft.health.clock import ManualClock, SystemClock
from tests.chaos.training.scripts import CAREFUL, write
from tests.chaos.training.test_judgement import SOUND


@pytest.fixture
def marks(tmp_path: Path) -> Marks:
    folder = tmp_path / "trial" / "marks"
    folder.mkdir(parents=True)
    return Marks(folder)


def strike(kind: DrillFault) -> Strike:
    planned = PlannedFault(kind=kind, phase=Phase.TRAINING)
    return Strike(fault=planned, trigger=Trigger(event=Event.FORWARD), name=f"0-{kind}")


def trial(tmp_path: Path, kind: DrillFault) -> Trial:
    bench = Bench(
        command=TrainCommand(script=write(tmp_path, "")),
        launcher=ColdStarts(tmp_path),
        patience=Patience(still_s=1.0),
        clock=ManualClock(),
    )
    made = Trial(bench=bench, folder=tmp_path / "trial", strikes=(strike(kind),))
    made.run.mkdir(parents=True)
    return made


def test_weights_that_a_start_held_in_memory_when_it_failed_are_no_end_state(marks: Marks, tmp_path: Path) -> None:
    torch.save({"w": torch.ones(3)}, marks.file("end-1.pt"))
    marks.say("end", attempt=1, file="end-1.pt")
    assert end_state(marks, tmp_path, [], start=1) is not None
    assert end_state(marks, tmp_path, [], start=2) is None


def test_a_torn_result_file_is_unlike_a_whole_one_and_ends_no_drill(marks: Marks, tmp_path: Path) -> None:
    torch.save({"w": torch.ones(3)}, tmp_path / "model.pt")
    whole = end_state(marks, tmp_path, ["model.pt"])
    (tmp_path / "model.pt").write_bytes((tmp_path / "model.pt").read_bytes()[:300])
    torn = end_state(marks, tmp_path, ["model.pt"])
    assert whole is not None
    assert torn is not None
    assert distance(torn, whole) == float("inf")


def test_a_full_disk_waits_for_somebody_who_writes_and_says_that_it_was_met(marks: Marks) -> None:
    clock, full = ManualClock(), strike(DrillFault.FULL_DISK)
    trouble = DiskTrouble(marks, Orders(run=marks.folder, marks=marks.folder, strikes=(full,)), clock)
    trouble.begin(full)
    clock.advance(60.0)
    trouble.meet(makes=False)  # a full disk does not mind what is removed
    assert marks.read() == []
    with pytest.raises(OSError, match="No space"):
        trouble.meet()
    assert [mark["what"] for mark in marks.read()] == ["met"]
    clock.advance(2.0)
    trouble.meet()


def test_a_disk_that_nobody_met_has_not_struck(tmp_path: Path, marks: Marks) -> None:
    made = trial(tmp_path, DrillFault.FULL_DISK)
    marks.say("struck", name="0-full-disk")
    assert made.struck == frozenset()
    marks.say("met", name="0-full-disk")
    assert made.struck == {"0-full-disk"}


def test_a_checkpoint_that_was_never_damaged_has_not_been_struck(tmp_path: Path, marks: Marks) -> None:
    made = trial(tmp_path, DrillFault.TORN_CHECKPOINT)
    marks.say("struck", name="0-torn-checkpoint")
    made.attempts.append(Attempt(status=-9, seconds=1.0, backwards=3, passes=3, hung=False, left=(), last_words=""))
    made._look()
    assert made.struck == frozenset()
    (tmp_path / "again").mkdir()
    again = trial(tmp_path / "again", DrillFault.TORN_CHECKPOINT)
    again.marks.folder.mkdir()
    again.marks.say("struck", name="0-torn-checkpoint")
    torch.save(torch.ones(9), again.run / "state.pt")
    again.attempts.append(made.attempts[0])
    again._look()
    assert again.struck == {"0-torn-checkpoint"}


def test_a_stranger_who_got_the_number_of_an_earlier_start_is_not_killed(marks: Marks) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        line = {"what": "main", "pid": stranger.pid, "born": "1"}
        marks.file("marks.jsonl").write_text(json.dumps(line) + "\n", "utf-8")
        before = signal.signal(signal.SIGTERM, lambda *_: None)
        act(strike(DrillFault.SIGTERM), marks)  # nobody it knows is there: it strikes itself
        signal.signal(signal.SIGTERM, before)
        assert stranger.poll() is None
        line["born"] = born(stranger.pid) or ""
        marks.file("marks.jsonl").write_text(json.dumps(line) + "\n", "utf-8")
        act(strike(DrillFault.SIGTERM), marks)
        assert stranger.wait(30.0) == -signal.SIGTERM
    finally:
        stranger.kill()
        stranger.communicate()
    assert born(os.getpid()) is not None


def test_noise_is_named_and_not_called_the_same_weights() -> None:
    found = judge(replace(SOUND, distance=0.02, allowance=Allowance(noise=0.02)))
    assert found.survived is True
    assert "two quiet runs are 0.02 apart" in found.why


@pytest.mark.parametrize(
    ("text", "results", "says"),
    [
        (CAREFUL.replace('"state.pt")', 'pathlib.Path(__file__).with_name("state.pt"))'), (), "one takes 40 steps"),
        (CAREFUL, ("modle.pt",), "no file modle.pt"),
    ],
)
def test_a_script_whose_trials_would_say_nothing_is_told_so_first(
    tmp_path: Path, text: str, results: tuple[str, ...], says: str
) -> None:
    options = ScriptOptions(warm=False, results=results)
    script = TrainScript(TrainCommand(script=write(tmp_path, text)), tmp_path / "drill", SystemClock(), options)
    (tmp_path / "reference").mkdir()
    found = script.reference(tmp_path / "reference")
    script.close()
    assert not found.good
    assert says in found.why


def test_a_file_that_the_quiet_run_leaves_in_lines_of_json_is_not_torn_by_a_fault(tmp_path: Path) -> None:
    logs = CAREFUL.replace("    if number %", "    print('{}', file=open('metrics.json', 'a'))\n    if number %")
    script = TrainScript(
        TrainCommand(script=write(tmp_path, logs)), tmp_path / "drill", SystemClock(), ScriptOptions(warm=False)
    )
    (tmp_path / "reference").mkdir()
    assert script.reference(tmp_path / "reference").good
    found = script.trial([PlannedFault(kind=DrillFault.CLOCK_JUMP, phase=Phase.START)], tmp_path / "one")
    script.close()
    assert found.good, found.why


def test_a_module_is_found_from_where_it_is_typed_and_a_named_file_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "src")
    assert TrainCommand(module="my.train").search == (str(tmp_path), str(tmp_path / "src"))
    words = TrainCommand(program=("env", "python", "train.py", "--name", "a b")).words(tmp_path / "run")
    assert words[1:] == ["python", str(tmp_path / "train.py"), "--name", "a b"]
