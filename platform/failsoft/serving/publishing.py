"""Publishing an own model: a folder of its files becomes a release, measured by what will judge it in service.

Nothing here reads a weight: the user's own ``load`` does, and decides by what format. What is measured is what serving
arms itself with: the healthy share of weak answers, the golden inputs that every replica must answer as today, and what
the quality kind wants to know. A release without healthy inputs can be served; it says what is not armed.
"""

from __future__ import annotations

import math
import shutil
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from failsoft.artifacts.asides import being_filled
from failsoft.artifacts.bundle import Baseline, Bundle, Calibration, Golden, Role, write_golden, write_json
from failsoft.artifacts.home import Home
from failsoft.artifacts.manifest import MANIFEST_NAME, describe
from failsoft.errors import ConfigError
from failsoft.health.clock import Clock, SystemClock, WorkingTime
from failsoft.health.window import Outcome
from failsoft.serving.arms.replies import agreement, checked
from failsoft.serving.intake.sanitizer import Cleanliness
from failsoft.serving.plain import as_plain, without_tensors
from failsoft.serving.seam import Judged, Measures, Predictor, Quality
from failsoft.serving.task import AppSpec

MAX_HEALTHY = 4096
"""Healthy inputs are scored in one batch, as a quality kind sees a whole release; some hundred are enough."""
_GOLDEN = 5
_MADE_HERE = (Role.BASELINE, Role.GOLDEN, Role.MEASURES)


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """Healthy inputs whose right outputs are known: late labels are compared with how often the model is right here."""

    inputs: Sequence[Any]
    right: Sequence[Any]
    """For each input what the quality kind would call the output, as JSON can carry it."""

    def __post_init__(self) -> None:
        """Refuse labels of something else."""
        if len(self.inputs) != len(self.right):
            raise ConfigError(f"{len(self.right)} right outputs for {len(self.inputs)} inputs; give one for each")


def publish_own(
    config: AppSpec,
    files: str | Path,
    *,
    healthy: Sequence[Any] | Labelled = (),
    home: str | Path | None = None,
    calibration: Calibration | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Bundle:
    """Publish the files of an own model as a release that ``build_app`` serves.

    Args:
        config: the app: its predictor loads the files, its quality kind judges, its last rung is tried.
        files: folder with everything that ``load`` reads, by the names that it reads; copied whole.
        healthy: inputs that the model answers as it should, some hundred from real traffic. None at all: the release
            has no baseline and no golden inputs, and the watch says that it is not armed. As :class:`Labelled` they
            also tell the model's accuracy; without it late labels are not judged.
        home: root folder; None: ``$FAILSOFT_HOME``, else ``.failsoft`` in the working folder.
        calibration: a fitted temperature, where the kind of answers knows one.
        meta: small JSON about where the model comes from; kept in the manifest.

    Raises:
        ConfigError: the folder is empty or holds a file that is made here, a healthy input is hopeless or has no
            answer, or the last rung does not answer everything.
        Exception: what the user's own ``load`` or ``predict`` raises.
    """
    clock, root = SystemClock(), Home.find(None if home is None else Path(home))
    candidate = root.candidates / f"c-{uuid.uuid4().hex[:12]}"
    with being_filled(candidate):
        try:
            _copy_whole(Path(files), candidate)
            not_armed = _complete(config, candidate, healthy, calibration)
            store = root.releases(clock)
            previous = store.newest()
            told = {
                "previous": previous.name if previous else None,
                "provenance": dict(meta or {}),
                "own_model": True,
                "not_armed": not_armed,
            }
            name = _name_of(candidate, clock)
            artifact = store.publish(name, lambda aside: _copy_into(candidate, aside), meta=told)
        finally:
            shutil.rmtree(candidate, ignore_errors=True)
    return Bundle.of(artifact)


@dataclass(frozen=True, kw_only=True)
class _Answered:
    """Healthy inputs, cleaned, with today's answers."""

    items: list[Any]
    judged: list[Judged]
    measures: Measures


def _complete(
    config: AppSpec, candidate: Path, healthy: Sequence[Any] | Labelled, calibration: Calibration | None
) -> list[str]:
    """Write what is measured beside the user's files; what could not be, in words."""
    bundle = Bundle(name=candidate.name, path=candidate, digest="", meta={})
    labelled = healthy if isinstance(healthy, Labelled) else Labelled(inputs=healthy, right=[None] * len(healthy))
    healthy = labelled.inputs
    policy = config.inputs.policy_of(bundle)
    if policy is not None and not bundle.has(Role.TEXT_POLICY):
        (candidate / Role.TEXT_POLICY).write_text(policy.to_json(), "utf-8")
    if calibration is not None:
        write_json(candidate, Role.CALIBRATION, calibration)
    config.ladder_of(bundle)
    model = config.loader()(bundle)
    if len(healthy) == 0:  # an array of rows has no truth value
        return [
            "no healthy inputs were given: no baseline arms the watch, no golden inputs prove a load, and after a fall "
            "only a previous release beside it can show that it is healthy again"
        ]
    answered = _answer(config, model, _cleaned(config, bundle, healthy), bundle.measures())
    write_json(candidate, Role.MEASURES, answered.measures)
    baseline = _baseline(answered, _p95_ms(model, answered.items, WorkingTime()))
    write_json(candidate, Role.BASELINE, replace(baseline, accuracy=_accuracy(config.kind, answered, labelled.right)))
    write_golden(candidate, _golden(answered))
    return []


def _cleaned(config: AppSpec, bundle: Bundle, healthy: Sequence[Any]) -> list[Any]:
    if len(healthy) > MAX_HEALTHY:
        raise ConfigError(
            f"{len(healthy)} healthy inputs were given; up to {MAX_HEALTHY} are measured, some hundred do"
        )
    policy, items = config.inputs.policy_of(bundle), []
    for row, item in enumerate(healthy):
        cleaned = config.inputs.clean(item, policy)
        if cleaned.verdict is Cleanliness.HOPELESS:
            raise ConfigError(f"healthy input {row}, {item!r:.80}, is hopeless: callers would get the fallback for it")
        items.append(cleaned.text)
    return items


def _answer(config: AppSpec, model: Predictor, items: list[Any], fitted: Measures) -> _Answered:
    """The answers to healthy inputs; each must be one, or there is nothing healthy to measure."""
    scores, quality = without_tensors(model.predict(items)), config.kind
    measures = {**fitted, **quality.measure(scores, rows=len(items))}
    judged = [checked(row) for row in quality.judge(scores, rows=len(items), measures=measures)]
    if len(judged) != len(items):
        raise ConfigError(f"{len(judged)} answers came for {len(items)} healthy inputs; the kind gives one for each")
    for row, answer in enumerate(judged):
        if not 0.0 <= answer.confidence <= 1.0 or answer.output is None:
            raise ConfigError(f"healthy input {row}, {items[row]!r:.80}, got no answer: {answer.reason}")
    return _Answered(items=items, judged=judged, measures=measures)


def _baseline(answered: _Answered, p95_ms: float) -> Baseline:
    """What is known of any kind of answers; entropies, logits and words are not, and stay NaN."""
    judged = answered.judged
    count, labels = len(judged), Counter(answer.label for answer in judged if answer.label)
    return Baseline(
        samples=count,
        weak_fraction=sum(answer.outcome is Outcome.WEAK for answer in judged) / count,
        entropy_mean=math.nan,
        entropy_std=math.nan,
        logit_std=math.nan,
        oov_fraction=math.nan,
        label_mix={label: number / count for label, number in sorted(labels.items())},
        latency_p95_ms=p95_ms,
        confidence_mean=math.fsum(answer.confidence for answer in judged) / count,
    )


def _accuracy(quality: Quality, answered: _Answered, right: Sequence[Any]) -> float | None:
    """Share of answers that agree with the right ones; None where nobody gave those, or one can't be compared."""
    pairs = zip(answered.judged, right, strict=True)
    agree = [None if label is None else agreement(quality, answer.output, label) for answer, label in pairs]
    known = [one for one in agree if one is not None]
    return sum(known) / len(known) if known and len(known) == len(agree) else None


def _golden(answered: _Answered) -> tuple[Golden, ...]:
    """The first usable answers: what a healthy load of this release must say again."""
    each = zip(answered.items, answered.judged, strict=True)
    usable = [(item, answer) for item, answer in each if answer.usable][:_GOLDEN]
    return tuple(
        Golden(text=as_plain(item), intent=answer.output, confidence=answer.confidence) for item, answer in usable
    )


def _p95_ms(model: Predictor, items: Sequence[Any], clock: Clock) -> float:
    """95th percentile of the model's own time for one item alone, over up to 50 after a warm-up of 3."""
    for item in items[:3]:
        model.predict([item])
    took_ms = sorted(_timed_ms(model, item, clock) for item in items[:50])
    return took_ms[min(len(took_ms) - 1, int(0.95 * len(took_ms)))]


def _timed_ms(model: Predictor, item: Any, clock: Clock) -> float:
    began_s = clock.monotonic_s()
    model.predict([item])
    return (clock.monotonic_s() - began_s) * 1000.0


def _copy_whole(files: Path, candidate: Path) -> None:
    if not files.is_dir() or not any(files.iterdir()):
        raise ConfigError(f"{files} is no folder with files; put everything there that load(bundle) reads")
    taken = [name for name in (*_MADE_HERE, MANIFEST_NAME) if (files / name).exists()]
    if taken:
        raise ConfigError(f"{files} holds {', '.join(taken)}, which is measured or made here; take it out")
    _copy_into(files, candidate)


def _copy_into(folder: Path, aside: Path) -> None:
    shutil.copytree(folder, aside, dirs_exist_ok=True)


def _name_of(candidate: Path, clock: Clock) -> str:
    now_s = clock.wall_s()
    digest = describe(candidate, kind="candidate", created_at_s=now_s, meta={}).digest
    return f"r-{datetime.fromtimestamp(now_s, tz=UTC):%Y%m%d}-{digest.partition(':')[2][:8]}"
