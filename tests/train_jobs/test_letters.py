"""The dead letters of a really trained tiny run of the intent job, with planned faults."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import torch
from typer.testing import CliRunner

from failsoft.artifacts.home import Home
from failsoft.cli import letters as _letters  # noqa: F401 -- hangs its commands on the app
from failsoft.cli.app import app
from failsoft.errors import ConfigError
from failsoft.health.clock import ManualClock
from failsoft.health.faults import Fault, FaultKind, FaultPlan, burst
from failsoft.training.checkpoints.checkpoint import deliver_here
from failsoft.training.letters.diagnosis import Cause
from failsoft.training.ranks import SoloRank
from train_jobs.build import build_loop
from train_jobs.config import JobConfig, Preset
from train_jobs.letters import JobLetters
from train_jobs.workload import prepare


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A run of 24 batches: one NaN, one burst that is rolled back, two checkpoints before it."""
    root = tmp_path_factory.mktemp("home")
    faults = (Fault(kind=FaultKind.NAN_BATCH, position=3), *burst(FaultKind.INF_GRADIENT, first=14, count=5))
    config = JobConfig(
        home=root,
        run="tiny",
        preset=Preset.DEMO,
        max_batches=24,
        faults=FaultPlan(faults=faults),
        snapshot_every_steps=4,
        checkpoint_every_steps=6,
    )
    prepare(config)
    build_loop(config, SoloRank(), deliver_here).run()
    return Home(root=root)


def test_a_planned_fault_in_a_burst_is_found_to_be_not_reproducible_on_the_very_state(home: Home) -> None:
    torch.set_num_threads(2)  # as another process may have it: the letter knows what the run had
    found = JobLetters(home, "tiny").replay(16, max_walk=100)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    assert found.diagnosis.cause is Cause.HARDWARE, found.as_data()
    assert found.evidence.state_met is True


def test_the_samples_of_a_dead_batch_have_their_texts_and_sources(home: Home) -> None:
    job = JobLetters(home, "tiny")
    (letter,) = job.book.at(3)
    assert job.global_indices(3) == letter.sample_ids
    texts = job.samples(letter.sample_ids)
    assert [text.id.rpartition("#")[2] for text in texts] == [str(index) for index in letter.sample_ids]
    assert sum(letter.sources.values()) == len(texts)
    assert all(one.id.startswith(tuple(letter.sources)) for one in texts)


def test_a_sample_may_be_left_out_by_its_name(home: Home) -> None:
    job = JobLetters(home, "tiny")
    first, second, *_ = job.samples(job.global_indices(14))
    entry = job.requeue(14, without=[first.id, str(job.global_indices(14)[1])], why="", clock=ManualClock())
    assert entry.without == job.global_indices(14)[:2]
    with pytest.raises(ConfigError, match="no training sample is called"):
        job.requeue(15, without=[second.id + "x"], why="", clock=ManualClock())


def test_the_commands_show_and_replay_a_real_run(home: Home) -> None:
    def dlq(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["dlq", *arguments, "--home", str(home.root)], catch_exceptions=False)
        assert done.exit_code == 0
        return done.output

    shown = json.loads(dlq("show", "tiny", "3", "--samples", "2", "--json"))
    assert len(shown["samples"]) == 2
    assert shown["samples"][0]["text"]
    replayed = dlq("replay", "3")
    assert "bit for bit" in replayed
    assert "verdict: the hardware or nondeterminism" in replayed
    assert (
        "next: look at the machine (memory, ECC counters); the batch may go again: failsoft dlq requeue tiny 3"
        in replayed
    )
