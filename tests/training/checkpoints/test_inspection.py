"""What a look into checkpoints says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from failsoft.artifacts.store import Artifact, ArtifactStore
from failsoft.errors import ArtifactMissingError
from failsoft.health.clock import ManualClock
from failsoft.training.checkpoints.formats import TENSORS
from failsoft.training.checkpoints.inspection import (
    described,
    difference,
    find,
    group_of,
    ordered,
    relative_change,
    verify_all,
)
from tests.training.toys import toy_loop

NAMES = [f"position-{position:012d}" for position in (8, 16, 24)]
Change = Callable[[dict[str, torch.Tensor]], object]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ArtifactStore:
    folder = tmp_path_factory.mktemp("run")
    toy_loop(folder).run()
    return ArtifactStore(folder / "checkpoints", ManualClock(), kind="checkpoint")


def altered(store: ArtifactStore, folder: Path, change: Change) -> tuple[Artifact, Artifact]:
    """The newest checkpoint, and one that differs from it by ``change``."""
    newest = find(store, "newest")

    def write(aside: Path) -> None:
        tensors = load_file(newest.path / TENSORS)
        change(tensors)
        save_file(tensors, aside / TENSORS)
        (aside / "state.json").write_bytes((newest.path / "state.json").read_bytes())

    other = ArtifactStore(folder, ManualClock(), kind="checkpoint").publish("other", write, meta={})
    return newest, other


@pytest.mark.parametrize("asked", ["newest", "24", NAMES[2]])
def test_a_checkpoint_is_found_by_name_by_position_and_as_the_newest(store: ArtifactStore, asked: str) -> None:
    assert find(store, asked).name == NAMES[2]


def test_a_checkpoint_that_is_not_there_is_refused_with_those_that_are(store: ArtifactStore) -> None:
    with pytest.raises(ArtifactMissingError, match=NAMES[0]):
        find(store, "9")


def test_the_listing_goes_by_position(store: ArtifactStore) -> None:
    assert [one.name for one in ordered(store)] == NAMES


def test_a_description_names_the_parts_and_the_learning_rate(store: ArtifactStore) -> None:
    told = described(find(store, "8"))
    assert told["tensors"]["optimizer/exp_avg"]["tensors"] == 6
    assert told["learning_rates"] == [pytest.approx(0.006)]
    assert (told["world"], told["meta"]["step"]) == (1, 8)


def test_a_checkpoint_differs_from_itself_in_nothing(store: ArtifactStore) -> None:
    newest = find(store, "newest")
    found = difference(newest, newest)
    assert (found.only_a, found.only_b, found.reshaped, found.scalars) == ((), (), {}, {})
    assert all(change.largest == 0.0 and change.equal == change.tensors for change in found.changes)


def test_two_moments_of_a_run_differ_where_training_moved_them(store: ArtifactStore) -> None:
    found = difference(find(store, "8"), find(store, "16"))
    moved = {change.group: change.largest for change in found.changes}
    assert moved["model/0"] > 0.0
    assert moved["optimizer/step"] == pytest.approx(1.0)
    assert found.scalars["step"] == (8, 16)
    assert found.scalars["optimizer_groups.0.lr"][1] > found.scalars["optimizer_groups.0.lr"][0]
    assert not any("rng" in name for name in found.scalars)


def test_the_largest_change_is_told_with_its_tensor(store: ArtifactStore, tmp_path: Path) -> None:
    found = difference(*altered(store, tmp_path, lambda tensors: tensors["model/4.weight"].mul_(3.0)))
    (moved,) = [change for change in found.changes if change.largest]
    assert (moved.group, moved.tensor, moved.equal) == ("model/4", "model/4.weight", 1)
    assert moved.largest == pytest.approx(2.0)


def test_a_tensor_that_became_nan_is_the_largest_change_of_all(store: ArtifactStore, tmp_path: Path) -> None:
    found = difference(*altered(store, tmp_path, lambda tensors: tensors["model/0.bias"].fill_(torch.nan)))
    (moved,) = [change for change in found.changes if change.largest != 0.0]
    assert moved.tensor == "model/0.bias"
    assert np.isnan(moved.largest)


def test_names_and_shapes_that_differ_are_told(store: ArtifactStore, tmp_path: Path) -> None:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors["model/new"] = torch.ones(2)
        del tensors["model/0.bias"]
        tensors["model/4.bias"] = torch.ones(3)

    found = difference(*altered(store, tmp_path, change))
    assert (found.only_a, found.only_b) == (("model/0.bias",), ("model/new",))
    assert found.reshaped == {"model/4.bias": ("F32 [1]", "F32 [3]")}


def test_verifying_names_the_damaged_one_and_moves_nothing(tmp_path: Path) -> None:
    toy_loop(tmp_path).run()
    store = ArtifactStore(tmp_path / "checkpoints", ManualClock(), kind="checkpoint")
    path = store.root / NAMES[1] / TENSORS
    path.write_bytes(path.read_bytes()[:-1] + b"\x7f")
    (store.root / "step_5").mkdir()
    findings = {finding.name: finding.damage for finding in verify_all(store)}
    assert (findings[NAMES[0]], findings[NAMES[2]]) == (None, None)
    assert "digest" in str(findings[NAMES[1]])
    assert "absent" in str(findings["step_5"])
    assert path.exists()


@pytest.mark.parametrize(
    ("a", "b", "change"), [([3.0, 4.0], [3.0, 4.0], 0.0), ([3.0, 4.0], [3.0, 9.0], 1.0), ([0.0], [1.0], float("inf"))]
)
def test_relative_change(a: list[float], b: list[float], change: float) -> None:
    assert relative_change(np.array(a), np.array(b)) == change


@pytest.mark.parametrize(
    ("name", "group"),
    [("model/encoder.0.weight", "model/encoder"), ("optimizer/12/exp_avg", "optimizer/exp_avg"), ("ema/x", "ema/x")],
)
def test_tensors_are_grouped_by_the_part_they_belong_to(name: str, group: str) -> None:
    assert group_of(name) == group
