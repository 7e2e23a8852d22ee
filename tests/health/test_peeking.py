"""Simulated: how often a comparison that is looked at after every answer errs, and how soon it decides.

The tables go to the screen, so that the log of a test run holds them.
"""

from __future__ import annotations

import pytest

from failsoft.health.sequential import Comparison
from tests.health.peeking import Found, Setting, allowed, ever_significant, first_decisions, table

WORSE, NOT_WORSE = Comparison.WORSE, Comparison.NOT_WORSE
BASE_RATES = (0.01, 0.05, 0.2)
SIZE = "alpha 5 %, a look after each of 10,000 answers, 2,000 runs"
AGAINST = {0: "known rate", 1: "stand-in", 19: "stand-in with 19 times the traffic"}


def test_a_subject_that_is_as_good_is_called_worse_in_at_most_alpha_of_the_runs_however_often_one_looks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [("bad of both", "against", "called worse", "allowed")]
    for rate, per_answer in [(rate, arms) for rate in BASE_RATES for arms in (0, 1)]:
        setting = Setting(subject=rate, reference=rate, per_answer=per_answer, margin=0.0)
        found = first_decisions(setting, WORSE)
        rows.append((f"{rate:.0%}", AGAINST[per_answer], found.in_words(WORSE), f"{allowed(setting):.1%}"))
        assert found.share(WORSE) <= allowed(setting), rows[-1]
    with capsys.disabled():
        print(table(f"type-I error at equal rates, no margin, {SIZE}", rows))


def test_a_usual_test_looked_at_as_often_is_wrong_far_more_often_and_the_simulation_sees_it() -> None:
    setting = Setting(subject=0.2, reference=0.2, per_answer=0, runs=500)
    assert ever_significant(setting) > 5 * setting.alpha


def test_at_the_border_of_the_margin_any_decision_falls_in_at_most_alpha_of_the_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """There both decisions are an error of the bounds: the border is inside both of them, or they have failed."""
    rows = [("bad of what stands in", "against", "called worse", "called not worse", "both allowed")]
    for rate, per_answer in [*((rate, arms) for rate in BASE_RATES for arms in (0, 1)), (0.05, 19)]:
        setting = Setting(subject=rate + 0.05, reference=rate, per_answer=per_answer)
        found = first_decisions(setting, WORSE, NOT_WORSE)
        words = found.in_words(WORSE), found.in_words(NOT_WORSE), f"{allowed(setting):.1%}"
        rows.append((f"{rate:.0%}", AGAINST[per_answer], *words))
        assert found.share(WORSE) + found.share(NOT_WORSE) <= allowed(setting), rows[-1]
    with capsys.disabled():
        print(table(f"type-I error at the border, margin 5 points, {SIZE}", rows))


def test_what_is_really_worse_is_called_so_and_what_is_as_good_is_passed(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        ("bad of what stands in", "against", "subject", "called worse (half, 95 %)", "called not worse (half, 95 %)")
    ]
    for found, name in _powers():
        setting = found.setting
        words = found.in_words(WORSE), found.in_words(NOT_WORSE)
        rows.append((f"{setting.reference:.0%}", AGAINST[setting.per_answer], f"{name}: {setting.subject:.0%}", *words))
        right, wrong = (
            (WORSE, NOT_WORSE) if setting.subject > setting.reference + setting.margin else (NOT_WORSE, WORSE)
        )
        assert found.share(right) >= 0.95, rows[-1]
        assert found.share(wrong) <= setting.alpha, rows[-1]
    with capsys.disabled():
        print(table("power: answers of the subject until a decision, margin 5 points, alpha 5 %, 60 runs", rows))


def _powers() -> list[tuple[Found, str]]:
    """What an incident looks like, against all that a subject is compared with; twice as bad within the margin, too."""
    found = []
    for rate in (0.02, 0.1):
        changes = (("as good", rate), ("2 times", 2 * rate), ("5 times", 5 * rate), ("+10 points", rate + 0.1))
        for per_answer, (name, subject) in [(arms, change) for arms in AGAINST for change in changes]:
            setting = Setting(subject=subject, reference=rate, per_answer=per_answer, runs=60)
            found.append((first_decisions(setting, WORSE, NOT_WORSE), name))
    return found
