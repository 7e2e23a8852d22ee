"""A run whose model lies in shards (FSDP2) on two real ranks: resumed, rolled back, resized, looked at, damaged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from failsoft.artifacts.store import ArtifactStore
from failsoft.cli import checkpoints as _checkpoints  # noqa: F401 -- hangs its commands on the app
from failsoft.cli.app import app
from failsoft.health.clock import SystemClock
from failsoft.training.checkpoints.checkpoint import newest_healthy
from failsoft.training.checkpoints.inspection import described, difference, ordered, verify_all
from tests.conftest import ROOT
from tests.rank_pair import heard_from

SHARD = "shard-00001-of-00002.safetensors"


@dataclass(frozen=True, kw_only=True)
class Told:
    """What the processes saw, and what they left."""

    folder: Path
    seen: Mapping[str, list[dict[str, Any]]]
    """By scene, what each of its ranks said."""

    def shelf(self, run: str = "whole") -> ArtifactStore:
        return ArtifactStore(self.folder / run / "checkpoints", SystemClock(), kind="checkpoint")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("sharded")
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.training.sharded_ranks", str(rank), str(folder)],
            cwd=ROOT,
            env=os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "FAILSOFT_HOST_MEMORY": "off"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(4)
    ]
    try:
        lines = [json.loads(line) for text in heard_from(ranks) for line in text.splitlines()]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0, 0, 0]
    return Told(
        folder=folder, seen={line["name"]: [one for one in lines if one["name"] == line["name"]] for line in lines}
    )


def test_a_run_of_shards_resumed_from_its_middle_ends_bit_for_bit_as_the_undisturbed_one(told: Told) -> None:
    assert [seen["step"] for seen in told.seen["undisturbed"]] == [24, 24]
    assert [seen["differs"] for seen in told.seen["resumed"]] == [[], []]


def test_each_rank_writes_its_own_file_and_one_manifest_binds_them(told: Told) -> None:
    newest = newest_healthy(told.shelf())
    assert newest is not None
    files = newest.manifest.files
    assert sorted(files) == ["shard-00000-of-00002.safetensors", SHARD, "state.json"]
    assert newest.manifest.meta["shards"] == {"files": 2, "meshes": ["2"], "placements": ["S(0)"], "tensors": 18}
    assert newest.manifest.meta["parts"][SHARD] == {"position": 24, "step": 24}
    tensors = json.loads((newest.path / "state.json").read_text("utf-8"))["shards"]["tensors"]
    assert tensors["model/0.weight"] == {
        "dtype": "F32",
        "shape": [7, 4],
        "mesh": [2],
        "placements": ["S(0)"],
        "pieces": [[0, [0, 0], [4, 4]], [1, [4, 0], [3, 4]]],
    }
    assert tensors["model/4.bias"]["pieces"] == [[0, [0], [1]]]  # the other rank has nothing of it
    assert not list(told.shelf().root.glob(".shards-*"))


def test_inside_a_run_an_older_checkpoint_of_shards_is_gone_back_to(told: Told) -> None:
    for seen in told.seen["to disk"]:
        assert (seen["step"], seen["moved"], seen["differs"]) == (16, True, [])


@pytest.mark.parametrize("scene", ["rolled back", "rolled back, shared"])
def test_a_snapshot_of_shards_is_gone_back_to_bit_for_bit(told: Told, scene: str) -> None:
    for seen in told.seen[scene]:
        assert (seen["moved"], seen["differs"], seen["rollbacks"], seen["position"]) == (True, [], 1, 24)


@pytest.mark.parametrize(
    "scene",
    [
        "two to three",
        "two to two by two",
        "two by two to two",
        "two to one",
        "two to none",
        "one to two",
        "none to two",
    ],
)
def test_at_another_size_each_rank_reads_its_slices_and_what_it_saves_is_the_same(told: Told, scene: str) -> None:
    for seen in told.seen[scene]:
        assert (seen["from"], seen["differs"], seen["saved"]) == (True, [], [])


def test_on_a_mesh_of_two_copies_each_piece_is_written_once(told: Told) -> None:
    assert told.seen["two to two by two"][0]["meshes"] == ["2x2"]
    newest = newest_healthy(told.shelf("mesh"))
    assert newest is not None
    sizes = [newest.manifest.files[f"shard-0000{rank}-of-00004.safetensors"].size_bytes for rank in range(4)]
    assert max(sizes[2:]) < min(sizes[:2])  # the second copy writes nothing but its buffers
    tensors = json.loads((newest.path / "state.json").read_text("utf-8"))["shards"]["tensors"]
    assert tensors["model/0.weight"]["placements"] == ["R", "S(0)"]
    assert tensors["model/0.weight"]["pieces"] == [[0, [0, 0], [4, 4]], [1, [4, 0], [3, 4]]]


def test_from_two_ranks_to_one_and_back_nothing_changed(told: Told) -> None:
    assert [seen["differs"] for seen in told.seen["back"]] == [[[], []], [[], []]]
    assert told.seen["one to two"][0]["files"] == told.seen["none to two"][0]["files"]


def test_a_checkpoint_of_another_model_is_refused_by_names_and_whole_shapes(told: Told) -> None:
    for seen in told.seen["other model"]:
        assert "0.bias is (7,), the model has (9,)" in seen["said"]


def test_ranks_that_hold_different_tensors_are_told_so_on_all_ranks(told: Told) -> None:
    for seen in told.seen["parted"]:
        assert "rank 1 holds other tensors than rank 0" in seen["said"]
        assert "model/mine" in seen["said"]


def test_the_commands_read_a_sharded_checkpoint_as_any_other(told: Told, tmp_path: Path) -> None:
    shutil.copytree(told.folder / "whole", tmp_path / "runs" / "toy")
    say = lambda *words: CliRunner().invoke(app, ["ckpt", *words, "--home", str(tmp_path)])  # noqa: E731 -- short
    listed, verified = say("ls", "toy"), say("verify", "toy")
    assert (listed.exit_code, verified.exit_code) == (0, 0)
    shown, compared = say("show", "toy", "newest", "--json"), say("diff", "toy", "8", "24", "--json")
    assert (shown.exit_code, compared.exit_code) == (0, 0), compared.output
    assert json.loads(shown.stdout)["tensors"]["model/0"] == {"tensors": 2, "bytes": 4 * (7 * 4 + 7)}
    groups = {change["group"]: change["tensors"] for change in json.loads(compared.stdout)["changes"]}
    assert groups["model/0"] == 2


def test_the_same_state_in_shards_and_in_one_file_has_no_difference(told: Told) -> None:
    sharded, whole = ordered(told.shelf("two"))[-1], ordered(told.shelf("none"))[-1]
    found = difference(sharded, whole)
    assert (found.only_a, found.only_b, found.reshaped) == ((), (), {})
    assert all(change.largest == 0.0 for change in found.changes)
    assert described(sharded)["tensors"] == described(whole)["tensors"]


@pytest.mark.parametrize("harm", ["gone", "torn", "swapped"])
def test_a_checkpoint_with_a_damaged_shard_is_put_aside_and_the_one_before_is_taken(
    told: Told, tmp_path: Path, harm: str
) -> None:
    shutil.copytree(told.folder / "whole" / "checkpoints", tmp_path / "checkpoints")
    store = ArtifactStore(tmp_path / "checkpoints", SystemClock(), kind="checkpoint")
    newest, before = store.root / "position-000000000024", store.root / "position-000000000016"
    if harm == "gone":
        (newest / SHARD).unlink()
    elif harm == "torn":
        (newest / SHARD).write_bytes((newest / SHARD).read_bytes()[:-1])
    else:  # whole, but of another step
        shutil.copy(before / SHARD, newest / SHARD)
    assert [finding.name for finding in verify_all(store) if finding.damage is not None] == [newest.name]
    found = newest_healthy(store)
    assert found is not None
    assert found.name == before.name
