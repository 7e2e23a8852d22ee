from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from failsoft.artifacts.home import Home
from failsoft.errors import ConfigError
from failsoft.health.ledger import read_ledger
from failsoft.models.network import build
from failsoft.training.checkpoints.checkpoint import deliver_here
from failsoft.training.checkpoints.retention import Best
from failsoft.training.ranks import SoloRank
from failsoft.training.validation_look import combined, look
from train_jobs.build import build_loop
from train_jobs.config import JobConfig, Preset
from train_jobs.validation import IntentNerValidation
from train_jobs.workload import prepare, read_workload


def configured(home: Path, run: str, *, every: int | None) -> JobConfig:
    return JobConfig(
        home=home,
        run=run,
        preset=Preset.DEMO,
        max_batches=12,
        validate_every_steps=every,
        checkpoint_every_steps=6,
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tmp_path_factory.mktemp("home")


def trained(config: JobConfig) -> dict[str, object]:
    """Digest of the weights at the end, and the metrics of each checkpoint."""
    prepare(config)
    loop = build_loop(config, SoloRank(), deliver_here)
    loop.run()
    shelf = Home.find(config.home).checkpoints(config.run, loop.desk.clock).listing()
    return {
        "digest": shelf[-1].manifest.files["state.safetensors"].digest,
        "metrics": [dict(one.manifest.meta["metrics"]) for one in shelf],
    }


def test_the_job_is_judged_on_its_validation_split_and_trains_as_if_it_were_not(home: Path) -> None:
    plain, judged = trained(configured(home, "plain", every=None)), trained(configured(home, "judged", every=6))
    assert plain["digest"] == judged["digest"]
    events = [event for event in read_ledger(home / "ledger.jsonl").events if event.kind == "validated"]
    assert [(event.subject, event.data["step"]) for event in events] == [("judged", 6), ("judged", 12)]
    metrics = events[-1].data["metrics"]
    assert set(metrics) == {"val_loss", "val_intent_accuracy", "val_tag_accuracy"}
    assert all(0.0 <= metrics[name] <= 1.0 for name in ("val_intent_accuracy", "val_tag_accuracy"))
    assert judged["metrics"][-1]["val_loss"] == pytest.approx(metrics["val_loss"])  # type: ignore[index]  # a list
    assert "val_loss" not in plain["metrics"][-1]  # type: ignore[index]  # a list


def test_the_split_is_read_only_where_somebody_looks_at_it(home: Path) -> None:
    asked, not_asked = configured(home, "judged", every=6), configured(home, "plain", every=None)
    corpus, _ = prepare(asked)
    found = read_workload(asked).validation
    assert found is not None
    assert len(found) == len(corpus.validation)
    assert read_workload(not_asked).validation is None


def test_metrics_do_not_depend_on_how_the_split_is_cut(home: Path) -> None:
    workload = read_workload(configured(home, "judged", every=6))
    assert workload.validation is not None
    torch.manual_seed(0)
    model = build(workload.network)
    task = IntentNerValidation(workload.validation, workload.recipe, torch.device("cpu"))
    indices = np.arange(40)
    whole, _ = combined([look(task, model, indices, batch=40, halvings=0)])
    parts, _ = combined([look(task, model, part, batch=7, halvings=0) for part in (indices[::2], indices[1::2])])
    assert whole == pytest.approx(parts, rel=1e-4)


def test_checkpoints_are_best_by_validation_where_there_is_one(home: Path) -> None:
    for every, metric in ((None, "loss"), (6, "val_loss")):
        (best,) = [rule for rule in configured(home, "judged", every=every).keeping() if isinstance(rule, Best)]
        assert best.metric == metric


def test_an_impossible_number_of_steps_is_refused(home: Path) -> None:
    with pytest.raises(ConfigError, match="every_steps is 0"):
        configured(home, "judged", every=0)
