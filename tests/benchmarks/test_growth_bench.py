"""The growth benchmark finds exponents that are known, calls what grows by its name, and draws."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

from failsoft.health.ledger import read_ledger
from tests.benchmarks.growth_curve import COLUMNS, Curve, curve
from tests.benchmarks.growth_picture import draw_curves
from tests.benchmarks.growth_shelves import write_ledger
from tests.benchmarks.growth_training import SHAPES, parameters

SIZES = (10.0, 100.0, 1000.0, 10_000.0, 100_000.0)


def powers(exponent: float, *, allowed: float, noise: float = 0.0, constant: float = 0.0, seed: int = 1) -> Curve:
    rng = random.Random(seed)
    costs = [1e-6 * (constant + size**exponent) * math.exp(rng.gauss(0.0, noise)) for size in SIZES]
    return curve("cost", "things", SIZES, costs, allowed=allowed)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
def test_the_exponent_of_a_power_is_found_and_lies_in_nineteen_of_twenty_intervals_under_noise(exponent: float) -> None:
    assert powers(exponent, allowed=1.0).exponent.value == pytest.approx(exponent)
    fits = [powers(exponent, allowed=1.0, noise=0.1, seed=seed).exponent for seed in range(400)]
    held = sum(fit.low < exponent < fit.high for fit in fits) / len(fits)
    assert 0.92 < held < 0.98


def test_a_square_where_a_line_is_allowed_grows_faster_and_a_line_is_as_expected() -> None:
    assert powers(2.0, allowed=1.0, noise=0.05).verdict == "grows faster"
    assert powers(1.0, allowed=1.0, noise=0.05).verdict == "as expected"
    assert powers(0.0, allowed=0.0, noise=0.02).verdict == "as expected"


def test_a_square_that_a_constant_hides_at_small_sizes_is_seen_at_the_end() -> None:
    hidden = powers(2.0, allowed=1.0, constant=1e8)
    assert hidden.at_the_end > 1.6
    assert hidden.verdict != "as expected"


def test_what_did_not_fit_is_left_out_and_told() -> None:
    found = curve("cost", "things", (1.0, 10.0, 100.0), (1.0, 2.0, math.nan), allowed=1.0)
    assert (found.sizes, found.note) == ((1.0, 10.0), "did not fit: 100")
    assert found.exponent.high == math.inf
    assert json.loads(json.dumps(found.as_json()))["exponent"]["high"] is None
    assert len(found.row()) == len(COLUMNS)


def test_a_single_size_is_no_curve() -> None:
    with pytest.raises(ValueError, match="give two or more"):
        curve("cost", "things", (1.0, 10.0), (1.0, math.nan), allowed=1.0)


def test_the_picture_is_one_file(tmp_path: Path) -> None:
    draw_curves("all", [powers(1.0, allowed=1.0)] * 4, tmp_path / "new" / "all.png")
    assert (tmp_path / "new" / "all.png").read_bytes().startswith(b"\x89PNG")


def test_the_ledger_that_is_measured_is_a_whole_one(tmp_path: Path) -> None:
    write_ledger(tmp_path / "ledger.jsonl", 500)
    reading = read_ledger(tmp_path / "ledger.jsonl")
    assert (len(reading.events), reading.torn_lines) == (500, 0)
    assert {event.subject for event in reading.events if event.side == "training"} == {"run-000"}


def test_models_go_from_a_fifth_of_a_million_to_three_hundred_million_parameters() -> None:
    sizes = [parameters(shape) for shape in SHAPES]
    assert sizes[0] == pytest.approx(0.2e6, rel=0.02)
    assert sizes[-1] == pytest.approx(302e6, rel=0.01)
