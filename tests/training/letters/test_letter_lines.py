"""Files that other hands wrote, or tore: what is no letter, entry or event costs that line and nothing else."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path

import pytest

from failsoft.errors import DamagedArtifactError
from failsoft.health.ledger import Event, Side, read_ledger
from failsoft.training.accounting.exactness import verify
from failsoft.training.accounting.goodput import account
from failsoft.training.letters.deadletters import DeadLetters
from failsoft.training.letters.history import history_of
from failsoft.training.letters.letter import DeadLetter
from failsoft.training.letters.letter_lines import RESUMED_AT
from failsoft.training.letters.letterbook import LetterBook, read_letter_book
from failsoft.training.letters.requeue import REQUEUE_NAME, read_requeue
from failsoft.training.progress import PROGRESS_NAME, Phase, Progress, read_progress
from failsoft.training.summary import summarise

NO_OBJECT = [b"[1]", b'"text"', b"5", b"null", b"[" * 200_000, b"\xff\xfe", b'{"position": 1']
WRONG: dict[str, list[object]] = {
    "position": ["3", 2.5, None, -1, 10**40, True],
    "rank": ["x", None],
    "world": [0, "x"],
    "step": [[1]],
    "reason": [None, [1], ""],
    "sample_ids": ["123", [1.5], [math.inf], None],
    "loss": ["x", math.nan],
    "at_s": ["x", math.nan, 1e300],
    "sources": [[1], {"a": "b"}],
    "generators": [[1], {"cpu": 3}],
    "payload": [5],
    "sample_count": ["x"],
}
LETTER = DeadLetter(position=3, step=2, rank=0, reason="loss is not finite", sample_ids=(4, 5), sample_count=2)
ENTRY = {"position_of_letter": 3, "sample_indices": [4, 5], "without": [], "why": "", "at_s": 1.0}
NO_ENTRIES: list[dict[str, object]] = [
    {"sample_indices": [math.inf]},
    {"sample_indices": []},
    {"without": None},
    {"position_of_letter": 1.5},
    {"at_s": math.nan},
]


def book_of(folder: Path, line: bytes) -> LetterBook:
    (folder / "rank-0000.jsonl").write_bytes(line + b"\n")
    DeadLetters(folder, rank=0).write(LETTER)
    return read_letter_book(folder)


@pytest.mark.parametrize("line", NO_OBJECT)
def test_a_line_that_is_no_letter_hides_no_other_letter_and_is_counted(tmp_path: Path, line: bytes) -> None:
    book = book_of(tmp_path, line)
    assert (book.letters, book.torn_lines) == ((LETTER,), 1)


@pytest.mark.parametrize(("field", "value"), [(field, value) for field in WRONG for value in WRONG[field]])
def test_a_letter_with_a_field_of_another_type_is_no_letter(tmp_path: Path, field: str, value: object) -> None:
    book = book_of(tmp_path, json.dumps(asdict(LETTER) | {"position": 7, field: value}).encode())
    assert (book.letters, book.torn_lines) == ((LETTER,), 1)


@pytest.mark.parametrize("mark", [{RESUMED_AT: math.inf, "at_s": 1}, {RESUMED_AT: 0}, {RESUMED_AT: 0, "at_s": "x"}])
def test_a_mark_that_says_nothing_overtakes_nothing(tmp_path: Path, mark: dict[str, object]) -> None:
    DeadLetters(tmp_path, rank=0).write(LETTER)
    with (tmp_path / "rank-0000.jsonl").open("a", encoding="utf-8") as out:
        out.write(json.dumps(mark) + "\n")
    assert read_letter_book(tmp_path).letters == (LETTER,)


def test_a_file_named_by_a_digit_that_is_no_number_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "rank-².jsonl").write_text("{}", "utf-8")
    assert read_letter_book(tmp_path) == LetterBook()


@pytest.mark.parametrize("wrong", [*NO_OBJECT, *(json.dumps(ENTRY | change).encode() for change in NO_ENTRIES)])
def test_a_line_that_is_no_entry_is_not_trained_on(tmp_path: Path, wrong: bytes) -> None:
    (tmp_path / REQUEUE_NAME).write_bytes(wrong + b"\n" + json.dumps(ENTRY).encode() + b"\n")
    assert [entry.sample_indices for entry in read_requeue(tmp_path)] == [(4, 5)]


@pytest.mark.parametrize(
    "line", [*NO_OBJECT, b'{"v":1,"at_s":1e999,"side":"training","kind":"a","subject":"r","why":"","data":{}}']
)
def test_a_line_that_is_no_event_is_passed_over_and_counted(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "ledger.jsonl").write_bytes(line + b"\n")
    assert (read_ledger(tmp_path / "ledger.jsonl").events, read_ledger(tmp_path / "ledger.jsonl").torn_lines) == ((), 1)


@pytest.mark.parametrize("change", [{"position": "x"}, {"total": None}, {"updated_at_s": math.nan}, {"step": 1.5}])
def test_progress_of_other_types_is_none(tmp_path: Path, change: dict[str, object]) -> None:
    body = asdict(Progress(phase=Phase.TRAINING, position=3)) | change
    (tmp_path / PROGRESS_NAME).write_text(json.dumps(body), "utf-8")
    assert read_progress(tmp_path) is None


def test_progress_keeps_its_numbers_when_the_loss_is_none(tmp_path: Path) -> None:
    body = asdict(Progress(phase=Phase.TRAINING, position=3)) | {"loss": math.nan}
    (tmp_path / PROGRESS_NAME).write_text(json.dumps(body), "utf-8")
    assert read_progress(tmp_path) == Progress(phase=Phase.TRAINING, position=3)


@pytest.mark.parametrize("data", [{}, {"dropped_bytes": 70000}, {"position": "x", "rollbacks": [], "step": None}])
def test_events_that_lost_their_data_still_add_up(data: dict[str, object]) -> None:
    kinds = (
        "run_started",
        "batch_refused",
        "rolled_back",
        "checkpoint_published",
        "checkpoint_handed_over",
        "planned_fault",
        "attempt_failed",
        "run_started",
        "run_finished",
    )
    events = [
        Event(at_s=float(second), side=Side.TRAINING, kind=kind, subject="r", why="", data=data)
        for second, kind in enumerate(kinds)
    ]
    summary, time = summarise(events, run="r"), account(events, run="r")
    assert (summary.attempts, summary.finished) == (2, True)
    assert sum(value for value in time.micros.values() if value is not None) == time.wall_micros == 8_000_000
    assert history_of(LetterBook(), events).refused == {}


BEGUN: dict[str, object] = {
    "position": 0,
    "world": 1,
    "total_batches": 4,
    "num_samples": 8,
    "global_batch": 4,
    "seed": 1,
}


@pytest.mark.parametrize(
    "marks",
    [
        [{"begun": {}}],
        [{"begun": BEGUN | {"position": "x"}}],
        [{"begun": BEGUN | {"position": 2**62, "total_batches": 2**62}}],
        [{"begun": BEGUN | {"world": 0}}],
        [{"begun": BEGUN | {"world": 2**40}}],
        [{"begun": BEGUN | {"global_batch": 0}}],
        [{"begun": BEGUN | {"position": math.inf}}],
        [{"begun": BEGUN}, {"saved": 4}],
    ],
)
def test_a_record_of_consumed_samples_that_no_run_left_proves_nothing(
    tmp_path: Path, marks: list[dict[str, object]]
) -> None:
    folder = tmp_path / "consumed" / "generation-000001"
    folder.mkdir(parents=True)
    lines = b"[" * 200_000 + b"\n" + b"".join(json.dumps(mark).encode() + b"\n" for mark in marks)
    (folder / "marks.jsonl").write_bytes(lines)
    with pytest.raises(DamagedArtifactError, match="nothing can be proven"):
        verify(tmp_path)
