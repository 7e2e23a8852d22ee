"""The parts on the request path that must cost next to nothing, each against the plain way to do the same."""

from __future__ import annotations

import math
import random
import unicodedata
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from failsoft.artifacts.bundle import Baseline
from failsoft.demo.waves import glued_emoji
from failsoft.health.monitor import BAD, HealthMonitor, HealthPolicy
from failsoft.health.panel import SignalPanel
from failsoft.health.window import Outcome as Answered
from failsoft.models.embedded import Sizes, embedded_corpus
from failsoft.models.gbdt import GbdtIntent
from failsoft.models.rules import RulesEngine, rules_from_corpus
from failsoft.models.scores import ScoredSpan
from failsoft.models.tokens import TextCodec
from failsoft.models.vocabulary import Vocabulary
from failsoft.serving.defence import QualityPolicy, credible_spans, judge
from failsoft.serving.fallback.ladder import FallbackLadder
from failsoft.serving.fallback.rungs import GbdtRung, RulesRung
from failsoft.serving.intake.sanitizer import TextPolicy, sanitize
from tests.benchmarks.measuring import Contender, Timings, each_call_s, interleave, percentile
from tests.benchmarks.outcome import Outcome, Row, in_words
from tests.benchmarks.tracing_parts import tracing

CLEAN = " ".join(["please play some music by the band in town then book a table"] * 6)
DIRTY = glued_emoji(CLEAN, random.Random(3)) + " na\u200bïve \uff50\uff4c\uff41\uff59"
OURS, PLAIN = "failsoft", "plain"


def measure(*, quick: bool) -> Outcome:
    """All parts; ratios are plain over ours, so larger is better for us."""
    outcome = Outcome(name="small_parts")
    rounds = 5 if quick else 60
    _sanitizer(outcome, rounds)
    _defence(outcome, rounds)
    _monitor(outcome, rounds)
    _ladder(outcome, rounds, calls=200 if quick else 5000)
    tracing(outcome, rounds)
    return outcome


def plain_clean(text: str) -> tuple[str, list[int]]:
    """The character loop that one would write first, with the way back that spans need.

    It drops what is invisible, sets emoji apart, normalises, and keeps for each character where it came from. Joined
    emoji fall apart in it, and nothing bounds its work.
    """
    kept: list[str] = []
    origins: list[int] = []
    for place, char in enumerate(text):
        category = unicodedata.category(char)
        if category in {"Cc", "Cf", "Cs"}:
            continue
        piece = f" {char} " if category == "So" else unicodedata.normalize("NFKC", char)
        for made in piece:
            if made.isspace() and (not kept or kept[-1] == " "):
                continue
            kept.append(" " if made.isspace() else made)
            origins.append(place)
    return "".join(kept).rstrip(), origins


def textbook_judgement(logits_BC: NDArray[np.float32]) -> list[tuple[float, float, float]]:
    """Softmax, entropy and margin in numpy, as in a textbook."""
    weights_BC = np.exp(logits_BC - logits_BC.max(axis=1, keepdims=True))
    shares_BC = weights_BC / weights_BC.sum(axis=1, keepdims=True)
    entropies_B = -(shares_BC * np.log(shares_BC + 1e-12)).sum(axis=1) / math.log(shares_BC.shape[1])
    ordered_BC = np.sort(shares_BC, axis=1)
    margins_B = ordered_BC[:, -1] - ordered_BC[:, -2]
    return list(zip(ordered_BC[:, -1].tolist(), entropies_B.tolist(), margins_B.tolist(), strict=True))


def _sanitizer(outcome: Outcome, rounds: int) -> None:
    policy = TextPolicy()
    assert sanitize(CLEAN, policy).text == plain_clean(CLEAN)[0]
    for kind, text in (("clean", CLEAN), ("dirty", DIRTY)):
        part = f"sanitise {len(text.split())} {kind} words"
        ours, plain = partial(sanitize, text, policy), partial(plain_clean, text)
        timings = _race(outcome, part, ours, plain, rounds=rounds, calls=50)
        outcome.ratios[f"sanitize_{kind}_plain_over_ours"] = timings.ratio(PLAIN, OURS)
    _words(outcome, policy, rounds)


def _words(outcome: Outcome, policy: TextPolicy, rounds: int) -> None:
    """Clean text to numbers and places, against the tokenizer itself; and the count of unknown words."""
    codec = TextCodec.train([CLEAN, CLEAN])
    tokenizer, vocabulary = codec.tokenizer, Vocabulary(codec.known_words)
    assert codec.words(CLEAN) == ((one := tokenizer.encode(CLEAN)).ids, one.offsets)
    contenders = [
        Contender(name=OURS, run=lambda: codec.words(sanitize(CLEAN, policy).text), calls=50),
        Contender(name="all arrays of the model", run=lambda: codec.encode([CLEAN]), calls=50),
        Contender(name="share of unknown words", run=lambda: vocabulary.oov_share(CLEAN), calls=50),
        Contender(name=PLAIN, run=lambda: tokenizer.encode(CLEAN).offsets, calls=50),
    ]
    timings = interleave(contenders, rounds=rounds, control=OURS)
    outcome.add(f"sanitise and encode {len(CLEAN.split())} clean words", timings)
    outcome.ratios["encode_tokenizer_over_ours"] = timings.ratio(PLAIN, OURS)


def _defence(outcome: Outcome, rounds: int) -> None:
    logits_BC = np.random.default_rng(3).normal(0.0, 3.0, size=(1, 20)).astype(np.float32)
    policy = QualityPolicy()
    ours, plain = judge(logits_BC, 1.0, policy)[0], textbook_judgement(logits_BC)[0]
    assert np.allclose((ours.confidence, ours.entropy, ours.margin), plain, atol=1e-5)
    timings = _race(
        outcome,
        "judge 1 × 20 logits",
        lambda: judge(logits_BC, 1.0, policy),
        lambda: textbook_judgement(logits_BC),
        rounds=rounds,
        calls=200,
    )
    outcome.ratios["judge_textbook_over_ours"] = timings.ratio(PLAIN, OURS)
    spans = [ScoredSpan(9 * n, 9 * n + 4, "genre", 0.9, 0.1, 0.8) for n in range(4)]
    contenders = [
        Contender(name=OURS, run=lambda: credible_spans(spans, policy), calls=500),
        Contender(name="1 × 20 logits and 4 spans", run=lambda: both(logits_BC, spans, policy), calls=200),
    ]
    outcome.add("judge 4 spans", interleave(contenders, rounds=rounds, control=OURS))


def both(logits_BC: NDArray[np.float32], spans: list[ScoredSpan], policy: QualityPolicy) -> object:
    """All that the output net does to one answer."""
    return judge(logits_BC, 1.0, policy), credible_spans(spans, policy)


def _monitor(outcome: Outcome, rounds: int) -> None:
    """Record one answer; and record it and judge the window in words, as after each request."""
    for size in (100, 1000):
        monitor, recent = HealthMonitor(policy=HealthPolicy(window_size=size)), deque[Answered](maxlen=size)
        chance = random.Random(5)
        answers = [Answered.WEAK if chance.random() < 0.02 else Answered.GOOD for _ in range(size)]
        for answer in answers:
            monitor.record(answer)
            recent.append(answer)
        feed, part = cycle(answers), f"one answer, window {size}"
        contenders = [
            Contender(name="record", run=lambda feed=feed, to=monitor: to.record(next(feed)), calls=200),  # type: ignore[misc]
            Contender(name="record and judge", run=_recorder(monitor, answers), calls=200),
            Contender(name="all signals and judge", run=_panel(size, answers), calls=200),
            Contender(name="recount", run=_recounter(recent, answers), calls=200),
        ]
        timings = interleave(contenders, rounds=rounds, control="record")
        outcome.add(part, timings)
        outcome.ratios[f"monitor_{size}_recount_over_record"] = timings.ratio("recount", "record")
        outcome.ratios[f"monitor_{size}_recount_over_record_and_judge"] = timings.ratio("recount", "record and judge")


def _recorder(monitor: HealthMonitor, answers: list[Answered]) -> Callable[[], object]:
    feed = cycle(answers)

    def call() -> object:
        monitor.record(next(feed))
        return monitor.verdict()

    return call


def _panel(size: int, answers: list[Answered]) -> Callable[[], object]:
    """What a gateway does for an answer: every signal of it recorded for one of ten callers, and all judged."""
    healthy = Baseline(
        samples=700,
        weak_fraction=0.02,
        entropy_mean=0.1,
        entropy_std=0.1,
        logit_std=3.0,
        oov_fraction=0.05,
        label_mix={f"intent {number}": 1 / 7 for number in range(7)},
        latency_p95_ms=5.0,
    )
    panel = SignalPanel(HealthPolicy(window_size=size), release="r1", healthy=healthy)
    feed, callers, labels = cycle(answers), cycle(range(10)), cycle(healthy.label_mix)

    def call() -> object:
        caller = next(callers)
        panel.record(next(feed), caller)
        panel.record_latency(slow=False, caller=caller)
        panel.record_oov(0.05, caller)
        panel.record_label(next(labels), caller)
        return panel.verdict()

    return call


def _recounter(recent: deque[Answered], answers: list[Answered]) -> Callable[[], object]:
    """The usual window: keep the last answers, count the bad ones each time."""
    feed = cycle(answers)

    def call() -> object:
        recent.append(next(feed))
        bad = sum(1 for answer in recent if answer in BAD)
        return bad / len(recent) >= 0.2

    return call


def _ladder(outcome: Outcome, rounds: int, *, calls: int) -> None:
    """The whole fallback, trees and then rules, for one text; also the tail, since it answers when all else is late."""
    corpus = embedded_corpus(sizes=Sizes(train=2000, validation=200, test=200))
    trees, rules = GbdtIntent.train(corpus.train), RulesEngine.parse(rules_from_corpus(corpus))
    ladder = FallbackLadder((GbdtRung(trees), RulesRung(rules)))
    texts = [utterance.text for utterance in corpus.test]
    feed = {name: cycle(texts) for name in ("ladder", "trees", "rules", "tail")}
    contenders = [
        Contender(name="whole ladder", run=lambda: ladder.answer(next(feed["ladder"]), "measured"), calls=len(texts)),
        Contender(name="trees alone", run=lambda: trees.predict_one(next(feed["trees"])), calls=len(texts)),
        Contender(name="rules alone", run=lambda: rules.answer(next(feed["rules"])), calls=len(texts)),
    ]
    timings = interleave(contenders, rounds=max(3, rounds // 4), control="trees alone")
    outcome.add("fallback for one text", timings)
    outcome.ratios["ladder_over_bare_trees"] = timings.ratio("whole ladder", "trees alone")
    tail_s = each_call_s(lambda: ladder.answer(next(feed["tail"]), "measured"), calls)
    low_s, high_s = percentile(tail_s, 0.5), percentile(tail_s, 0.99)
    note = f"of {calls} single calls: p50 {in_words(low_s)}, p99 {in_words(high_s)}, slowest {in_words(max(tail_s))}"
    row = Row(
        part="fallback for one text", contender="ladder, call by call", median_s=low_s, low_s=low_s, high_s=high_s
    )
    outcome.rows.append(replace(row, note="p50, and p50 – p99"))
    outcome.notes.append(f"fallback ladder {note}")


def _race(
    outcome: Outcome,
    part: str,
    ours: Callable[[], object],
    plain: Callable[[], object],
    *,
    rounds: int,
    calls: int,
) -> Timings:
    contenders = [Contender(name=OURS, run=ours, calls=calls), Contender(name=PLAIN, run=plain, calls=calls)]
    timings = interleave(contenders, rounds=rounds, control=OURS)
    outcome.add(part, timings)
    return timings
