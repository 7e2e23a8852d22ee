"""A soak judged, as JSON and as one picture."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.drills.serving_support import Reply
from tests.drills.soak_census import IN_WAITING, SERIES
from tests.drills.soak_leaks import Allowance, Judged, judge
from tests.drills.soak_together import Soaked, chance

WARM_UP = 0.2
"""Of the time: caches fill, idle workers gather. It is watched, and not judged."""
ALLOWED: Mapping[str, Allowance] = {
    "processes": Allowance(share=0.05, at_least=2.0),
    "own bytes": Allowance(share=0.05, at_least=64e6),
    "threads": Allowance(share=0.05, at_least=10.0),
    "open files": Allowance(share=0.05, at_least=20.0),
    "ports": Allowance(share=0.05, at_least=2.0),
}
ROLE = Allowance(share=0.10, at_least=32e6)
_LONG_LIVED = 0.5
"""A role is judged by itself when it was there at so many of the looks."""


def leaks(soaked: Soaked) -> list[Judged]:
    """All series of the whole family, then the memory of the largest process of each role.

    The whole is judged by the moments at which all were there who mostly are: else each death would be a fall, and each
    return a leak.
    """
    looks = [look for look in soaked.looks if look.at_s >= WARM_UP * soaked.minutes * 60.0]
    at_s = [look.at_s for look in looks]
    there = Counter(role for look in looks for role in look.roles)
    mostly = sorted(role for role, count in there.items() if count >= _LONG_LIVED * len(looks))
    expected = frozenset(mostly) - IN_WAITING
    found = []
    for name in SERIES:
        values = [look.total(name) if expected <= look.roles else math.nan for look in looks]
        found.append(judge(name, at_s, values, allowance=ALLOWED[name], rng=chance(soaked)))
    for role in sorted(expected):
        values = [look.of_role(role) for look in looks]
        found.append(judge(f"memory of {role}", at_s, values, allowance=ROLE, rng=chance(soaked)))
    return found


def success(replies: list[Reply]) -> float:
    """The share that were answered; NaN: nobody asked."""
    return sum(reply.status == 200 for reply in replies) / len(replies) if replies else math.nan


def as_json(soaked: Soaked, judged: list[Judged]) -> dict[str, Any]:
    """Plain data."""
    lost = Counter(str(reply.status) for reply in soaked.replies if reply.status != 200)
    waits = sorted(reply.done_s - reply.sent_s for reply in soaked.replies)
    return {
        "minutes": soaked.minutes,
        "seed": soaked.seed,
        "faults": [[round(one.at_s, 1), one.kind, one.what] for one in soaked.struck],
        "requests": len(soaked.replies),
        "success": success(soaked.replies),
        "lost": dict(lost),
        "answered_by": dict(Counter(str(reply.body.get("source")) for reply in soaked.replies)),
        "wait_s": {str(share): waits[int(share * (len(waits) - 1))] for share in (0.5, 0.99, 1.0)} if waits else {},
        "ettr": soaked.ettr,
        "parts_s": soaked.parts_s,
        "batches": soaked.position,
        "restarts_by_hand": soaked.restarts_by_hand,
        "exit_status": soaked.left_with,
        "left": soaked.left,
        "left_in_memory": soaked.left_in_memory,
        "leaks": [vars_of(one) for one in judged],
        "looks": [[round(look.at_s, 1), *map(look.total, SERIES), look.in_waiting] for look in soaked.looks],
    }


def vars_of(one: Judged) -> dict[str, Any]:
    """A judgement; what is no number becomes None."""
    plain = {name: getattr(one, name) for name in one.__dataclass_fields__}
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in plain.items()
    }


def draw(soaked: Soaked, judged: list[Judged], path: Path) -> None:
    """One PNG: answers, and each series with its faults."""
    with mpl.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(14, 13), dpi=90, layout="constrained")
        answers, *series = figure.subplots(1 + len(SERIES), 1, sharex=True)
        ettr = "not known" if soaked.ettr is None else f"{soaked.ettr:.1%}"
        figure.suptitle(
            f"{soaked.minutes:g} minutes, {len(soaked.struck)} faults: {success(soaked.replies):.3%} of "
            f"{len(soaked.replies)} requests answered, ETTR of the training {ettr}"
        )
        _draw_answers(answers, soaked)
        for axes, name, one in zip(series, SERIES, judged, strict=False):
            values = [look.total(name) for look in soaked.looks]
            axes.plot([look.at_s for look in soaked.looks], values, color="#1f3b63", linewidth=1.0)
            axes.set(ylabel=name, ylim=(0.0, 1.15 * max(values, default=1.0)))
            axes.set_title(one.in_words(), fontsize=9, loc="left")
        for axes in (answers, *series):
            axes.axvspan(0.0, WARM_UP * soaked.minutes * 60.0, color="#999999", alpha=0.25)
            for one_fault in soaked.struck:
                axes.axvline(one_fault.at_s, color="#b3202a", linewidth=0.5, alpha=0.5)
        series[-1].set_xlabel("seconds; a line is a fault, the grey part is not judged")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="png")


def _draw_answers(axes: Axes, soaked: Soaked) -> None:
    """By second: answered by the model, by somebody else, lost."""
    end = int(soaked.minutes * 60.0) + 1
    kinds = {"model": [0] * end, "stands in": [0] * end, "lost": [0] * end}
    for reply in soaked.replies:
        second = int(reply.sent_s - soaked.began_s)
        if 0 <= second < end:
            ok = "model" if reply.body.get("source") == "primary" else "stands in"
            kinds[ok if reply.status == 200 else "lost"][second] += 1
    colours = ("#2f7d4f", "#e8a33d", "#b3202a")
    axes.stackplot(range(end), *kinds.values(), labels=list(kinds), colors=colours, step="post")
    axes.legend(loc="lower left", ncols=3, fontsize=9)
    axes.set(ylabel="answers in a second")
