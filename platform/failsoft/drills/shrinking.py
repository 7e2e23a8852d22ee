"""A failing set of faults is made smaller while it still fails: fewer faults first, then simpler ones.

Fewer by delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE 2002):
what is found is 1-minimal, no single fault of it can be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from failsoft.drills.fault import PlannedFault

Fails = Callable[[Sequence[PlannedFault]], bool]
_PLAIN_AT = 0.5


def shrink(faults: Sequence[PlannedFault], still_fails: Fails, *, most_trials: int = 40) -> tuple[PlannedFault, ...]:
    """The smallest failing set that is found.

    Args:
        faults: a set that failed.
        still_fails: tries a set; each set is tried once at most.
        most_trials: after so many the smallest one so far is taken.
    """
    tries = _Tries(still_fails, most_trials)
    left = _fewer(tuple(faults), tries)
    return _simpler(left, tries)


class _Tries:
    """Remembers what was tried, and stops when it was enough."""

    def __init__(self, still_fails: Fails, most: int) -> None:
        self._still_fails = still_fails
        self._left = most
        self._known: dict[tuple[PlannedFault, ...], bool] = {}

    def fails(self, faults: tuple[PlannedFault, ...]) -> bool:
        if not faults:
            return False
        if faults not in self._known:
            if self._left <= 0:
                return False
            self._left -= 1
            self._known[faults] = self._still_fails(faults)
        return self._known[faults]


def _fewer(faults: tuple[PlannedFault, ...], tries: _Tries) -> tuple[PlannedFault, ...]:
    parts = 2
    while len(faults) >= 2:
        smaller = _part_that_fails(faults, parts, tries)
        if smaller is not None:
            faults, parts = smaller, max(2, parts - 1 if len(smaller) > 1 else 2)
        elif parts >= len(faults):
            break
        else:
            parts = min(len(faults), 2 * parts)
    return faults


def _part_that_fails(faults: tuple[PlannedFault, ...], parts: int, tries: _Tries) -> tuple[PlannedFault, ...] | None:
    """One of ``parts`` parts, or what is left without one of them."""
    edges = [round(number * len(faults) / parts) for number in range(parts + 1)]
    spans = list(pairwise(edges))
    candidates = [faults[begin:end] for begin, end in spans]
    candidates += [faults[:begin] + faults[end:] for begin, end in spans]
    return next((one for one in candidates if 0 < len(one) < len(faults) and tries.fails(one)), None)


def _simpler(faults: tuple[PlannedFault, ...], tries: _Tries) -> tuple[PlannedFault, ...]:
    """Each fault at its plain place, with its plain seed and without arguments, where it still fails so."""
    for index, fault in enumerate(faults):
        for plainer in (replace(fault, arguments={}), replace(fault, at=_PLAIN_AT), replace(fault, seed=0)):
            current = faults[index]
            wanted = replace(
                current,
                arguments=plainer.arguments if plainer.arguments != fault.arguments else current.arguments,
                at=plainer.at if plainer.at != fault.at else current.at,
                seed=plainer.seed if plainer.seed != fault.seed else current.seed,
            )
            candidate = (*faults[:index], wanted, *faults[index + 1 :])
            if wanted != current and tries.fails(candidate):
                faults = candidate
    return faults
