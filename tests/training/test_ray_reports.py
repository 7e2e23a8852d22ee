"""What Ray's own report does with our checkpoints: it is Ray's code that runs here, without a cluster."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray.train
from ray.train.v2._internal.execution.context import TrainContext
from ray.train.v2._internal.execution.storage import StorageContext
from ray.train.v2._internal.execution.worker_group.thread_runner import ThreadRunner

from failsoft.training.checkpoints.delivering import FollowsCopies, tell_of_copy
from failsoft.training.checkpoints.writer_news import News, NewsKind, Ticket
from failsoft.training.ray_reports import RayReports

NAME = "position-000000000008"
PATIENCE_S = 60.0


class Worker:
    """Ray's context of a worker's training thread, cut off from its controller and its fellow ranks."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.heard: queue.Queue[Any] = queue.Queue(maxsize=1)
        self.runner = ThreadRunner()
        parts: Any = SimpleNamespace(
            result_queue=self.heard, training_thread_runner=self.runner, train_context_callbacks=[]
        )
        nothing: Any = SimpleNamespace(world_rank=0)
        context = TrainContext(
            train_run_context=nothing,
            distributed_context=nothing,
            execution_context=parts,
            storage_context=StorageContext(storage_path=str(folder), experiment_dir_name="run"),
            preemption_context=nothing,
            controller_actor=nothing,
            dataset_shard_provider=nothing,
        )
        monkeypatch.setattr(context, "_sync_checkpoint_dir_name_across_ranks", lambda _name: "unused")
        monkeypatch.setattr(ray.train, "report", context.report)
        self.checkpoint = folder / "run" / "checkpoints" / NAME
        self.checkpoint.mkdir(parents=True)
        (self.checkpoint / "state.json").write_text("{}", "utf-8")

    def told(self) -> Any:
        """What the controller would poll next."""
        return self.heard.get(timeout=PATIENCE_S)

    def failure(self) -> str:
        """What would end the worker, once Ray's thread is done with it."""
        return str(self.runner.get_exception_queue().get(timeout=PATIENCE_S))


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Worker:
    return Worker(tmp_path, monkeypatch)


def test_ray_learns_of_the_folder_and_leaves_it_where_it_is(worker: Worker) -> None:
    RayReports()(worker.checkpoint, {"loss": 1.5})
    told = worker.told()
    assert (told.checkpoint.path, told.metrics) == (str(worker.checkpoint), {"loss": 1.5})
    assert (worker.checkpoint / "state.json").exists()
    assert worker.runner.get_exception_queue().empty()


def test_a_rank_without_a_folder_reports_its_metrics_alone(worker: Worker) -> None:
    RayReports()(None, {"loss": 1.5})
    assert worker.told().checkpoint is None


@pytest.mark.parametrize(
    "release",
    [lambda reports: reports.copy_over(NAME), lambda reports: reports.end()],
    ids=["the copy is there", "the run ends"],
)
def test_ray_learns_of_it_when_its_copy_is_over_and_the_training_does_not_wait(
    worker: Worker, release: Callable[[RayReports], None]
) -> None:
    reports = RayReports(patience_s=PATIENCE_S)
    reports.copy_begun(NAME)
    reports(worker.checkpoint, {})  # it is back at once, and Ray has heard nothing
    assert worker.heard.empty()
    release(reports)
    assert worker.told().checkpoint.path == str(worker.checkpoint)


def test_a_store_that_hangs_holds_neither_the_training_nor_rays_thread_for_good(worker: Worker) -> None:
    reports = RayReports(patience_s=0.01)
    reports.copy_begun(NAME)
    reports(worker.checkpoint, {})
    assert worker.told().checkpoint.path == str(worker.checkpoint)
    assert worker.runner.get_exception_queue().empty()


def test_an_upload_of_ones_own_that_raises_would_end_the_worker(worker: Worker) -> None:
    """Why :meth:`RayReports.landed` may not: when Ray no longer does so, that can be thought over."""

    def upload(_checkpoint: object, _name: str) -> Any:
        raise OSError("the store refuses")

    reports: Any = RayReports()
    reports.landed = upload
    reports(worker.checkpoint, {})
    assert "the store refuses" in worker.failure()


def test_a_checkpoint_at_its_remote_place_would_end_the_worker(worker: Worker, tmp_path: Path) -> None:
    """Why Ray is given the folder in its own storage, although a copy lies elsewhere."""
    reports: Any = RayReports()
    reports.landed = lambda _checkpoint, _name: ray.train.Checkpoint(str(tmp_path / "bucket" / NAME))
    reports(worker.checkpoint, {})
    assert "outside the experiment directory" in worker.failure()


def test_it_follows_the_copies_that_the_checkpoints_tell_of(tmp_path: Path) -> None:
    reports, ticket = RayReports(patience_s=PATIENCE_S), Ticket(name=NAME, position=8, step=8, meta={})
    assert isinstance(reports, FollowsCopies)
    for over in (NewsKind.MIRRORED, NewsKind.MIRROR_DROPPED):
        tell_of_copy(reports, News(kind=NewsKind.PUBLISHED, why="", ticket=ticket))
        waiting = threading.Thread(target=reports.landed, args=(ray.train.Checkpoint(str(tmp_path / NAME)), ""))
        waiting.start()
        tell_of_copy(reports, News(kind=NewsKind.MIRROR_FAILED, why="tried again later", ticket=ticket))
        assert waiting.is_alive()
        tell_of_copy(reports, News(kind=over, why="", ticket=ticket))
        waiting.join(PATIENCE_S)
        assert not waiting.is_alive()
