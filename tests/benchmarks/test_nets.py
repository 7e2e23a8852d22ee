"""Each kind of malformed traffic is noticed and mostly won back: proven on the embedded corpus, in seconds."""

from __future__ import annotations

import math
from functools import cache

import pytest

from failsoft.models.malformed import Kind
from tests.benchmarks.nets_noticing import AllNets, Confidence, false_alarms, until_noticed
from tests.benchmarks.nets_trial import Run, Trial, trial_of, won_back
from tests.models.toys import toy_corpus, toy_predictor


@cache
def trial() -> Trial:
    return trial_of(toy_corpus(), toy_predictor(), most=150)


@cache
def clean() -> Run:
    return trial().clean()


@cache
def runs(kind: Kind) -> tuple[Run, Run]:
    made = trial().malformed(kind, 1)
    return trial().nets_off(made), trial().nets_on(made)


@pytest.mark.parametrize("kind", Kind)
def test_without_the_nets_malformed_text_costs_slots(kind: Kind) -> None:
    off, _ = runs(kind)
    assert off.quality.slot_f1 < clean().quality.slot_f1 - 0.1


@pytest.mark.parametrize("kind", Kind)
def test_the_nets_win_most_of_the_lost_slots_back(kind: Kind) -> None:
    off, on = runs(kind)
    assert won_back(clean().quality.slot_f1, off.quality.slot_f1, on.quality.slot_f1) >= 0.6


@pytest.mark.parametrize("kind", Kind)
def test_the_nets_together_notice_within_500_requests(kind: Kind) -> None:
    _, on = runs(kind)
    found = until_noticed(lambda: AllNets(trial().baseline), clean().answers, on.answers, waves=5)
    assert found.slowest <= 500
    assert found.signal.startswith(("trip", "warning"))


def test_confidence_alone_sleeps_through_traffic_that_was_repaired() -> None:
    _, on = runs(Kind.UNSEEN)
    found = until_noticed(lambda: Confidence(trial().baseline), clean().answers, on.answers, waves=5)
    assert math.isinf(found.median)


def test_confidence_alone_sleeps_through_traffic_of_which_few_words_are_hit_and_the_nets_do_not() -> None:
    made = trial().malformed(Kind.GLUED_EMOJI, 1, rate=0.15)
    off, on = trial().nets_off(made), trial().nets_on(made)
    assert off.quality.slot_f1 < clean().quality.slot_f1 - 0.05
    alone = until_noticed(lambda: Confidence(trial().baseline), clean().answers, off.answers, waves=5)
    together = until_noticed(lambda: AllNets(trial().baseline), clean().answers, on.answers, waves=5)
    assert math.isinf(alone.median)
    assert together.slowest <= 500


def test_clean_traffic_sets_nothing_off() -> None:
    found = false_alarms(trial().baseline, clean().answers, requests=20_000)
    assert (found.trips, found.warnings) == (0, 0)


def test_what_is_won_back_is_unknown_where_nothing_was_lost() -> None:
    assert math.isnan(won_back(0.9, 0.9, 0.9))
    assert won_back(0.9, 0.5, 0.8) == pytest.approx(0.75)
