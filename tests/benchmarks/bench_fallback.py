"""The whole fallback answer inside a gateway, from a caller's text to the answer, alone and beside two busy neighbours.

It is the answer of the day on which everything else is late, so its tail counts more than its middle. Beside it the
other models of that rung: XGBoost, and a linear model of scikit-learn as arrays, where those libraries are installed.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import cycle
from typing import Any

from failsoft.health.clock import SystemClock
from failsoft.models.corpus import Utterance
from failsoft.models.embedded import Sizes, embedded_corpus
from failsoft.models.gbdt import GbdtIntent
from failsoft.models.hashed_words import GbdtConfig, features_of, words_of
from failsoft.models.linear_text import LinearText
from failsoft.models.rules import RulesEngine, rules_from_corpus
from failsoft.models.xgb_intents import XgbIntent
from failsoft.serving.config import GatewayConfig
from failsoft.serving.fallback.ladder import FallbackLadder
from failsoft.serving.fallback.rungs import GbdtRung, RulesRung
from failsoft.serving.intake.sanitizer import TextPolicy
from failsoft.serving.intents import INTENTS
from failsoft.serving.plan.plan import Stage
from failsoft.serving.request import Answerer, Situation
from tests.benchmarks.measuring import Contender, each_call_s, interleave, percentile
from tests.benchmarks.outcome import Outcome, Row, in_words
from tests.serving.fakes import Notes, plan

NEIGHBOURS = 2
FAST, PLAIN = "trees, fast path", "trees, plain call"
XGBOOST, LINEAR = "XGBoost", "linear model as arrays"
_SPIN = "while True: pass"
Calls = dict[str, Callable[[], object]]


def measure(*, quick: bool) -> Outcome:
    """p50 and p99 of single calls; the ratio is the plain way of asking LightGBM over the one that the ladder takes."""
    outcome, calls = Outcome(name="fallback"), _calls()
    for part, neighbours in (("alone", 0), (f"beside {NEIGHBOURS} busy neighbours", NEIGHBOURS)):
        with busy(neighbours):
            for name, call in calls.items():
                _tail(outcome, part, name, each_call_s(call, 200 if quick else 5000))
            contenders = [Contender(name=name, run=calls[name], calls=20) for name in (PLAIN, FAST)]
            timings = interleave(contenders, rounds=5 if quick else 60, control=FAST)
        outcome.add(f"one row of trees, {part}", timings)
        when = "busy" if neighbours else "alone"
        outcome.ratios[f"plain_over_fast_trees_{when}"] = timings.ratio(PLAIN, FAST)
        for name in calls.keys() & {XGBOOST, LINEAR}:
            others = [Contender(name=one, run=calls[one], calls=20) for one in (name, FAST)]
            ratio = interleave(others, rounds=5 if quick else 60, control=FAST).ratio(name, FAST)
            outcome.ratios[f"{'xgboost' if name == XGBOOST else 'linear'}_over_lightgbm_{when}"] = ratio
    return outcome


def _tail(outcome: Outcome, part: str, name: str, each_s: Sequence[float]) -> None:
    low_s, high_s = percentile(each_s, 0.5), percentile(each_s, 0.99)
    row = Row(part=part, contender=name, median_s=low_s, low_s=low_s, high_s=high_s, note="p50, and p50 – p99")
    outcome.rows.append(row)
    outcome.notes.append(f"{part}, {name}: p50 {in_words(low_s)}, p99 {in_words(high_s)} of {len(each_s)} calls")


def _calls() -> Calls:
    corpus = embedded_corpus(sizes=Sizes(train=2000, validation=200, test=200))
    trees, rules = GbdtIntent.train(corpus.train), RulesEngine.parse(rules_from_corpus(corpus))
    ladder = FallbackLadder((GbdtRung(trees), RulesRung(rules)))
    texts = cycle([utterance.text for utterance in corpus.test])
    gateway = _gateway(ladder)

    def plain() -> object:
        words = words_of(next(texts), trees.config.max_chars)
        return trees.predict_features(features_of(words, trees.config.buckets)[None])

    return {
        "whole answer": lambda: at_once(gateway.answer(next(texts), key="k", request_id="q")),
        "ladder": lambda: ladder.answer(next(texts), "measured"),
        FAST: lambda: trees.predict_one(next(texts)),
        PLAIN: plain,
    } | _others(corpus.train[:500], lambda: next(texts))


def _others(samples: Sequence[Utterance], text: Callable[[], str]) -> Calls:
    """The models that may stand on the same rung, as far as their libraries are here."""
    found: Calls = {}
    if find_spec("xgboost") is not None:
        boosted = XgbIntent.train(samples, GbdtConfig(rounds=30))
        found[XGBOOST] = lambda: boosted.predict_one(text())
    if find_spec("sklearn") is not None:
        linear = _linear([sample.text for sample in samples], [sample.intent for sample in samples])
        found[LINEAR] = lambda: linear.predict_one(text())
    return found


def _linear(texts: Sequence[str], intents: Sequence[str]) -> LinearText:
    words = importlib.import_module("sklearn.feature_extraction.text").TfidfVectorizer(ngram_range=(1, 2))
    model = importlib.import_module("sklearn.linear_model").LogisticRegression(max_iter=20)
    pipeline = importlib.import_module("sklearn.pipeline").make_pipeline(words, model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it would like more rounds; its speed is the same
        pipeline.fit(texts, intents)
    return LinearText.of_sklearn(pipeline, texts=texts)


def _gateway(ladder: FallbackLadder) -> Answerer:
    """What answers a request while nobody may ask the model."""
    now = Situation(
        plan=plan(Stage.DEGRADED, share=0.0),
        text_policy=TextPolicy(),
        subject_policy=TextPolicy(),
        ladder=ladder,
    )
    return Answerer(
        situation=lambda: now, models={}, journal=Notes(), clock=SystemClock(), config=GatewayConfig(), task=INTENTS
    )


def at_once(work: Coroutine[Any, Any, object]) -> object:
    """What a coroutine returns that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise RuntimeError("the fallback waited for something")


@contextmanager
def busy(neighbours: int) -> Iterator[None]:
    """So many processes that never rest."""
    spinning = [subprocess.Popen([sys.executable, "-c", _SPIN]) for _ in range(neighbours)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()
