"""What TensorBoard, MLflow and Weights & Biases hold of a run, read back by their own readers."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from failsoft.health.clock import SystemClock
from failsoft.training.trackers.mlflow import EXPERIMENT
from failsoft.training.trackers.tracker import Address
from failsoft.training.trackers.tracking import opener, tracked
from failsoft.training.trackers.wandb import Wandb
from tests.training.trackers.fakes import Story, facts


def follow(home: Path, address: str) -> Story:
    """A whole run, followed there."""
    story, clock = Story(home), SystemClock()
    openers = [("t", opener(Address.parse(address), clock))]
    with tracked(facts(home), story.ledger, openers, clock, every_s=60.0, end_within_s=60.0):
        story.whole()
    return story


def test_event_files_hold_the_curves_and_what_happened(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="needs the extra: pip install 'failsoft[tensorboard]'")
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="reads the files: pip install tensorboard"
    )
    follow(tmp_path, f"tensorboard:{tmp_path / 'boards'}")
    found = reader.EventAccumulator(str(tmp_path / "boards/night"))
    found.Reload()
    ((step, loss),) = [(e.step, e.value) for e in found.Scalars("failsoft_training_loss")]
    assert (step, loss) == (40, 0.75)
    assert [(e.step, e.value) for e in found.Scalars("val_loss")] == [(16, 0.25)]
    assert found.Scalars("failsoft_training_refused_batches_total/loss")[-1].value == 1.0
    (rollback,) = found.Tensors("events/rolled_back/text_summary")
    assert (rollback.step, rollback.tensor_proto.string_val[0]) == (10, b"five in a row")
    (settings,) = found.Tensors("config/text_summary")
    assert b"| seed | 7 |" in settings.tensor_proto.string_val[0]


def test_mlflow_has_one_run_for_all_drivers_with_metrics_settings_and_tags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow", reason="needs the extra: pip install 'failsoft[mlflow]'")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # its newer releases want a server or a database
    store = f"file://{tmp_path / 'mlruns'}"
    for _ in range(2):
        follow(tmp_path, f"mlflow:{store}")
    client: Any = mlflow.MlflowClient(tracking_uri=store)
    (run,) = client.search_runs([client.get_experiment_by_name(EXPERIMENT).experiment_id])
    assert (run.info.run_name, run.info.status) == ("night", "FINISHED")
    assert run.data.params == {"seed": "7", "gpu": "no"}
    assert run.data.tags["failsoft.rolled_back"] == "step 10: five in a row"
    assert run.data.metrics["failsoft_training_refused_batches_total/loss"] == 2.0, "over both"
    assert [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "val_loss")] == [(16, 0.25)] * 2


def test_weights_and_biases_may_try_a_quarter_of_a_minute_for_a_process_does_not_end_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: dict[str, Any] = {}
    run = SimpleNamespace(define_metric=lambda *_args, **_named: None)

    def init(**named: Any) -> Any:
        begun.update(named)
        return run

    library = SimpleNamespace(Settings=dict, init=init)
    monkeypatch.setitem(sys.modules, "wandb", library)
    Wandb("team/project").begin(facts(tmp_path))
    assert (begun["entity"], begun["project"], begun["settings"]["init_timeout"]) == ("team", "project", 15.0)


def test_weights_and_biases_keeps_the_run_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="needs the extra: pip install 'failsoft[wandb]'")
    monkeypatch.setenv("WANDB_MODE", "offline")
    story = follow(tmp_path, "wandb:failsoft-tests")
    (written,) = story.folder.glob("wandb/offline-run-*/run-*.wandb")
    assert written.name == "run-night-1f0c93ab.wandb"
    body = written.read_bytes()
    for told in (b"failsoft_training_loss", b"0.75", b"val_accuracy", b"five in a row", b"events/rolled_back", b"seed"):
        assert told in body, told
