"""A progress file of odd numbers, or a position dated in the future, ends no look at a run and makes it no better."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest

from failsoft.health.ledger import Event, Side
from failsoft.training.accounting.stretches import Part
from failsoft.training.accounting.whereabouts import Whereabouts, whereabouts
from failsoft.training.progress import PROGRESS_NAME, Phase, PositionMark, Progress

NOW_S = 1_000.0
HOSTILE = ("-1", "-1e300", "NaN", "Infinity", "1e308", "1" + "0" * 400, '"23"', "[]", "{}", "null", "true", "1.5")
FIELDS = sorted(asdict(Progress()))


def look(folder: Path, *, seen_s: float = 990.0, changes: dict[str, str] | None = None) -> Whereabouts:
    """At a run that has worked since the 900th second; ``changes`` of its progress file are JSON."""
    run = folder / "run"
    run.mkdir(parents=True, exist_ok=True)
    body = {
        name: json.dumps(value) for name, value in asdict(Progress(phase=Phase.TRAINING, updated_at_s=990.0)).items()
    }
    words = ", ".join(f'"{name}": {value}' for name, value in (body | (changes or {})).items())
    (run / PROGRESS_NAME).write_text(f"{{{words}}}", "utf-8")
    with PositionMark(run).open() as put:
        put(7)
    os.utime(run / "position", (seen_s, seen_s))
    told = (("attempt_began", 900.0), ("workers_up", 901.0), ("run_started", 902.0))
    events = [
        Event(at_s=at_s, side=Side.TRAINING, kind=kind, subject="run", why="", data={"position": 0})
        for kind, at_s in told
    ]
    return whereabouts(run, events, now_s=NOW_S)


@pytest.mark.parametrize("field", FIELDS)
def test_no_value_in_a_progress_file_ends_a_look(tmp_path: Path, field: str) -> None:
    for value in HOSTILE:
        json.dumps(look(tmp_path, changes={field: value}).to_json())


@pytest.mark.parametrize("seen_s", [2e9, 1e10])
def test_a_position_that_was_set_in_the_future_is_no_work_until_then(tmp_path: Path, seen_s: float) -> None:
    assert look(tmp_path).account.seconds(Part.PRODUCTIVE) == 88.0
    assert look(tmp_path, seen_s=seen_s).account.seconds(Part.PRODUCTIVE) in {None, 0.0}
