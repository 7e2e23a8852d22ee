from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from failsoft.errors import DamagedArtifactError, IncompatibleArtifactError
from failsoft.health.ledger import read_ledger
from failsoft.models.network import build
from train_jobs.config import JobConfig, Preset
from train_jobs.workload import IntentNerTask, batches_of, prepare, read_workload


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> JobConfig:
    return JobConfig(home=tmp_path_factory.mktemp("home"), run="run", preset=Preset.DEMO, max_batches=50)


def test_a_worker_reads_what_the_driver_made_ready(config: JobConfig) -> None:
    corpus, made = prepare(config)
    read = read_workload(config)
    assert read.train.ids == made.train.ids == [utterance.id for utterance in corpus.train]
    assert read.network == made.network
    assert read.total_batches == batches_of(config, read.recipe, len(corpus.train)) == 50
    torch.manual_seed(1)
    task = IntentNerTask(build(read.network), read, torch.device("cpu"))
    assert torch.isfinite(task.loss(np.arange(4)))


@pytest.mark.parametrize("name", ["train.json", "codec.json", "labels.json", "manifest.json"])
def test_a_prepared_corpus_that_was_torn_or_changed_is_made_again_as_it_was(config: JobConfig, name: str) -> None:
    _, made = prepare(config)
    (path,) = (config.home / "runs" / "run" / "prepared").glob(f"corpus/{name}")
    whole = path.read_bytes()
    for torn in (whole[:-1], whole.replace(b"e", b"a", 1)):
        path.write_bytes(torn)
        with pytest.raises(DamagedArtifactError):
            read_workload(config)
        _, again = prepare(config)
        assert again.train.ids == made.train.ids
        assert (again.identity, again.network) == (made.identity, made.network)
        assert name == "manifest.json" or path.read_bytes() == whole


def test_what_was_repaired_in_the_data_is_in_the_ledger(tmp_path: Path) -> None:
    said = [{"data": [{"text": f"sample number {n}"}]} for n in range(120)]
    for name, entries in (("train_Go_full.json", [{}, *said]), ("validate_Go.json", [{"data": [{"text": "a test"}]}])):
        (tmp_path / name).write_text(json.dumps({"Go": entries}), "utf-8")
    config = JobConfig(home=tmp_path / "home", run="run", data=tmp_path, preset=Preset.SNIPS)
    prepare(config)
    (event,) = read_ledger(tmp_path / "home" / "ledger.jsonl").events
    assert (event.kind, event.subject) == ("corpus_read", "run")
    assert event.data["repairs"] == {"samples without a data list, left out": 1}
    assert "train_Go_full.json#0" in event.why


def test_a_run_of_more_epochs_is_as_much_longer_and_its_workers_read_the_same(tmp_path: Path) -> None:
    config = JobConfig(home=tmp_path, run="long", preset=Preset.DEMO, epochs=3)
    corpus, prepared = prepare(config)
    recipe = read_workload(config).recipe
    assert recipe == prepared.recipe
    assert recipe.epochs == 3
    assert prepared.identity["total_batches"] == 3 * replace(recipe, epochs=1).total_steps(corpus.num_samples)


def test_a_run_that_goes_on_under_other_settings_is_refused_by_name(config: JobConfig) -> None:
    prepare(config)
    with pytest.raises(IncompatibleArtifactError, match="seed was 7, now 8"):
        prepare(replace(config, seed=8))
    with pytest.raises(IncompatibleArtifactError, match="total_batches was 50, now 40"):
        prepare(replace(config, max_batches=40))
