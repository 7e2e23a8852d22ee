"""Golden inputs: a release must answer them as it did when it was made, or it does not load here."""

from __future__ import annotations

from collections.abc import Callable

from failsoft.artifacts.bundle import Bundle, Golden, Role
from failsoft.errors import IncompatibleArtifactError
from failsoft.serving.plain import as_plain, without_tensors
from failsoft.serving.seam import Judged, Measures, Predictor, Quality

_PIECE = 4
"""Golden inputs that are asked for at once: so long others may have to wait for the processor."""


def check_golden(
    model: Predictor,
    bundle: Bundle,
    quality: Quality,
    measures: Measures,
    *,
    beat: Callable[[], None] = lambda: None,
) -> None:
    """Also warms the model up. An own model's release may be without golden inputs; then nothing is checked.

    Args:
        model: of the bundle.
        bundle: with or without golden inputs.
        quality: judges the answers.
        measures: what they are judged with.
        beat: called after every few of them; it may wait.

    Raises:
        IncompatibleArtifactError: whole, but it does not answer as it did when it was made.
    """
    golden = bundle.golden() if bundle.has(Role.GOLDEN) else ()
    for begin in range(0, len(golden), _PIECE):
        _check(model, golden[begin : begin + _PIECE], bundle.name, quality, measures)
        beat()


def _check(model: Predictor, golden: tuple[Golden, ...], name: str, quality: Quality, measures: Measures) -> None:
    scores = without_tensors(model.predict([entry.text for entry in golden]))
    judged = quality.judge(scores, rows=len(golden), measures=measures)
    if len(judged) != len(golden):
        raise IncompatibleArtifactError(
            f"release {name} gives {len(judged)} answers to {len(golden)} golden inputs; its predictor or its "
            "quality kind is another than when it was made"
        )
    for entry, now in zip(golden, judged, strict=True):
        if not _agrees(quality, now, entry.intent):
            raise IncompatibleArtifactError(
                f"release {name} answers {entry.text!r} with {now.output}, but {entry.intent} when it was made; "
                "this machine computes something else: publish the release again here"
            )


def _agrees(quality: Quality, now: Judged, recorded: object) -> bool:
    """A golden answer may be weak; one that is not even a number is none."""
    return 0.0 <= now.confidence <= 1.0 and quality.agrees(as_plain(now.output), recorded)
