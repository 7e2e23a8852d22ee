"""A pyarrow file system of the user's, as Ray's RunConfig takes it, holds the copies of an own task's checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pyarrow import fs

from failsoft.artifacts.home import Home
from failsoft.artifacts.remote_place import place_on
from failsoft.artifacts.remote_store import RemoteStore
from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import ConfigError
from failsoft.health.clock import ManualClock, SystemClock
from failsoft.training.checkpoints import writer_link
from failsoft.training.checkpoints.remote_note import noted_remote
from failsoft.training.checkpoints.writer_news import NewsKind, Ticket
from train_jobs.build import mirror_of
from train_jobs.config import JobConfig
from train_jobs.own import Learning, OwnJob
from train_jobs.own_build import OwnDriver


def learn(device: torch.device) -> Learning:
    raise NotImplementedError


def job(home: Path, **given: Any) -> OwnJob:
    config = JobConfig(home=home, run="r", remote=given.pop("remote", None))
    return OwnJob(config=config, learn=learn, num_samples=8, global_batch=2, total_batches=4, **given)


def test_checkpoints_are_copied_to_it_by_the_process_that_copies(tmp_path: Path) -> None:
    own = job(tmp_path, storage_path=f"{tmp_path}/bucket", storage_filesystem=fs.LocalFileSystem())
    OwnDriver(own, ManualClock()).look_at_remote()
    store = ArtifactStore(Home.find(tmp_path).checkpoints("r", SystemClock()).root, SystemClock(), kind="checkpoint")
    mirror = mirror_of(own.config, store, path=own.storage_path, filesystem=own.storage_filesystem)
    assert mirror is not None
    meta = {"position": 1, "step": 1, "healthy": True}
    store.publish("one", lambda folder: (folder / "weights").touch(), meta=meta)
    mirror.offer(Ticket(name="one", position=1, step=1, meta=meta))
    assert mirror.drain(within_s=60.0)
    assert [(news.kind, news.why) for news in mirror.look()] == [
        (NewsKind.MIRRORED, f"local://{tmp_path}/bucket/r/checkpoints")
    ]
    mirror.part()
    for process in writer_link._LEFT_BEHIND:
        process.wait(30.0)
    there = RemoteStore(place_on(fs.LocalFileSystem(), f"{tmp_path}/bucket/r/checkpoints"), kind="checkpoint").shelf()
    assert [one.name for one in there.there] == ["one"]
    assert mirror.address is None  # it may hold secrets, so nothing of it is written down
    assert noted_remote(store.root) is None


def test_a_file_system_that_can_not_be_written_is_refused_before_any_worker_starts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    own = job(tmp_path, storage_path=f"{tmp_path}/file", storage_filesystem=fs.LocalFileSystem())
    with pytest.raises(ConfigError, match="the storage_filesystem can't be used"):
        OwnDriver(own, ManualClock()).look_at_remote()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"storage_path": "a/b"}, "storage_path needs a storage_filesystem"),
        ({"storage_filesystem": "s3"}, "storage_filesystem is a str"),
        ({"storage_filesystem": fs.LocalFileSystem()}, "storage_path is ''"),
        ({"storage_filesystem": fs.LocalFileSystem(), "storage_path": "s3://b"}, "give the path on that file system"),
        ({"storage_filesystem": fs.LocalFileSystem(), "storage_path": "b", "remote": "s3://b"}, "both remote and"),
    ],
)
def test_what_can_not_be_meant_is_refused(tmp_path: Path, given: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        job(tmp_path, **given)
