"""What malformed traffic costs a model, what the nets win back, how soon they notice, how often they cry wolf.

For SNIPS and CLINC150 (below ``$FAILSOFT_TEST_DATA``, else in ``shared/data`` beside the checkout) and six kinds of
malformed traffic at 70 % of the words. Nets off: the model gets the text as it came, and its intent confidence alone is
watched. Nets on: sanitizer, and all signals of the panel. A glance (``--quick``) takes the embedded corpus instead.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from failsoft.models.corpora import load_corpus
from failsoft.models.corpus import Corpus
from failsoft.models.malformed import RATE, Kind
from failsoft.models.recipe import Recipe
from tests.benchmarks.measuring import Ratio, quartiles
from tests.benchmarks.nets_model import recipe, trained
from tests.benchmarks.nets_noticing import (
    REQUESTS_PER_DAY_AT_50_HZ,
    AllNets,
    Confidence,
    false_alarms,
    rule_for,
    until_noticed,
)
from tests.benchmarks.nets_trial import OUT_OF_SCOPE, Answered, Run, Trial, caught, trial_of, won_back
from tests.benchmarks.outcome import Outcome, Sheet
from tests.conftest import data_folder
from tests.models.toys import toy_corpus, toy_predictor

_MILD_RATE = 0.15
_QUALITY = ("kind", "accuracy off", "on", "won back", "slot F1 off", "on", "won back")
_NOTICE = ("kind", "nets off: weak", "confidence alone notices after", "nets on: weak", "confidence", "all nets after")


def measure(*, quick: bool) -> Outcome:
    """All kinds on both corpora; ratios are shares of the loss that is won back."""
    outcome = Outcome(name="nets")
    if quick:
        outcome.notes.append("a glance: the embedded corpus and a toy model, not the published corpora")
        _measure(outcome, toy_corpus(), trial_of(toy_corpus(), toy_predictor()), _GLANCE)
        return outcome
    for name in ("snips", "clinc150"):
        folder = data_folder(name)
        if not folder.is_dir():
            outcome.notes.append(f"{name} is absent: no folder {folder}")
            continue
        corpus = load_corpus(folder)
        _measure(outcome, corpus, _trial(outcome, corpus, recipe()), _FULL)
    return outcome


@dataclass(frozen=True, kw_only=True)
class _Effort:
    seeds: int
    waves: int
    alarm_requests: int


_GLANCE = _Effort(seeds=1, waves=3, alarm_requests=5_000)
_FULL = _Effort(seeds=2, waves=50, alarm_requests=REQUESTS_PER_DAY_AT_50_HZ)


def _trial(outcome: Outcome, corpus: Corpus, how_to: Recipe) -> Trial:
    predictor, took_s = trained(corpus, how_to)
    how = "kept from an earlier run" if took_s is None else f"trained in {took_s:.0f} s"
    outcome.notes.append(f"{corpus.name}: {how_to.epochs} epochs of recipe {how_to.name}, {how}")
    return trial_of(corpus, predictor)


def _measure(outcome: Outcome, corpus: Corpus, trial: Trial, effort: _Effort) -> None:
    clean, usual = trial.clean(), _oos_share(corpus)
    outcome.controls[f"{corpus.name}: clean texts, nets on over off"] = _harm(corpus, trial, clean)
    healthy = _as_usual(trial, clean, usual)
    quality_rows, notice_rows = [], []
    caught_rows: list[tuple[str, ...]] = [("clean", "–", f"{caught(trial, clean):.1%}")]
    for kind in Kind:
        pairs = [_pair(trial, kind, seed) for seed in range(1, effort.seeds + 1)]
        caught_rows.append((str(kind), *(f"{caught(trial, run):.1%}" for run in pairs[0])))
        quality_rows.append(_quality_row(outcome, corpus.name, kind, clean, pairs))
        off, on = (_as_usual(trial, run, usual) for run in pairs[0])
        notice_rows.append(_notice_row(trial, kind, healthy, (off, on), waves=effort.waves))
    scored = clean.quality
    title = f"{corpus.name}, {scored.samples} test texts: clean accuracy {scored.intent_accuracy:.3f}" + (
        f", slot F1 {scored.slot_f1:.3f}" if corpus.slots else ""
    )
    outcome.sheets.append(Sheet(title=title, columns=_QUALITY, rows=quality_rows))
    title = f"{corpus.name}: malformed requests until it is noticed, median of the waves"
    outcome.sheets.append(Sheet(title=title, columns=_NOTICE, rows=notice_rows))
    _mild(outcome, corpus, trial, healthy, effort)
    if usual:
        title = f"{corpus.name}: out-of-scope texts that are named so or go to the fallback (confidence below 0.50)"
        outcome.sheets.append(Sheet(title=title, columns=("kind", "nets off", "nets on"), rows=caught_rows))
    outcome.notes.append(f"{corpus.name}: {clean.repaired_fraction:.2%} of the clean texts had to be repaired")
    _alarms(outcome, corpus.name, trial, healthy, requests=effort.alarm_requests)


def _harm(corpus: Corpus, trial: Trial, clean: Run) -> Ratio:
    """What the nets do to text that nothing is wrong with: 1 is nothing."""
    raw = trial.raw()
    measured = "slot_f1" if corpus.slots else "intent_accuracy"
    share = getattr(clean.quality, measured) / getattr(raw.quality, measured)
    return Ratio(value=share, low=share, high=share, by_minimum=share)


def _pair(trial: Trial, kind: Kind, seed: int, *, rate: float = RATE) -> tuple[Run, Run]:
    made = trial.malformed(kind, seed, rate=rate)
    return trial.nets_off(made), trial.nets_on(made)


def _quality_row(
    outcome: Outcome, corpus: str, kind: Kind, clean: Run, pairs: Sequence[tuple[Run, Run]]
) -> tuple[str, ...]:
    row = [str(kind)]
    for measured in ("intent_accuracy", "slot_f1"):
        whole = getattr(clean.quality, measured)
        off, on = ([getattr(run.quality, measured) for run in side] for side in zip(*pairs, strict=True))
        back = [won_back(whole, before, after) for before, after in zip(off, on, strict=True)]
        middle = statistics.median(back)
        low, high = quartiles(back)
        if middle == middle:  # noqa: PLR0124 -- not NaN: a corpus without slots lost none
            name = f"{corpus}_{kind}_{measured}_won_back".replace(" ", "_").replace("-", "_")
            outcome.ratios[name] = Ratio(value=middle, low=low, high=high, by_minimum=min(back))
            row += [f"{statistics.median(off):.3f}", f"{statistics.median(on):.3f}", f"{middle:.0%}"]
        else:
            row += ["–", "–", "–"]
    return tuple(row)


def _notice_row(
    trial: Trial,
    kind: str,
    healthy: Sequence[Answered],
    bad: tuple[Sequence[Answered], Sequence[Answered]],
    *,
    waves: int,
) -> tuple[str, ...]:
    off, on = bad
    baseline = trial.baseline
    return (
        kind,
        f"{_weak(off):.1%}",
        until_noticed(lambda: Confidence(baseline), healthy, off, waves=waves).in_words(),
        f"{_weak(on):.1%}",
        until_noticed(lambda: Confidence(baseline), healthy, on, waves=waves).in_words(),
        until_noticed(lambda: AllNets(baseline), healthy, on, waves=waves).in_words(),
    )


def _mild(outcome: Outcome, corpus: Corpus, trial: Trial, healthy: Sequence[Answered], effort: _Effort) -> None:
    """Fewer words are hit: answers are spoilt, but too few of them look weak for the confidence alone to see it."""
    rows = []
    usual = _oos_share(corpus)
    for kind in Kind:
        off, on = _pair(trial, kind, 1, rate=_MILD_RATE)
        bad = (_as_usual(trial, off, usual), _as_usual(trial, on, usual))
        noticed = _notice_row(trial, kind, healthy, bad, waves=effort.waves)
        scores = (f"{off.quality.intent_accuracy:.3f}", f"{off.quality.slot_f1:.3f}" if corpus.slots else "–")
        rows.append((noticed[0], *scores, *noticed[1:3], noticed[-1]))
    columns = ("kind", "accuracy off", "slot F1 off", *_NOTICE[1:3], _NOTICE[-1])
    title = f"{corpus.name}, only {_MILD_RATE:.0%} of the words hit: where the intent confidence alone sleeps"
    outcome.sheets.append(Sheet(title=title, columns=columns, rows=rows))


def _alarms(outcome: Outcome, name: str, trial: Trial, healthy: Sequence[Answered], *, requests: int) -> None:
    found = false_alarms(trial.baseline, healthy, requests=requests)
    rule = rule_for(trial.baseline)
    outcome.notes.append(
        f"{name}: {found.requests:,} clean requests (a day at 50 rps has {REQUESTS_PER_DAY_AT_50_HZ:,}): "
        f"{found.per_day(found.trips):.1f} false trips and {found.per_day(found.warnings):.1f} false warnings a day; "
        f"the rule: {rule.in_words()}; {trial.baseline.weak_fraction:.1%} of the validation answers are weak"
    )


def _oos_share(corpus: Corpus) -> float:
    return sum(one.intent == OUT_OF_SCOPE for one in corpus.validation) / len(corpus.validation)


def _as_usual(trial: Trial, run: Run, share: float) -> list[Answered]:
    """The answers with no more out-of-scope texts among them than validation has: the test texts hold many."""
    inside: list[Answered] = []
    outside: list[Answered] = []
    for one, utterance in zip(run.answers, trial.utterances, strict=True):
        (outside if utterance.intent == OUT_OF_SCOPE else inside).append(one)
    wanted = round(len(inside) * share / (1.0 - share))
    return inside + random.Random(1).sample(outside, min(wanted, len(outside)))


def _weak(answers: Sequence[Answered]) -> float:
    return sum(one.outcome == "weak" for one in answers) / len(answers)
