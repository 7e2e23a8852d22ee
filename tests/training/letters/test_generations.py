"""A letter that is written or read while its file turns over is neither lost nor torn."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from failsoft.health.clock import ManualClock
from failsoft.training.letters.deadletters import DeadLetters, LetterPolicy
from failsoft.training.letters.letter import DeadLetter
from failsoft.training.letters.letterbook import read_letter_book
from failsoft.training.loading.bad import BadKind, BadSample
from failsoft.training.loading.sample_letters import SampleLetters, read_sample_letters

MOST_BYTES = 4096


class Dead:
    """Letters of batches."""

    pattern = "rank-0000.jsonl"

    def write(self, folder: Path, number: int) -> None:
        letter = DeadLetter(position=number, step=1, rank=0, reason="loss is not finite", sample_ids=(4,))
        DeadLetters(folder, rank=0, policy=LetterPolicy(max_file_bytes=MOST_BYTES)).write(letter)

    def read(self, folder: Path) -> list[int]:
        book = read_letter_book(folder)
        assert book.torn_lines == 0
        return [letter.position for letter in book.letters]


class OfSamples:
    """Letters of single samples."""

    pattern = "samples-rank-0000.jsonl"

    def write(self, folder: Path, number: int) -> None:
        letters = SampleLetters(folder, rank=0, clock=ManualClock(), max_file_bytes=MOST_BYTES)
        letters.write(number, [BadSample(index=1, source="s", kind=BadKind.RAISED, why="torn")])

    def read(self, folder: Path) -> list[int]:
        return [letter.position for letter in read_sample_letters(folder)]


KINDS = [Dead(), OfSamples()]


def filled(kind: Dead | OfSamples, folder: Path) -> int:
    """Write until the next letter turns the file over; returns how many there are."""
    kind.write(folder, 0)
    path = folder / kind.pattern
    size, number = path.stat().st_size + 16, 1
    while path.stat().st_size + size <= MOST_BYTES:
        kind.write(folder, number)
        number += 1
    assert sorted(path.name for path in folder.glob("*.jsonl")) == [kind.pattern]
    return number


@pytest.mark.parametrize("kind", KINDS, ids=["batches", "samples"])
def test_two_that_turn_a_file_over_at_once_lose_none_of_its_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Dead | OfSamples
) -> None:
    count = filled(kind, tmp_path)
    replace, others = Path.replace, list[threading.Thread]()

    def after_another(path: Path, target: Path) -> Path:
        if not others:
            others.append(threading.Thread(target=kind.write, args=(tmp_path, count)))
            others[0].start()
            others[0].join(0.3)  # it waits, or it has done the same by then
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", after_another)
    kind.write(tmp_path, count + 1)
    others[0].join()
    assert sorted(kind.read(tmp_path)) == list(range(count + 2))


def by_a_writer(kind: Dead | OfSamples, folder: Path, number: int) -> None:
    kind.write(folder, number)


def and_no_more(kind: Dead | OfSamples, folder: Path, _number: int) -> None:
    path = folder / kind.pattern
    path.replace(path.with_suffix(".old.jsonl"))


@pytest.mark.parametrize("kind", KINDS, ids=["batches", "samples"])
@pytest.mark.parametrize("turned", [by_a_writer, and_no_more])
@pytest.mark.parametrize("at", [0, 1])
def test_a_file_that_is_turned_over_while_it_is_read_shows_all_its_letters_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: Dead | OfSamples,
    turned: Callable[[Dead | OfSamples, Path, int], None],
    at: int,
) -> None:
    count, opened, opens = filled(kind, tmp_path), Path.open, list[Path]()

    def turning(path: Path, *args: Any, **options: Any) -> Any:
        if path.suffix != ".jsonl":
            return opened(path, *args, **options)
        opens.append(path)
        if len(opens) == at + 1:
            turned(kind, tmp_path, count)
        return opened(path, *args, **options)

    monkeypatch.setattr(Path, "open", turning)
    found = kind.read(tmp_path)
    assert [number for number in found if number < count] == list(range(count))


def test_a_letter_is_a_line_of_json_in_the_newer_file(tmp_path: Path) -> None:
    Dead().write(tmp_path, 7)
    assert json.loads((tmp_path / "rank-0000.jsonl").read_text("utf-8"))["position"] == 7
