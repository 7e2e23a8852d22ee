"""A disk that refuses costs what could not be written, and not the run."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from pathlib import Path

import pytest

from failsoft.artifacts.store import Artifact, Fill
from failsoft.errors import ArtifactError
from tests.training.test_loop import event, kinds, nan_at
from tests.training.toys import toy_loop


def test_a_full_disk_costs_a_checkpoint_and_not_the_run(tmp_path: Path) -> None:
    loop = toy_loop(tmp_path)
    publish, calls = loop.checkpoints.store.publish, list[str]()

    def full_once(name: str, write: Fill, *, meta: Mapping[str, object]) -> Artifact:
        calls.append(name)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return publish(name, write, meta=meta)

    loop.checkpoints.store.publish = full_once  # type: ignore[method-assign]
    loop.run()
    assert "No space left" in event(tmp_path, "checkpoint_failed").why
    there = [artifact.name for artifact in loop.checkpoints.store.listing()]
    assert there == ["position-000000000008", "position-000000000024"]


def test_a_disk_that_refuses_the_end_once_rolls_nothing_back(tmp_path: Path) -> None:
    loop = toy_loop(tmp_path)
    publish, calls = loop.checkpoints.store.publish, list[str]()

    def full_at_the_end(name: str, write: Fill, *, meta: Mapping[str, object]) -> Artifact:
        calls.append(name)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        return publish(name, write, meta=meta)

    loop.checkpoints.store.publish = full_at_the_end  # type: ignore[method-assign]
    loop.run()
    assert calls[-2:] == ["position-000000000024"] * 2
    assert "rolled_back" not in kinds(tmp_path)


def test_a_disk_that_takes_no_more_words_does_not_end_the_training(tmp_path: Path) -> None:
    loop = toy_loop(tmp_path, faults=nan_at(3, 7))
    (tmp_path / "dead_letters").touch()  # a file where the folder of letters should be
    (tmp_path / "progress.aside").mkdir()  # a folder where the progress file is made
    loop.run()
    assert (loop.state.position, loop.state.step) == (24, 22)
    assert kinds(tmp_path).count("words_lost") == 1
    assert kinds(tmp_path).count("batch_refused") == 2


def test_a_disk_that_fills_up_within_the_tensors_costs_a_checkpoint_and_not_the_run(tmp_path: Path) -> None:
    loop = toy_loop(tmp_path)
    file_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, file_limit[1]))
    try:
        assert not loop.checkpoints.publish(loop.state, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, file_limit)
    assert "File too large" in event(tmp_path, "checkpoint_failed").why
    loop.run()
    assert loop.state.step == 24


def test_a_run_whose_end_cannot_be_written_says_so_and_keeps_its_last_checkpoint(tmp_path: Path) -> None:
    loop = toy_loop(tmp_path)
    publish = loop.checkpoints.store.publish

    def full(name: str, write: Fill, *, meta: Mapping[str, object]) -> Artifact:
        if name > "position-000000000008":
            raise OSError(28, "No space left on device")
        return publish(name, write, meta=meta)

    loop.checkpoints.store.publish = full  # type: ignore[method-assign]
    with pytest.raises(ArtifactError, match="make room on the disk"):
        loop.run()
    again = toy_loop(tmp_path)
    again.run()
    assert event(tmp_path, "restored").data["checkpoint"] == "position-000000000008"
