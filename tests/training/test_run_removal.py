"""A run lets go of old letters, payloads and stacks, and of nothing else."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from failsoft.health.clock import ManualClock
from failsoft.training.letters import payloads
from failsoft.training.letters.deadletters import DeadLetters
from failsoft.training.letters.letter import DeadLetter
from failsoft.training.letters.letterbook import read_letter_book
from failsoft.training.loading.bad import BadKind, BadSample
from failsoft.training.loading.sample_letters import SampleLetters, read_sample_letters
from failsoft.training.run_removal import PAYLOADS_FOLDER, LeftRun, let_go

LETTER = DeadLetter(position=0, step=0, rank=0, reason="loss is not finite", sample_ids=(1, 2), sample_count=2)


def run_folder(home: Path) -> Path:
    """Letters of 10, 20 and 30 s, a restart at 15 s, a bad sample at 12 and 40 s, stacks and payloads beside them."""
    folder = home / "runs" / "first"
    letters = DeadLetters(folder / "dead_letters", rank=0)
    letters.write(replace(LETTER, position=1, at_s=10.0))
    letters.resumed(9, at_s=15.0)
    letters.write(replace(LETTER, position=2, at_s=20.0))
    letters.write(replace(LETTER, position=3, at_s=30.0))
    clock = ManualClock(wall_s=12.0)
    samples = SampleLetters(folder / "dead_letters", rank=0, clock=clock)
    samples.write(1, [BadSample(index=1, source="a", kind=BadKind.CHECKSUM, why="early")])
    clock.advance(28.0)
    samples.write(3, [BadSample(index=2, source="a", kind=BadKind.CHECKSUM, why="late")])
    for name in ("dead_letters/payloads/rank-0000-{}.safetensors", "hangs/rank-0-{}.000.txt"):
        for at_s, path in ((10, folder / name.format(10)), (1000, folder / name.format(1000))):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("kept")
            os.utime(path, (at_s, at_s))
    (folder / "hangs" / "rank-1.txt").touch()
    os.utime(folder / "hangs" / "rank-1.txt", (1, 1))
    (folder / "requeue.jsonl").write_text("{}\n")
    return folder


@pytest.mark.parametrize("dry_run", [True, False])
def test_what_is_too_old_goes_and_a_dry_run_counts_it(tmp_path: Path, dry_run: bool) -> None:
    folder = run_folder(tmp_path)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert let_go(folder, letters_s=25.0, stacks_s=25.0, dry_run=dry_run) == LeftRun(letters=4, payloads=1, stacks=1)
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    if dry_run:
        assert after == before
        return
    assert [letter.position for letter in read_letter_book(folder / "dead_letters").letters] == [3]
    assert [letter.why for letter in read_sample_letters(folder / "dead_letters")] == ["late"]
    assert {path.name for path in before.keys() - after.keys()} == {"rank-0000-10.safetensors", "rank-0-10.000.txt"}
    assert let_go(folder, letters_s=25.0, stacks_s=25.0) == LeftRun()


def test_a_file_of_which_nothing_is_left_is_gone_and_without_a_limit_all_stays(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    assert let_go(folder, letters_s=-math.inf, stacks_s=-math.inf) == LeftRun()
    let_go(folder, letters_s=1e9, stacks_s=-math.inf)
    assert list((folder / "dead_letters").glob("*.jsonl")) == []
    assert (folder / "requeue.jsonl").exists()
    assert let_go(tmp_path / "none", letters_s=1e9, stacks_s=1e9) == LeftRun()


def test_letters_that_a_killed_removal_left_aside_are_gone_after_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run_folder(tmp_path)
    before = set(folder.rglob("*"))
    with monkeypatch.context() as killed:
        killed.setattr(Path, "replace", dies)
        killed.setattr(Path, "unlink", dies)
        with pytest.raises(ZeroDivisionError):
            let_go(folder, letters_s=11.0, stacks_s=-math.inf)
    assert set(folder.rglob("*")) - before != set()
    let_go(folder, letters_s=1e9, stacks_s=-math.inf)
    assert set(folder.rglob("*")) - before == set()


def dies(*_: object, **__: object) -> None:
    """As a kill would end it, which runs no handler either."""
    raise ZeroDivisionError


def test_the_folder_of_payloads_has_one_name() -> None:
    assert PAYLOADS_FOLDER == payloads.PAYLOADS_FOLDER
