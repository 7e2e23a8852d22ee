from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from failsoft.errors import IncompatibleArtifactError
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


def test_a_run_that_goes_on_under_other_settings_is_refused_by_name(config: JobConfig) -> None:
    prepare(config)
    with pytest.raises(IncompatibleArtifactError, match="seed was 7, now 8"):
        prepare(replace(config, seed=8))
    with pytest.raises(IncompatibleArtifactError, match="total_batches was 50, now 40"):
        prepare(replace(config, max_batches=40))
