from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.drills.catalogue import TRAINING, entries, entry_of, listing
from failsoft.drills.fault import DrillFault, Phase, PlannedFault, Side, from_text, to_text
from failsoft.drills.outcome import Outcome, not_tried
from failsoft.errors import ConfigError

FAULTS = st.builds(
    PlannedFault,
    kind=st.sampled_from(list(DrillFault)),
    phase=st.sampled_from(list(Phase)),
    at=st.floats(0.0, 1.0),
    seed=st.integers(0, 2**31),
    arguments=st.dictionaries(st.text(max_size=5), st.one_of(st.text(max_size=5), st.floats(-1e9, 1e9)), max_size=3),
)
NAN = PlannedFault(kind=DrillFault.NAN, phase=Phase.TRAINING)
BAD = Outcome(faults=(NAN,), survived=False, seconds=1.0, why="other weights")


@given(st.lists(FAULTS, max_size=4).map(tuple))
def test_planned_faults_come_back_from_their_json_and_hash_as_they_compare(faults: tuple[PlannedFault, ...]) -> None:
    assert from_text(to_text(faults)) == faults
    assert {*from_text(to_text(faults))} == {*faults}


@pytest.mark.parametrize("at", [-0.1, 1.1, math.nan])
def test_a_place_outside_of_its_phase_is_refused(at: float) -> None:
    with pytest.raises(ConfigError, match="at is"):
        PlannedFault(kind=DrillFault.NAN, phase=Phase.TRAINING, at=at)


def test_a_negative_seed_and_an_argument_that_is_no_number_are_refused() -> None:
    with pytest.raises(ConfigError, match="seed is -1"):
        PlannedFault(kind=DrillFault.NAN, phase=Phase.TRAINING, seed=-1)
    with pytest.raises(ConfigError, match="factor is nan"):
        PlannedFault(kind=DrillFault.SPIKE, phase=Phase.TRAINING, arguments={"factor": math.nan})
    with pytest.raises(ConfigError, match="use a number"):
        PlannedFault(kind=DrillFault.SPIKE, phase=Phase.TRAINING, arguments={"factor": "big"}).number("factor", 1.0)


@pytest.mark.parametrize(
    "text", ["", "{}", "[3]", '[{"kind": "nan"}]', '[{"kind": "no", "phase": "training"}]', '[{"kind": "nan", "x": 1}]']
)
def test_what_is_no_list_of_planned_faults_is_refused_in_words(text: str) -> None:
    with pytest.raises(ConfigError):
        from_text(text)


def test_every_fault_is_in_the_table_of_a_side_with_phases_and_words() -> None:
    assert {entry.kind for entry in listing()} == set(DrillFault)
    assert all(entry.phases and entry.does and entry.asks for entry in listing())
    assert [entry.kind for entry in entries(Side.TRAINING)] == list(TRAINING)
    with pytest.raises(ConfigError, match="no fault of the training side"):
        entry_of(DrillFault.OVERLOAD, Side.TRAINING)


@pytest.mark.parametrize("count", ["lost", "repeated", "torn", "left"])
def test_an_outcome_that_lost_or_left_something_can_not_have_survived(count: str) -> None:
    with pytest.raises(ConfigError, match="did not survive"):
        replace(BAD, **{count: 1}, survived=True)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="starts at 0"):
        replace(BAD, **{count: -1})  # type: ignore[arg-type]


def test_undecided_is_bad_and_not_tried_is_neither_good_nor_bad() -> None:
    undecided = Outcome(faults=(NAN,), survived=None, seconds=0.0, why="the record can't be read")
    skipped = not_tried((NAN,), "there is no such phase")
    assert (undecided.word, undecided.good, undecided.bad) == ("undecided", False, True)
    assert (skipped.word, skipped.good, skipped.bad) == ("not tried", False, False)
    with pytest.raises(ConfigError, match="never tried"):
        Outcome(faults=(NAN,), survived=True, seconds=0.0, why="", skipped=True)
    with pytest.raises(ConfigError, match="monotonic"):
        Outcome(faults=(NAN,), survived=True, seconds=math.nan, why="")
