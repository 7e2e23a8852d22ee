"""What an incident is called in plain words, what to press, and where the runbook has more. Pure.

The buttons are the console's; the sections are those of ``docs/runbook.md``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from failsoft.incidents.finding import Incident, Kind

_BY_KIND = re.compile(r"(\d+) (weak|late|error)\b")
_FOR_A_TIME = re.compile(r"ordered by .*? for \d+ s: ")
_TRIP = "gateway_tripped"


@dataclass(frozen=True, kw_only=True)
class Account:
    """Of one incident."""

    what: str
    """What happened, in one sentence."""
    press: str
    """What to do about it; names of buttons are in “ ”."""
    section: str
    """Of the runbook."""
    counts: frozenset[str] | None
    """Which answers were hit: why they were not the model's in service; None: for any reason."""
    saw: str
    """What those who got such an answer got."""
    noticed: str = ""
    """Said after the incident's own reason, where that is only a number of calls."""


_FALLS = {
    "weak": "{release} gave silent garbage: answers in time that are not credible",
    "late": "{release} hung: its answers did not come in time",
    "error": "Calls of {release} failed: its replicas crash, or raise errors",
}
_NEXT = {
    "weak": "",
    "late": " Why it hangs is in its replicas: ray status, then their logs.",
    "error": " Why it fails is in its replicas: ray status, then their logs.",
}
_RETURNS = "it rests, comes back by shadow, 5, 20 and 50 %, and falls again if it is still ill"
_PRESS_AFTER_FALL = (
    f"Mostly nothing: {_RETURNS}. If a new release brought it: “roll back”. "
    "If it falls again and again: “hold the model back”."
)

_PRESS_FOR_A_TIME = (
    "Nothing: it returns when the order's time is over. When the cause is gone before that: “let it return”."
)
_PRESS_WHILE_HELD = "An operator holds it in this stage. When the cause is gone: “go on by itself”. Else: “roll back”."
_PRESS_AFTER_GIVING_UP = (
    "Mostly nothing: the older release takes its place, by shadow, 5, 20 and 50 % where it has to be read first. "
    "Publish a mended one under a new name. If the older one is ill, too: “hold the model back”."
)
_PRESS_WITHOUT_PLAN = (
    "Nothing against the model: each gateway that finds it ill holds it back alone. Orders and the way back wait for "
    "the controller, which has not answered: the runbook's section FailsoftControllerSilent."
)


def account_of(incident: Incident, whys: Mapping[str, int] | None = None) -> Account:
    """What is said of an incident.

    Args:
        incident: which one.
        whys: of the answers in it why they were not the model's, where the incident's own reason does not say what was
            wrong with them.
    """
    if incident.kind is Kind.OVERLOAD:
        return _OVERLOAD
    if incident.kind is Kind.BAD_INPUT:
        return _BAD_INPUT
    what = " ".join(filter(None, (_order_in_words(incident), _fall_in_words(incident, whys or {}))))
    return _fall(what, _press(incident, whys or {}))


def _order_in_words(incident: Incident) -> str:
    release = incident.release or "the model"
    if not incident.falls:
        return f"An operator held {release} back"
    if incident.order:
        return f"An operator holds {release} back, which had fallen:"
    return f"An operator held {release} back, and on its way back it fell:" if incident.is_by_order else ""


def _fall_in_words(incident: Incident, whys: Mapping[str, int]) -> str:
    if not incident.falls:
        return ""
    release, worst = incident.release or "the model", _flaw(incident, whys)
    what = f"{release} was taken out of service" if worst is None else _FALLS[worst].format(release=release)
    return f"{what}; it was given up" if incident.is_given_up else what


def _press(incident: Incident, whys: Mapping[str, int]) -> str:
    """By what holds the model back now, whatever began it."""
    worst = _flaw(incident, whys)
    which = (
        (_FOR_A_TIME.search(incident.order), _PRESS_FOR_A_TIME),
        (incident.order, "When the cause is gone: “let it return”."),
        (not incident.is_planned, _PRESS_WITHOUT_PLAN),
        (incident.hold, _PRESS_WHILE_HELD),
        (incident.is_given_up, _PRESS_AFTER_GIVING_UP),
        (not incident.falls, f"Nothing: the order is over, and it {_RETURNS.removeprefix('it rests, ')}."),
    )
    return next((words for holds, words in which if holds), _PRESS_AFTER_FALL + (_NEXT[worst] if worst else ""))


def _flaw(incident: Incident, whys: Mapping[str, int]) -> str | None:
    told = [*incident.falls, *(event for event in incident.events if event.kind == _TRIP)]
    return _worst(" ".join(event.why for event in told), whys)


def _fall(what: str, press: str) -> Account:
    return Account(
        what=what,
        press=press,
        section="FailsoftDegraded",
        counts=None,
        saw="came from something else than it",
    )


def _worst(why: str, whys: Mapping[str, int]) -> str | None:
    """Which flaw most of the bad answers had."""
    said = Counter[str]()
    for count, flaw in _BY_KIND.findall(why):
        said[flaw] += int(count[:9])
    counted = said or Counter({flaw: count for flaw, count in whys.items() if flaw in _FALLS and count})
    return max(counted, key=lambda flaw: counted[flaw]) if counted else None


_OVERLOAD = Account(
    what="Overload: more is asked than the models manage, and what is too much is answered by a fallback",
    press=(
        "Nothing against the model, it is well. Give it more replicas (the app's Serve config), or a limit to the "
        "caller who floods; callers who are judged alone are named on the console."
    ),
    section="FailsoftOverload",
    counts=frozenset({"shed"}),
    saw="came from a fallback for want of room at the models",
    noticed=" found no room at the models",
)
_BAD_INPUT = Account(
    what="A wave of bad input: many requests hold nothing that a model could read",
    press=(
        "Nothing here: it is not held against the model, and the rules answer. Tell whoever sends them; callers who "
        "are judged alone are named on the console."
    ),
    section="FailsoftBadInputWave",
    counts=frozenset({"bad_input"}),
    saw="had a request that nobody could read, and got the rules' answer",
    noticed=" held nothing to read",
)
