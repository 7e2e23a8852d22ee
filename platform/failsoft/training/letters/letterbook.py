"""Reads the dead letters of a run: which still stand, which a restart overtook, which belong together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from failsoft.errors import ConfigError
from failsoft.training.letters.generations import lines_of, newer_of
from failsoft.training.letters.letter import DeadLetter
from failsoft.training.letters.letter_lines import RESUMED_AT, parse_line

LETTERS_FOLDER = "dead_letters"
"""Where a run keeps its letters, below its own folder."""


@dataclass(frozen=True, kw_only=True)
class LetterBook:
    """All letters of a run that could be read, by position and rank; the last one of each."""

    letters: tuple[DeadLetter, ...] = ()
    """Of batches that left no trace in the weights."""
    overtaken: tuple[DeadLetter, ...] = ()
    """Of batches that the run came to again after a restart and did not refuse again (or did not come to yet)."""
    torn_lines: int = 0
    """Lines that are no letters."""

    def at(self, position: int) -> tuple[DeadLetter, ...]:
        """The letters of one batch, by rank; empty when there is none."""
        return tuple(letter for letter in self.letters if letter.position == position)

    def of_batch(self, position: int) -> tuple[DeadLetter, ...]:
        """The letters of one batch, also overtaken ones.

        Raises:
            ConfigError: there is none; names the positions that there are.
        """
        found = self.at(position) or tuple(letter for letter in self.overtaken if letter.position == position)
        if not found:
            raise ConfigError(f"no dead letter is of position {position}; there are: {self._positions()}")
        return found

    def _positions(self) -> str:
        known = sorted({letter.position for letter in (*self.letters, *self.overtaken)})
        more = f" and {len(known) - 12} more (failsoft dlq ls)" if len(known) > 12 else ""
        return (", ".join(map(str, known[:12])) or "none") + more


@dataclass(frozen=True, kw_only=True)
class Burst:
    """Letters of batches in a row, of the same kind (refused, or undone)."""

    letters: tuple[DeadLetter, ...]

    @property
    def first(self) -> int:
        """Position of the first batch."""
        return self.letters[0].position

    @property
    def last(self) -> int:
        """Position of the last batch."""
        return self.letters[-1].position

    @property
    def batches(self) -> int:
        """How many batches."""
        return self.last - self.first + 1


def read_letter_book(folder: Path) -> LetterBook:
    """Read all letters below ``folder``; an absent folder holds none. Torn lines are passed over and counted."""
    ranks = sorted(_by_rank(folder).items())
    files = [_File(rank, [parse_line(line) for line in lines_of(path) if line.strip()]) for rank, path in ranks]
    standing: dict[tuple[int, int], DeadLetter] = {}
    overtaken: dict[tuple[int, int], DeadLetter] = {}
    for file in files:
        file.sort_into(standing, overtaken)
    marks = {file.rank: list(file.marks()) for file in files}
    foreign = {rank: _marks_of_others(rank, marks) for rank in marks}
    for key, letter in list(standing.items()):
        if any(_overtakes(mark, letter) for mark in foreign[key[1]]):
            overtaken[key] = standing.pop(key)  # its own rank was not there to leave a mark: the world became smaller
    return LetterBook(
        letters=tuple(standing[key] for key in sorted(standing)),
        overtaken=tuple(overtaken[key] for key in sorted(overtaken.keys() - standing.keys())),
        torn_lines=sum(file.torn() for file in files),
    )


def read_dead_letters(folder: Path) -> list[DeadLetter]:
    """The letters that stand, by position and rank; the last one of each. Torn lines are passed over."""
    return list(read_letter_book(folder).letters)


def bursts(letters: Iterable[DeadLetter]) -> list[Burst]:
    """Letters, sorted by position, gathered where the positions follow each other and the kind is the same."""
    found: list[list[DeadLetter]] = []
    for letter in letters:
        before = found[-1][-1] if found else None
        if before is not None and letter.position <= before.position + 1 and letter.refused == before.refused:
            found[-1].append(letter)
        else:
            found.append([letter])
    return [Burst(letters=tuple(group)) for group in found]


@dataclass(frozen=True)
class _File:
    """The lines of one rank, both generations, in order of writing; None where a line is torn."""

    rank: int
    lines: list[DeadLetter | dict[str, Any] | None]

    def marks(self) -> Iterator[dict[str, Any]]:
        return (line for line in self.lines if isinstance(line, dict))

    def torn(self) -> int:
        return self.lines.count(None)

    def sort_into(
        self, standing: dict[tuple[int, int], DeadLetter], overtaken: dict[tuple[int, int], DeadLetter]
    ) -> None:
        for line in self.lines:
            if isinstance(line, DeadLetter):
                key = (line.position, line.rank)
                if line.refused or key not in standing:  # what was refused had no update that could be undone
                    standing[key] = line
            elif line is not None:
                late = [one for one in standing if one[1] == self.rank and one[0] >= line[RESUMED_AT]]
                overtaken |= {one: standing.pop(one) for one in late}


def _marks_of_others(rank: int, marks: dict[int, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Marks that this rank has not left itself; its own are in the order of its letters, whatever the clocks say."""
    own = {mark[RESUMED_AT] for mark in marks[rank]}
    return [mark for other in marks for mark in marks[other] if mark[RESUMED_AT] not in own]


def _overtakes(mark: dict[str, Any], letter: DeadLetter) -> bool:
    return bool(mark["at_s"] > letter.at_s and letter.position >= mark[RESUMED_AT])


def _by_rank(folder: Path) -> dict[int, Path]:
    found = {newer_of(path) for path in folder.glob("rank-*.jsonl")}
    ranks = ((path.stem.removeprefix("rank-"), path) for path in sorted(found))
    return {int(digits): path for digits, path in ranks if digits.isdecimal()}
