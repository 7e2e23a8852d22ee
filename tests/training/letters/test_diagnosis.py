from __future__ import annotations

from itertools import product

import pytest

from failsoft.training.letters.diagnosis import Cause, Evidence, Seen, diagnose

BAD, FINE, UNKNOWN = Seen.BAD, Seen.FINE, Seen.UNKNOWN
TRIES = [(), (BAD, BAD), (FINE, FINE), (BAD, FINE), (UNKNOWN, UNKNOWN)]
FRESH = [(), (BAD, BAD), (FINE, FINE), (BAD, FINE), (BAD, UNKNOWN), (UNKNOWN, UNKNOWN)]
ALL = [
    Evidence(
        alleged=alleged,
        state_met=met,
        draws_met=draws,
        as_trained=tries,
        trained_low=low,
        single=single,
        double=double,
        fresh=fresh,
    )
    for alleged, met, draws, tries, low, single, double, fresh in product(
        (True, False), (True, False, None), (True, False), TRIES, (True, False), Seen, Seen, FRESH
    )
]


@pytest.mark.parametrize(
    ("cause", "evidence"),
    [
        (Cause.DATA, Evidence(as_trained=(BAD,), single=BAD, double=BAD, fresh=(BAD, BAD))),
        (Cause.DATA, Evidence(as_trained=(BAD,), single=BAD, double=FINE, fresh=(BAD, BAD))),
        (Cause.DATA, Evidence(as_trained=(BAD,), single=BAD, double=UNKNOWN, fresh=(BAD, BAD))),
        (Cause.DATA, Evidence(as_trained=(), fresh=(BAD, BAD))),
        (Cause.NUMERICS, Evidence(as_trained=(BAD,), trained_low=True, single=FINE, double=FINE, fresh=(FINE,))),
        (Cause.NUMERICS, Evidence(as_trained=(BAD,), single=BAD, double=FINE, fresh=(FINE,))),
        (Cause.STATE, Evidence(as_trained=(BAD,), single=BAD, double=BAD, fresh=(FINE, FINE))),
        (Cause.HARDWARE, Evidence(as_trained=(FINE,), state_met=True, draws_met=True)),
        (Cause.HARDWARE, Evidence(as_trained=(BAD, FINE, BAD))),
        (Cause.HARDWARE, Evidence(as_trained=(BAD,), trained_low=False, single=FINE)),
        (Cause.UNDECIDED, Evidence(as_trained=(FINE,), state_met=False, draws_met=True)),
        (Cause.UNDECIDED, Evidence(as_trained=(FINE,), state_met=None, draws_met=True)),
        (Cause.UNDECIDED, Evidence(as_trained=(FINE,), state_met=True, draws_met=False)),
        (Cause.UNDECIDED, Evidence(as_trained=(FINE,), state_met=True, draws_met=True, alleged=False)),
        (Cause.UNDECIDED, Evidence(as_trained=(BAD,), single=BAD, double=BAD, fresh=(BAD, FINE))),
        (Cause.UNDECIDED, Evidence(as_trained=(BAD,), single=BAD, double=BAD, fresh=(FINE, UNKNOWN))),
        (Cause.UNDECIDED, Evidence(as_trained=(BAD,), single=BAD, double=UNKNOWN, fresh=(FINE, FINE))),
        (Cause.UNDECIDED, Evidence()),
    ],
)
def test_each_kind_of_evidence_has_its_verdict(cause: Cause, evidence: Evidence) -> None:
    found = diagnose(evidence)
    assert found.cause is cause
    assert found.why


def test_a_batch_that_is_fine_is_never_blamed_on_data_numerics_or_state() -> None:
    for evidence in ALL:
        if set(evidence.as_trained) == {FINE}:
            assert diagnose(evidence).cause in {Cause.HARDWARE, Cause.UNDECIDED}


def test_not_reproducible_is_said_only_of_the_very_state_and_draws_or_of_tries_that_differ() -> None:
    for evidence in ALL:
        if diagnose(evidence).cause is Cause.HARDWARE and set(evidence.as_trained) == {FINE}:
            assert (evidence.alleged, evidence.state_met, evidence.draws_met) == (True, True, True)


def test_what_could_not_be_tried_never_decides() -> None:
    for evidence in ALL:
        found = diagnose(evidence).cause
        if found is Cause.DATA:
            assert set(evidence.fresh) == {BAD}
        if found is Cause.STATE:
            assert (set(evidence.fresh), evidence.double) == ({FINE}, BAD)
        if found is Cause.NUMERICS:
            assert FINE in {evidence.single, evidence.double}


def test_other_batches_on_the_same_state_are_told_beside_the_verdict() -> None:
    evidence = Evidence(as_trained=(BAD,), single=BAD, double=BAD, fresh=(FINE,), peers=(BAD, BAD, FINE))
    assert "2 of 3 other batches are bad on it, too" in diagnose(evidence).why
