"""Parts of different steps are refused, when they are written and when they are read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from failsoft.artifacts.manifest import describe, read_manifest
from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import IncompatibleArtifactError
from failsoft.health.clock import ManualClock
from failsoft.training.checkpoints.parts import in_words, refuse_mixed, stamps_of
from failsoft.training.checkpoints.tensor_file import Stamp
from failsoft.training.checkpoints.writer import CheckpointWriter
from failsoft.training.checkpoints.writer_news import NewsKind, Ticket
from tests.training.toys import toy_loop

OLD, NEW = "position-000000000016", "position-000000000024"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    toy_loop(tmp_path).run()
    return tmp_path


def sign_again(folder: Path) -> None:
    before = read_manifest(folder)
    (folder / "manifest.json").unlink()
    after = describe(folder, kind=before.kind, created_at_s=before.created_at_s, meta=before.meta)
    (folder / "manifest.json").write_text(after.to_json(), "utf-8")


def test_the_manifest_names_each_part_with_its_moment(run: Path) -> None:
    moment = {"position": 24, "step": 24}
    assert read_manifest(run / "checkpoints" / NEW).meta["parts"] == {
        "state.safetensors": moment,
        "state.json": moment,
    }


@pytest.mark.parametrize("part", ["state.safetensors", "state.json"])
def test_a_part_of_another_step_is_refused_although_every_digest_fits(run: Path, part: str) -> None:
    shutil.copy(run / "checkpoints" / OLD / part, run / "checkpoints" / NEW / part)
    sign_again(run / "checkpoints" / NEW)
    with pytest.raises(IncompatibleArtifactError, match=rf"different steps: .*{part} says .*'position': 16"):
        toy_loop(run).run()


def test_a_part_that_no_longer_says_its_moment_is_refused(run: Path) -> None:
    path = run / "checkpoints" / NEW / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {"step": None}), "utf-8")
    sign_again(path.parent)
    with pytest.raises(IncompatibleArtifactError, match=r"state\.json says nothing"):
        toy_loop(run).run()


def test_parts_of_old_forms_say_less_and_are_taken(run: Path) -> None:
    refuse_mixed({"position": 24}, {"a": None, "b": Stamp(position=24, step=3)}, where="here")
    stamps = stamps_of(run / "checkpoints" / NEW)
    refuse_mixed({"position": 24, "step": 24, "parts": in_words(stamps)}, stamps, where="here")


def test_memory_that_holds_parts_of_two_moments_is_never_published(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path, ManualClock(), kind="checkpoint")
    writer = CheckpointWriter(store, clock=ManualClock())
    ticket = Ticket(name="a", position=2, step=2, meta={"position": 2, "step": 2, "healthy": True})
    writer.offer(ticket, {"w": torch.ones(2)}, b'{"format": 3, "position": 1, "step": 1}')
    (failed,) = writer.look()
    assert failed.kind is NewsKind.FAILED
    assert "parts of different steps" in failed.why
    assert store.listing() == []
