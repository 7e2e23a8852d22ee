"""Every fault of the suite: on which side, in which phases, what is done, and what the oracle asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from failsoft.drills.fault import DrillFault, Phase, Side
from failsoft.errors import ConfigError

_START, _FIRST, _TRAINING, _SAVING, _VALIDATION = (
    Phase.START,
    Phase.FIRST_STEP,
    Phase.TRAINING,
    Phase.SAVING,
    Phase.VALIDATION,
)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One fault on one side."""

    kind: DrillFault
    side: Side
    phases: tuple[Phase, ...]
    does: str
    """What is done."""
    asks: str
    """What survival means, beside what is asked of every trial."""

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "kind": str(self.kind),
            "side": str(self.side),
            "phases": [str(phase) for phase in self.phases],
            "does": self.does,
            "asks": self.asks,
        }


TRAINING_ALWAYS = (
    "the same command finishes in at most 4 starts, with all steps and the weights of the quiet run; no visible file "
    "is torn at any moment between starts, no process is left, and a run's record of samples holds each once"
)
"""Asked of every trial of the training side."""
_OR_WITHOUT = "weights of the quiet run, or of one that leaves that batch out (at most 3 times as far away)"
_KEPT = "a fault behind the first quarter of the run does not cost everything that was done"


def _entry(kind: DrillFault, phases: tuple[Phase, ...], does: str, asks: str) -> Entry:
    return Entry(kind=kind, side=Side.TRAINING, phases=phases, does=does, asks=asks)


_ENTRIES = (
    _entry(DrillFault.NAN, (_FIRST, _TRAINING, _VALIDATION), "once, the model's outputs are NaN", _OR_WITHOUT),
    _entry(DrillFault.INF, (_FIRST, _TRAINING), "once, one entry of one gradient is Inf", _OR_WITHOUT),
    _entry(DrillFault.SPIKE, (_TRAINING,), "once, the model's outputs are 1,000 times too large", _OR_WITHOUT),
    _entry(
        DrillFault.POISONED_SAMPLE,
        (_FIRST, _TRAINING),
        "one sample holds NaN whenever it is met, also after a restart",
        _OR_WITHOUT,
    ),
    _entry(
        DrillFault.OUT_OF_MEMORY,
        (_FIRST, _TRAINING, _VALIDATION),
        "one batch runs out of memory whenever more than half of it goes in at once",
        "no sample is left out",
    ),
    _entry(
        DrillFault.HANG,
        (_TRAINING, _SAVING, _VALIDATION),
        "a call never comes back",
        "somebody notices, and ends it, before a user does",
    ),
    _entry(
        DrillFault.KILL_WORKER,
        (_START, _FIRST, _TRAINING, _SAVING, _VALIDATION),
        "SIGKILL to the process that trains, and to the one that writes",
        _KEPT,
    ),
    _entry(DrillFault.KILL_DRIVER, (_TRAINING, _SAVING), "SIGKILL to the process that the user started", _KEPT),
    _entry(
        DrillFault.SIGTERM,
        (_START, _FIRST, _TRAINING, _SAVING, _VALIDATION),
        "SIGTERM to the process that the user started",
        _KEPT,
    ),
    _entry(DrillFault.DRAIN, (_TRAINING, _SAVING), "SIGTERM to every process of the run, SIGKILL 5 s later", _KEPT),
    _entry(
        DrillFault.TORN_CHECKPOINT,
        (_TRAINING,),
        "killed; then the newest checkpoint is cut to its half",
        "the torn one is not taken for whole",
    ),
    _entry(
        DrillFault.FLIPPED_CHECKPOINT,
        (_TRAINING,),
        "killed; then one bit of the newest checkpoint is flipped",
        "the changed one is not taken for whole",
    ),
    _entry(
        DrillFault.MISSING_CHECKPOINT,
        (_TRAINING,),
        "killed; then the newest checkpoint's file is gone",
        "an older one is taken, or the run starts over",
    ),
    _entry(
        DrillFault.FULL_DISK,
        (_START, _TRAINING, _SAVING),
        "writes below the run's folder end in ENOSPC for 1.5 s; torch.save leaves half a file",
        _KEPT,
    ),
    _entry(
        DrillFault.SLOW_DISK,
        (_TRAINING, _SAVING),
        "each write and sync below the run's folder takes 0.3 s longer, for 1.5 s",
        _KEPT,
    ),
    _entry(
        DrillFault.READ_ONLY_DISK,
        (_START, _TRAINING, _SAVING),
        "writes below the run's folder end in EROFS for 1.5 s",
        _KEPT,
    ),
    _entry(DrillFault.CLOCK_JUMP, (_START, _TRAINING), "time.time() jumps an hour back", _KEPT),
)
_LOAD = (Phase.LOAD,)
_ALL_SERVING = (Phase.LOAD, Phase.ROLLOUT, Phase.FALLBACK)
_NONE_LOST = "no request that had a fallback is lost, and all is whole again at the end"
_FEW_LOST = "only requests that were out at that moment are lost, and all is whole again at the end"


def _served(kind: DrillFault, does: str, asks: str, phases: tuple[Phase, ...] = _LOAD) -> Entry:
    return Entry(kind=kind, side=Side.SERVING, phases=phases, does=does, asks=asks)


_SERVED = (
    _served(
        DrillFault.MALFORMED_WAVE,
        "others send what can't be parsed, or has another form, for 3 s",
        "none of it ends in a 5xx or in silence, and nobody else notices",
    ),
    _served(
        DrillFault.OVERLOAD,
        "64 clients more ask at once for 3 s",
        "what is too much is refused in words, and answers go on at a quarter of the usual rate at least",
    ),
    _served(DrillFault.CLOCK_JUMP, "time.time() is an hour ahead in every process of the app for 3 s", _NONE_LOST),
    _served(
        DrillFault.PARTITION,
        "SIGSTOP to the controllers and to Ray's store for 4 s: nobody refuses, and nobody answers",
        _NONE_LOST,
    ),
    _served(
        DrillFault.KILL_CONTROLLER,
        "SIGKILL to Serve's controller and to that of failsoft's plan at once",
        f"{_NONE_LOST}; no plan goes back",
        _ALL_SERVING,
    ),
    _served(DrillFault.KILL_GATEWAY, "SIGKILL to one replica that takes requests", _FEW_LOST, _ALL_SERVING),
    _served(
        DrillFault.GARBAGE_MODEL,
        "the model's weights, or what it returns, are noise for 6 s",
        f"no bad answer after 5 s; {_NONE_LOST}",
    ),
    _served(DrillFault.KILL_REPLICA, "SIGKILL to the model's replicas", _NONE_LOST, _ALL_SERVING),
    _served(DrillFault.SLOW_MODEL, "each call takes twice as long as callers wait, for 5 s", _NONE_LOST),
    _served(DrillFault.HALF_ALIVE_REPLICA, "SIGSTOP to the model's replicas for 6 s", _NONE_LOST),
    _served(DrillFault.SIGTERM, "SIGTERM to the model's replicas", _NONE_LOST),
    _served(DrillFault.DRAIN, "every replica is replaced in good order, as in a rolling update", _NONE_LOST),
    _served(
        DrillFault.CORRUPT_BUNDLE,
        "one byte of the model's largest file is flipped for 8 s, and its replicas are killed",
        _NONE_LOST,
    ),
    _served(
        DrillFault.KILL_HEAD,
        "SIGKILL to all of Ray's daemons; then the same command starts the app again",
        "what is left ends itself within 20 s; answers come again within 90 s, or three of its starts and 20 s, and "
        "all is whole; no plan goes back",
    ),
)
TRAINING = tuple(entry.kind for entry in _ENTRIES)
"""What can be done to a train script, in the order of the table."""


def entries(side: Side) -> tuple[Entry, ...]:
    """Those of one side, in the order of the table."""
    return tuple(entry for entry in listing() if entry.side is side)


def listing() -> tuple[Entry, ...]:
    """All of both sides; the serving side tries other phases than under load with ``--full`` only."""
    return (*_ENTRIES, *_SERVED)


def entry_of(kind: DrillFault, side: Side) -> Entry:
    """One of them.

    Raises:
        ConfigError: the side knows no such fault.
    """
    found = next((entry for entry in entries(side) if entry.kind is kind), None)
    if found is None:
        known = ", ".join(entry.kind for entry in entries(side))
        raise ConfigError(f"{kind} is no fault of the {side} side; there: {known}")
    return found
