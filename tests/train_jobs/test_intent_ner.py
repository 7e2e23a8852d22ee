from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from failsoft.errors import ConfigError, NoProgressError, PreemptedError
from failsoft.training.checkpoints.checkpoint import deliver_here
from failsoft.training.escalation import Poisoned
from failsoft.training.ranks import SoloRank
from failsoft.training.relief_policy import ReliefPolicy
from failsoft.training.snapshots.snapshot_place import SnapshotPlace
from tests.conftest import ROOT
from train_jobs.build import build_loop
from train_jobs.config import JobConfig, Preset
from train_jobs.intent_ner import main
from train_jobs.workload import prepare


def test_importing_the_job_loads_neither_ray_nor_torch() -> None:
    code = "import sys, train_jobs.intent_ner; sys.exit('ray' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--workers", "0"], "workers is 0"),
        (["--workers", "3:1"], "write the smaller number first"),
        (["--workers", "many"], "write a number like 4"),
        (["--data", "/no/such/folder"], "which is no folder"),
        (["--faults", "/no/such/plan.json"], "can't be read"),
        (["--faults", '[{"kind": "earthquake", "position": 1}]'], "not a fault plan"),
        (["--faults", '[{"kind": "nan_batch", "position": 1, "rank": 1}]'], "it would never strike"),
    ],
)
def test_a_wrong_argument_ends_in_a_sentence_and_not_in_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: list[str], said: str
) -> None:
    assert main(["--home", str(tmp_path), "--run", "r", *wrong]) == 1
    assert said in " ".join(capsys.readouterr().err.split())


_GLOO = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer"


@pytest.mark.parametrize(
    ("error", "status"), [(NoProgressError(_GLOO), 4), (PreemptedError(_GLOO), 143), (OSError(5, _GLOO), 1)]
)
def test_words_in_brackets_as_gloo_uses_them_change_neither_the_sentence_nor_the_exit_status(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    status: int,
) -> None:
    def run_nothing(_config: JobConfig, *, say: Callable[[str], object], **_options: object) -> None:
        say(_GLOO)
        raise error

    monkeypatch.setattr("train_jobs.intent_ner.supervise_job", run_nothing)
    assert main(["--home", str(tmp_path), "--run", "r"]) == status
    shown = capsys.readouterr()
    assert _GLOO in " ".join(shown.out.split())
    assert _GLOO in shown.err


@pytest.mark.parametrize("run", ["", "a/b", "..", ".hidden"])
def test_a_run_name_that_leaves_its_folder_is_refused(run: str) -> None:
    with pytest.raises(ConfigError, match="it names a folder"):
        JobConfig(home=Path(), run=run)


def test_the_command_line_says_where_snapshots_lie_and_what_becomes_of_a_poisoned_stretch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[JobConfig] = []

    def run_nothing(config: JobConfig, **_options: object) -> None:
        asked.append(config)
        raise ConfigError("nothing is run here")

    monkeypatch.setattr("train_jobs.intent_ner.supervise_job", run_nothing)
    words = ["--snapshot-place", "sharded", "--poisoned", "replay", "--preset", "demo", "--max-batches", "9"]
    main(["--home", str(tmp_path), "--run", "r", *words])
    prepare(asked[0])
    plan = build_loop(asked[0], SoloRank(), deliver_here).plan
    assert (plan.snapshots.where, plan.poisoned) == (SnapshotPlace.SHARDED, Poisoned.REPLAY)


def test_a_job_may_ask_for_a_lower_rate_after_a_refused_batch_and_its_guard_has_it(tmp_path: Path) -> None:
    relief = ReliefPolicy(factor_per_refusal=0.25, recovery_steps=7)
    config = JobConfig(home=tmp_path, run="r", preset=Preset.DEMO, max_batches=9, relief=relief)
    sent = TypeAdapter(JobConfig).validate_json(TypeAdapter(JobConfig).dump_json(config))  # as its driver gets it
    prepare(sent)
    guard = build_loop(sent, SoloRank(), deliver_here).guard
    guard.relief.refused()
    assert (guard.relief.policy, guard.relief.factor) == (relief, 0.25)
