"""A layout that is torn, odd or mixed with another blames no sample."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from failsoft.errors import ArtifactError, ArtifactMissingError, DamagedArtifactError
from failsoft.training.loading.layout import ShardLayout, write_shards
from failsoft.training.loading.local import LocalShards

BODIES = [f"sample {index} ".encode() * (index % 5) for index in range(25)]


@pytest.fixture
def layout(tmp_path: Path) -> ShardLayout:
    return write_shards(BODIES, tmp_path / "shards", samples_per_shard=10)


@pytest.mark.parametrize("name", ["shard.npy", "span.npy", "digest.npy", "layout.json"])
@pytest.mark.parametrize("left", [0, 5, 200, -7])
def test_a_layout_of_which_a_part_came_is_damaged_and_no_sample_is_blamed(
    layout: ShardLayout, name: str, left: int
) -> None:
    whole = (layout.folder / name).read_bytes()
    (layout.folder / name).write_bytes(whole[:left])
    if len(whole[:left]) == len(whole):
        return
    with pytest.raises(DamagedArtifactError, match="copy the layout again"):
        LocalShards(ShardLayout(layout.folder)).fetch(24)


@pytest.mark.parametrize("words", ["[]", '{"format": 1}', '{"format": 1, "shards": 3}', '{"format": [], "shards": []}'])
def test_a_layout_with_odd_words_is_refused_in_words(layout: ShardLayout, words: str) -> None:
    (layout.folder / "layout.json").write_text(words)
    with pytest.raises(ArtifactError, match="layout"):
        ShardLayout(layout.folder).place_of(0)


@pytest.mark.parametrize("name", ["shard", "span", "digest"])
def test_an_array_of_another_layout_is_found_out(layout: ShardLayout, tmp_path: Path, name: str) -> None:
    write_shards(BODIES[:20], tmp_path / "older", samples_per_shard=10)
    shutil.copy(tmp_path / "older" / f"{name}.npy", layout.folder)
    with pytest.raises(DamagedArtifactError, match="copy the layout again"):
        len(ShardLayout(layout.folder))
    np.save(layout.folder / f"{name}.npy", np.zeros((25, 2), dtype=np.float32))
    with pytest.raises(DamagedArtifactError, match="copy the layout again"):
        len(ShardLayout(layout.folder))


def test_a_writing_over_another_that_is_killed_leaves_no_layout(layout: ShardLayout) -> None:
    def killed() -> Iterator[bytes]:
        yield from [b"another"] * 10
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shards(killed(), layout.folder, samples_per_shard=5)
    with pytest.raises(ArtifactMissingError, match="make it with write_shards"):
        ShardLayout(layout.folder).place_of(0)
