"""What was to blame for a dead batch: data, numerics, model state or hardware. Judged from evidence alone.

"Don't know" is a value: where a trial could not be made, or the state that the batch met is not at hand, the verdict is
*undecided* and says what is missing. A batch that is fine now is never called innocent for that alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Seen(StrEnum):
    """What a trial of the batch showed."""

    BAD = "bad"
    FINE = "fine"
    UNKNOWN = "unknown"
    """It could not be made."""


class Cause(StrEnum):
    """What was to blame."""

    DATA = "the data"
    NUMERICS = "the numerics"
    STATE = "the model state"
    HARDWARE = "the hardware or nondeterminism"
    UNDECIDED = "undecided"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the trials of one batch showed."""

    alleged: bool = True
    """Whether the run refused it; a batch that was only undone with others is not accused of anything."""
    state_met: bool | None = None
    """Whether the trials ran on the very state that the batch met; None when that can't be told."""
    draws_met: bool = False
    """Whether they drew from the very generators, on the same kind of device."""
    as_trained: tuple[Seen, ...] = ()
    """On that state, in the precision of training; several times."""
    trained_low: bool = False
    """Whether the precision of training is below float32 anywhere."""
    single: Seen = Seen.UNKNOWN
    """On that state, in float32."""
    double: Seen = Seen.UNKNOWN
    """On that state, in float64."""
    fresh: tuple[Seen, ...] = ()
    """On fresh weights in float32, one for each seed."""
    peers: tuple[Seen, ...] = ()
    """Other batches, which the run applied, on that state in the precision of training."""
    fresh_peers: tuple[Seen, ...] = ()
    """Other batches, which the run applied, on the fresh weights: where these are bad, the weights or the code are."""
    changed: tuple[str, ...] = ()
    """What is known to be other now than when the batch was refused: packages, source text, settings."""

    @property
    def spoils_all(self) -> bool:
        """Whether also batches that the run applied are bad on fresh weights."""
        return _all(self.fresh_peers, Seen.BAD)


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The verdict, and the evidence for it in words."""

    cause: Cause
    why: str


def diagnose(evidence: Evidence) -> Diagnosis:
    """Judge the evidence.

    * The data: bad again, also in float32, and on every fresh weights, while other batches are fine on some of these.
    * The numerics: bad again, and fine in a higher precision.
    * The model state: bad again, also in float64, and fine on every fresh weights.
    * The hardware or nondeterminism: not bad again on the same state, in the same precision, with the same generators,
      and nothing known to have changed since; or bad at one time and fine at the other.
    """
    tries = set(evidence.as_trained)
    if {Seen.BAD, Seen.FINE} <= tries:
        times = evidence.as_trained.count(Seen.BAD)
        return _hardware(f"the same step was bad {times} of {len(evidence.as_trained)} times")
    if tries == {Seen.BAD}:
        return _reproduced(evidence)
    if tries == {Seen.FINE}:
        return _not_reproduced(evidence)
    if _all(evidence.fresh, Seen.BAD):
        return _on_all_weights("it is bad on every fresh weights; the state that it met could not be tried", evidence)
    return _undecided("it could not be tried on the state that it met, and fresh weights do not settle it")


def _reproduced(evidence: Evidence) -> Diagnosis:
    if evidence.single is Seen.FINE:
        return _fine_in_single(evidence)
    if evidence.single is Seen.BAD and _all(evidence.fresh, Seen.BAD):
        said = "it is bad again, also in float32 and on every fresh weights" + _in_double(evidence)
        return _on_all_weights(said, evidence)
    if evidence.double is Seen.FINE:
        return _numerics("it is bad again, and fine in float64 on the same weights")
    if evidence.double is Seen.UNKNOWN:
        return _undecided("it is bad again, and could not be tried in float64: the numerics or the model state")
    return _bad_in_every_precision(evidence)


def _fine_in_single(evidence: Evidence) -> Diagnosis:
    if evidence.double is Seen.BAD:
        return _undecided("it is bad as trained and in float64, yet fine in float32: that fits no cause")
    if not evidence.trained_low:
        return _hardware("it was trained in float32 and bad again, yet in another try in float32 it is fine")
    return _numerics("it is bad again in the precision of training, and fine in float32 on the same weights")


def _bad_in_every_precision(evidence: Evidence) -> Diagnosis:
    if _all(evidence.fresh, Seen.BAD):
        return _on_all_weights("it is bad again, also in float64 and on every fresh weights", evidence)
    if _all(evidence.fresh, Seen.FINE):
        return _state("it is bad again, also in float64, and fine on every fresh weights" + _of_peers(evidence.peers))
    if Seen.UNKNOWN in evidence.fresh or not evidence.fresh:
        return _undecided("it is bad again, also in float64, and could not be tried on fresh weights")
    return _undecided(
        "it is bad again, also in float64, but on fresh weights only sometimes: data that some weights bear"
    )


def _not_reproduced(evidence: Evidence) -> Diagnosis:
    if not evidence.alleged:
        return _undecided("it is fine, and nothing was said against it: it was undone by a rollback with others")
    if evidence.state_met is None:
        return _undecided("it is fine, but whether this is the state that it met can't be told")
    if not evidence.state_met:
        return _undecided("it is fine on the nearest state, but that is not the state that it met")
    if not evidence.draws_met:
        return _undecided("it is fine on the state that it met, but with other random draws or on another device")
    if evidence.changed:
        return _undecided(f"it is fine on the state that it met, but changed since: {', '.join(evidence.changed)}")
    return _hardware("on the very state that it met, with the same precision and random draws, it is fine")


def _on_all_weights(said: str, evidence: Evidence) -> Diagnosis:
    """Bad on every fresh weights is the data's fault only where other data is not."""
    if evidence.spoils_all:
        return _undecided(
            f"{said}; but so are {len(evidence.fresh_peers)} other batches, which the run applied: look at the code, "
            "the packages and the set-up of now"
        )
    return _data(said)


def _in_double(evidence: Evidence) -> str:
    if evidence.double is Seen.FINE:
        return "; only float64 bears its values"
    return ", and in float64" if evidence.double is Seen.BAD else ""


def _of_peers(peers: Sequence[Seen]) -> str:
    bad = peers.count(Seen.BAD)
    return f"; {bad} of {len(peers)} other batches are bad on it, too" if peers else ""


def _all(seen: Sequence[Seen], wanted: Seen) -> bool:
    return bool(seen) and all(one is wanted for one in seen)


def _data(why: str) -> Diagnosis:
    return Diagnosis(cause=Cause.DATA, why=why)


def _numerics(why: str) -> Diagnosis:
    return Diagnosis(cause=Cause.NUMERICS, why=why)


def _state(why: str) -> Diagnosis:
    return Diagnosis(cause=Cause.STATE, why=why)


def _hardware(why: str) -> Diagnosis:
    return Diagnosis(cause=Cause.HARDWARE, why=why)


def _undecided(why: str) -> Diagnosis:
    return Diagnosis(cause=Cause.UNDECIDED, why=why)
