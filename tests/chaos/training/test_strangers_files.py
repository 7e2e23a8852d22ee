"""Files of a stranger's run: links out of it, contents that nobody expects."""

from __future__ import annotations

import io
import os
import random
import struct
import zipfile
from pathlib import Path

import pytest
import torch

from failsoft.drills.fault import DrillFault, Phase, PlannedFault
from failsoft.drills.training.damage import damage
from failsoft.drills.training.folder_look import newest_large, torn_files

TORN = PlannedFault(kind=DrillFault.TORN_CHECKPOINT, phase=Phase.TRAINING)
FLIPPED = PlannedFault(kind=DrillFault.FLIPPED_CHECKPOINT, phase=Phase.TRAINING)


def test_pretrained_weights_that_a_run_links_to_are_never_damaged(tmp_path: Path) -> None:
    run, users = tmp_path / "run", tmp_path / "pretrained.pt"
    run.mkdir()
    torch.save(torch.zeros(500), users)
    before = users.read_bytes()
    (run / "base.pt").symlink_to(users)
    assert newest_large(run) is None
    os.link(users, run / "copy.pt")
    victim = newest_large(run)
    assert victim == run / "copy.pt"
    damage(victim, TORN)
    assert users.read_bytes() == before
    assert victim.stat().st_size < len(before)


def test_a_link_to_another_file_of_the_run_stays_one_and_its_file_is_damaged(tmp_path: Path) -> None:
    torch.save(torch.zeros(500), tmp_path / "step-3.pt")
    (tmp_path / "last.pt").symlink_to("step-3.pt")
    whole = (tmp_path / "step-3.pt").stat().st_size
    damage(tmp_path / "last.pt", TORN)
    assert (tmp_path / "last.pt").is_symlink()
    assert (tmp_path / "step-3.pt").stat().st_size == whole // 2


@pytest.mark.parametrize("header", [b"[]", b'{"a":{}}', b'{"a":1}', b"\xff\xfe"])
def test_a_tensor_file_with_an_odd_header_is_torn_and_ends_no_drill(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 8)
    assert len(torn_files(tmp_path)) == 1


def test_an_archive_with_any_bits_changed_ends_no_drill(tmp_path: Path) -> None:
    made, chance = io.BytesIO(), random.Random(0)
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/0", chance.randbytes(2000))
        archive.writestr("x", "a" * 2000)
    path = tmp_path / "a.zip"
    for _ in range(300):
        content = bytearray(made.getvalue())
        for _ in range(chance.randint(1, 4)):
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        torn_files(tmp_path)
        before = path.read_bytes()
        damage(path, FLIPPED)
        assert path.read_bytes() != before
