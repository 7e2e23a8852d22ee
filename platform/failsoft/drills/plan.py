"""Which faults are tried in which phases: each alone, then some together. Pure, and the same for the same seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Sequence

from failsoft.drills.fault import DrillFault, Phase, PlannedFault
from failsoft.drills.subject import Subject
from failsoft.errors import ConfigError

Trial = tuple[PlannedFault, ...]
"""What is tried at once."""
_MOST_TOGETHER = 3
_MIDDLE = (Phase.TRAINING, Phase.LOAD)


def chosen(subject: Subject, names: Sequence[str]) -> tuple[DrillFault, ...]:
    """The kinds that a user named, all where none.

    Raises:
        ConfigError: a name that is no fault of this subject.
    """
    known = {str(kind): kind for kind in subject.kinds}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(f"--fault {unknown[0]} is none that {subject.side} knows; use one of {', '.join(known)}")
    return tuple(known[name] for name in names) or subject.kinds


def alone(subject: Subject, kinds: Sequence[DrillFault], *, seed: int = 0) -> list[Trial]:
    """Each kind in each of its phases."""
    return [(PlannedFault(kind=kind, phase=phase, seed=seed),) for kind in kinds for phase in subject.phases(kind)]


def widest_first(trials: Sequence[Trial]) -> list[Trial]:
    """Each kind once in the middle of the work, then once more each: little time then tries a little of everything."""
    turns: Counter[DrillFault] = Counter()
    turn_of: dict[Trial, int] = {}
    for trial in sorted(trials, key=lambda trial: trial[0].phase not in _MIDDLE):
        turns[trial[0].kind] += 1
        turn_of[trial] = turns[trial[0].kind]
    return sorted(trials, key=lambda trial: turn_of[trial])


def combinations(
    subject: Subject, kinds: Sequence[DrillFault], *, seed: int, count: int, able: Collection[tuple[DrillFault, Phase]]
) -> list[Trial]:
    """Two or three faults at once, at places of their own, drawn by the seed.

    Args:
        subject: what is drilled.
        kinds: from which is drawn.
        seed: the same one draws the same.
        count: how many combinations.
        able: what may be drawn, as what survived alone.

    Returns:
        At most ``count`` of them; none where fewer than two kinds may be drawn.
    """
    chance = random.Random(seed)
    usable = [kind for kind in kinds if any((kind, phase) in able for phase in subject.phases(kind))]
    if len(usable) < 2:
        return []
    drawn = []
    for _ in range(count):
        together = chance.sample(usable, chance.randint(2, min(_MOST_TOGETHER, len(usable))))
        drawn.append(tuple(_somewhere(subject, kind, chance, able) for kind in together))
    return drawn


def _somewhere(
    subject: Subject, kind: DrillFault, chance: random.Random, able: Collection[tuple[DrillFault, Phase]]
) -> PlannedFault:
    phases = [phase for phase in subject.phases(kind) if (kind, phase) in able]
    at, seed = round(chance.random(), 3), chance.randrange(2**16)
    return PlannedFault(kind=kind, phase=chance.choice(phases), at=at, seed=seed)
