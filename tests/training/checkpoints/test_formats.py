"""Old checkpoints load; newer and foreign ones are refused with the mend."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from failsoft.artifacts.manifest import Manifest, describe, read_manifest
from failsoft.errors import DamagedArtifactError, IncompatibleArtifactError
from failsoft.training.checkpoints.formats import FORMAT, MIGRATIONS, read_scalars
from tests.training.test_loop import event
from tests.training.toys import ToyTask, toy_loop, weights_of

OLD = Path(__file__).parents[1] / "data" / "checkpoint-format-1"
"""Written at position 8 of the toy run by the code that knew no format number."""
NAME = "position-000000000008"


def shelve(folder: Path, source: Path = OLD) -> Path:
    target = folder / "checkpoints" / NAME
    shutil.copytree(source, target)
    return target


def sign_again(folder: Path) -> None:
    """A manifest for what lies there now, as if its writer had meant it."""
    before = read_manifest(folder)
    (folder / "manifest.json").unlink()
    after = describe(folder, kind=before.kind, created_at_s=before.created_at_s, meta=before.meta)
    (folder / "manifest.json").write_text(after.to_json(), "utf-8")


@pytest.mark.parametrize("number", [1, 3])  # the file of form 2 is of another toy
def test_a_checkpoint_of_an_older_format_still_resumes_the_run(tmp_path: Path, number: int) -> None:
    shelve(tmp_path / "old", OLD.with_name(f"checkpoint-format-{number}"))
    resumed, undisturbed = toy_loop(tmp_path / "old"), toy_loop(tmp_path / "new")
    resumed.run()
    undisturbed.run()
    assert event(tmp_path / "old", "restored").data["checkpoint"] == NAME
    assert isinstance(resumed.task, ToyTask)
    assert len(resumed.task.seen) == 16 * 8
    expected = weights_of(undisturbed.state.model)
    for name, tensor in weights_of(resumed.state.model).items():  # made on one version of torch, read by another
        torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=1e-5)


def test_what_is_written_today_says_its_format(tmp_path: Path) -> None:
    toy_loop(tmp_path).run()
    newest = max((tmp_path / "checkpoints").glob("position-*"))
    assert json.loads((newest / "state.json").read_text("utf-8"))["format"] == FORMAT


def test_each_older_format_has_a_way_to_the_next_and_a_file_that_proves_it() -> None:
    files = sorted(path.name for path in OLD.parent.glob("checkpoint-format-*"))
    assert sorted(MIGRATIONS) == list(range(1, FORMAT))
    assert files == [f"checkpoint-format-{number}" for number in sorted(MIGRATIONS)]


def test_a_state_of_a_newer_format_is_refused_and_stays(tmp_path: Path) -> None:
    folder = shelve(tmp_path)
    scalars = json.loads((folder / "state.json").read_text("utf-8"))
    (folder / "state.json").write_text(json.dumps(scalars | {"format": FORMAT + 1}), "utf-8")
    sign_again(folder)
    with pytest.raises(IncompatibleArtifactError, match=f"format {FORMAT + 1}.*the failsoft that wrote it"):
        toy_loop(tmp_path).run()
    assert folder.is_dir()


def test_a_folder_of_a_newer_format_stops_the_run_instead_of_going_on_from_an_older_one(tmp_path: Path) -> None:
    toy_loop(tmp_path).run()
    newest = max((tmp_path / "checkpoints").glob("position-*"))
    body = json.loads((newest / "manifest.json").read_text("utf-8"))
    (newest / "manifest.json").write_text(json.dumps(body | {"format": 99}), "utf-8")
    with pytest.raises(IncompatibleArtifactError, match="use the failsoft that wrote it"):
        toy_loop(tmp_path).run()


def test_a_checkpoint_of_another_model_is_refused_with_the_names_and_shapes_that_differ(tmp_path: Path) -> None:
    shelve(tmp_path)
    with pytest.raises(IncompatibleArtifactError, match=r"0\.bias is \(6,\), the model has \(7,\).*another run name"):
        toy_loop(tmp_path, hidden=7).run()


@pytest.mark.parametrize("text", ["[]", "3", "{", '{"format": "new"}', '{"format": 0}'])
def test_what_is_no_state_of_a_run_is_damage(text: str) -> None:
    with pytest.raises(DamagedArtifactError, match="here"):
        read_scalars(text, where="here")


def test_the_old_file_is_whole() -> None:
    manifest = read_manifest(OLD)
    assert isinstance(manifest, Manifest)
    assert manifest.meta["position"] == 8
