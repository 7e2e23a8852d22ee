from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from failsoft.errors import ArtifactMissingError, DamagedArtifactError
from failsoft.training.letters.letter import DeadLetter
from failsoft.training.letters.payloads import PAYLOADS_FOLDER, Payloads, read_payload


def letter(position: int, payload: str | None) -> DeadLetter:
    return DeadLetter(position=position, step=0, rank=0, reason="loss is not finite", sample_ids=(1,), payload=payload)


def batch(count: int = 4) -> dict[str, torch.Tensor]:
    return {"ids": torch.arange(count), "mask": torch.ones(count, dtype=torch.bool)}


def test_the_inputs_of_a_dead_batch_come_back_as_they_were(tmp_path: Path) -> None:
    name = Payloads(tmp_path, rank=0, max_count=2, max_bytes=10_000).keep(7, batch())
    back = read_payload(tmp_path, letter(7, name))
    assert all(torch.equal(back[key], tensor) for key, tensor in batch().items())
    assert name is not None
    assert name.endswith(".safetensors")


def test_the_oldest_go_first_and_other_ranks_keep_theirs(tmp_path: Path) -> None:
    Payloads(tmp_path, rank=1, max_count=9, max_bytes=10_000).keep(1, batch())
    shelf = Payloads(tmp_path, rank=0, max_count=2, max_bytes=10_000)
    names = [shelf.keep(position, batch()) for position in (3, 4, 5, 5)]
    there = sorted(path.name for path in (tmp_path / PAYLOADS_FOLDER).iterdir())
    assert there == [names[1], names[2], "rank-0001-000000000001.safetensors"]
    with pytest.raises(ArtifactMissingError, match="max_payloads"):
        read_payload(tmp_path, letter(3, names[0]))


def test_the_folder_stays_within_its_bytes(tmp_path: Path) -> None:
    shelf = Payloads(tmp_path, rank=0, max_count=100, max_bytes=3000)
    for position in range(20):
        assert shelf.keep(position, batch(100)) is not None  # 900 bytes of tensors each
    assert sum(path.stat().st_size for path in (tmp_path / PAYLOADS_FOLDER).iterdir()) <= 3 * 1200


@pytest.mark.parametrize(("max_count", "max_bytes"), [(0, 10_000), (5, 10)])
def test_what_is_not_wanted_or_too_large_is_not_kept(tmp_path: Path, max_count: int, max_bytes: int) -> None:
    assert Payloads(tmp_path, rank=0, max_count=max_count, max_bytes=max_bytes).keep(1, batch()) is None
    assert not (tmp_path / PAYLOADS_FOLDER).exists()


def test_the_newest_stay_also_when_a_restart_meets_earlier_positions(tmp_path: Path) -> None:
    before = Payloads(tmp_path, rank=0, max_count=2, max_bytes=10_000)
    for age_s, position in ((9, 100), (8, 101)):
        name = before.keep(position, batch())
        os.utime(tmp_path / PAYLOADS_FOLDER / str(name), (1e9 - age_s, 1e9 - age_s))
    after = Payloads(tmp_path, rank=0, max_count=2, max_bytes=10_000)
    kept = {after.keep(position, batch()) for position in (50, 51)}
    assert {path.name for path in (tmp_path / PAYLOADS_FOLDER).iterdir()} == kept


def test_what_a_kill_tore_goes_and_other_ranks_files_in_writing_stay(tmp_path: Path) -> None:
    folder = tmp_path / PAYLOADS_FOLDER
    folder.mkdir()
    for rank, position in ((0, 1), (0, 2), (1, 1)):
        (folder / f".rank-{rank:04d}-{position:012d}.safetensors").write_bytes(b"half")
    name = Payloads(tmp_path, rank=0, max_count=2, max_bytes=10_000).keep(7, batch())
    assert sorted(path.name for path in folder.iterdir()) == [".rank-0001-000000000001.safetensors", name]


def test_headers_count_as_bytes_too(tmp_path: Path) -> None:
    shelf = Payloads(tmp_path, rank=0, max_count=100, max_bytes=400)
    for position in range(20):
        assert shelf.keep(position, batch(1)) is not None
    assert sum(path.stat().st_size for path in (tmp_path / PAYLOADS_FOLDER).iterdir()) <= 400
    assert Payloads(tmp_path, rank=1, max_count=9, max_bytes=50).keep(1, batch(1)) is None


def test_a_disk_that_refuses_costs_the_payload_and_is_said_once(tmp_path: Path) -> None:
    (tmp_path / PAYLOADS_FOLDER).touch()
    said: list[str] = []
    shelf = Payloads(tmp_path, rank=0, max_count=2, max_bytes=10_000, on_lost=said.append)
    assert (shelf.keep(1, batch()), shelf.keep(2, batch())) == (None, None)
    assert (shelf.lost, len(said)) == (2, 1)


def test_a_torn_payload_is_said_to_be_torn(tmp_path: Path) -> None:
    name = Payloads(tmp_path, rank=0, max_count=2, max_bytes=10_000).keep(7, batch())
    (tmp_path / PAYLOADS_FOLDER / str(name)).write_bytes(b"half")
    with pytest.raises(DamagedArtifactError, match="letter itself still stands"):
        read_payload(tmp_path, letter(7, name))


def test_a_name_never_leads_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.safetensors").write_bytes(b"x")
    with pytest.raises(ArtifactMissingError):
        read_payload(tmp_path, replace(letter(7, None), payload="../secret.safetensors"))
