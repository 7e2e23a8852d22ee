"""An incident in words: what happened, since when, how many noticed, what to do next. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from failsoft.health.ledger import Event
from failsoft.incidents.account import Account, account_of
from failsoft.incidents.answers import Span, Totals, totals
from failsoft.incidents.finding import PLANS, Incident, Kind
from failsoft.incidents.onset import Piece, flaws_of, onset_s

BESIDE_S = 600.0
"""At most so much of the time before and after is told, and as much as the incident took."""
_SHOWN = 12
_DONE = PLANS | {"trial_held", "trial_resumed", "release_swapped", "order_renewed"}
"""Kinds of events that tell what was done; the others tell what was seen."""
_NO_FLAW = "stage"
"""Why an answer was not the model's when the model was not asked: such a request broke nothing."""


@dataclass(frozen=True, kw_only=True)
class Story:
    """All that a page says."""

    incident: Incident
    spans: tuple[Span, ...]
    now_s: float

    @property
    def until_s(self) -> float:
        """Its end, or now."""
        return self.now_s if self.incident.ended_s is None else self.incident.ended_s

    @property
    def lasted_s(self) -> float:
        """Never negative, whatever the clocks did."""
        return max(0.0, self.until_s - self.incident.began_s)

    @property
    def beside_s(self) -> float:
        """How much of the time before and after is told."""
        return min(BESIDE_S, max(60.0, self.lasted_s))

    @cached_property
    def onset_s(self) -> float:
        """When the first of its bad answers came: at its beginning or before it, since evidence takes its time."""
        flaws = flaws_of(self.incident)
        pieces = (
            Piece(
                start_s=span.at_s - span.span_s,
                end_s=span.at_s,
                answers=sum(span.answers.values()),
                hit=sum(count for (_source, why), count in span.answers.items() if why in flaws),
            )
            for span in self.spans
        )
        return onset_s(pieces, self.incident.began_s)

    def phases(self) -> dict[str, Totals]:
        """Answers before, during and after; a span belongs to where it ended, and what was bad to the incident."""
        until_s = self.until_s
        return {
            "before": totals(span for span in self.spans if self._is_before(span)),
            "during": totals(span for span in self.spans if not self._is_before(span) and span.at_s <= until_s),
            "after": totals(span for span in self.spans if not self._is_before(span) and span.at_s > until_s),
        }

    def _is_before(self, span: Span) -> bool:
        """A span that ended with the onset was still a good one."""
        began_s = self.incident.began_s
        return span.at_s <= self.onset_s if self.onset_s < began_s else span.at_s < began_s

    def account(self) -> Account:
        """What it is called, and what to press."""
        return account_of(self.incident, self.phases()["during"].whys)

    def hit(self) -> int:
        """Answers in it that were not the model's for its reason: how many saw it."""
        during, counts = self.phases()["during"], self.account().counts
        return during.replaced if counts is None else sum(during.whys.get(why, 0) for why in counts)

    def headline(self) -> str:
        """What happened, since when, how many saw it, in three sentences."""
        one, during, account = self.incident, self.phases()["during"], self.account()
        over = f"over after {_long(self.lasted_s)}" if one.is_over else f"going on for {_long(self.lasted_s)}"
        what = f"{clock(one.began_s)}, {over}: {account.what} ({one.why})."
        if during.answers:
            hit = self.hit()
            seen = f"{hit:,} of {during.answers:,} answers ({hit / during.answers:.1%}) {account.saw}."
        else:
            seen = "How many answers that concerned is not known: no gateway wrote any down."
        early_s = one.began_s - self.onset_s
        early = f"The first of them came {_long(early_s)} before it was noticed. " if early_s >= 1.0 else ""
        return f"{what} {seen} {early}{self._where()}"

    def seen(self) -> list[Event]:
        """What gateways and replicas noticed, in order."""
        return [event for event in self.incident.events if event.kind not in _DONE]

    def done(self) -> list[Event]:
        """What the controller and operators did about it, in order."""
        return [event for event in self.incident.events if event.kind in _DONE]

    def _where(self) -> str:
        one = self.incident
        if one.kind is not Kind.FALL:
            return "The model stayed in service: this is not held against it."
        relapses = f" after {_times(one.relapses)}" if one.relapses else ""
        if not one.is_over:
            return f"It is now in stage {one.stage}{relapses}."
        return f"It ended in stage {one.stage}{relapses}."

    def next_steps(self) -> list[str]:
        """Commands for whoever reads this, each with what it is for."""
        one = self.incident
        steps = [] if one.is_over else ["failsoft status   # what the present stage waits for"]
        if not one.is_over and one.kind is Kind.FALL:
            release = shlex.quote(one.release)
            steps.append(f"failsoft release abort {release} --why '…'   # give it up: the older release serves at once")
        if any("text" in specimen for _at, specimen in self.specimens()):
            steps.append(f"failsoft replay {one.name}   # try its requests again on any release")
        return [*steps, f"failsoft events --since {int(max(60.0, self.now_s - one.began_s + 60.0))}s --side serving"]

    def specimens(self) -> list[tuple[float, dict[str, str]]]:
        """Requests that went wrong in it, evenly spread, with the end of their span.

        Those that broke something, where any are known; else those that the model was not asked.
        """
        found = [
            (span.at_s, dict(specimen))
            for span in self.spans
            if not self._is_before(span) and span.at_s <= self.until_s
            for specimen in span.specimens
        ]
        wanted = self.account().counts
        broke = [(at_s, one) for at_s, one in found if _is_about(one.get("why", ""), wanted)]
        found = broke or ([] if wanted else found)
        stride = max(1, -(-len(found) // _SHOWN))
        return found[::stride]


def clock(at_s: float) -> str:
    """Of this machine's zone."""
    return f"{datetime.fromtimestamp(at_s).astimezone():%Y-%m-%d %H:%M:%S}"


def tell(incident: Incident, spans: Sequence[Span], *, now_s: float) -> Story:
    """The story of one incident, with the spans around it."""
    whole = Story(incident=incident, spans=tuple(spans), now_s=now_s)
    first_s, last_s = incident.began_s - whole.beside_s, whole.until_s + whole.beside_s
    return Story(incident=incident, spans=tuple(span for span in spans if first_s <= span.at_s <= last_s), now_s=now_s)


def _is_about(why: str, wanted: frozenset[str] | None) -> bool:
    return why != _NO_FLAW if wanted is None else why in wanted


def _long(duration_s: float) -> str:
    if duration_s < 120.0:
        return f"{duration_s:.0f} s"
    return f"{duration_s / 60:.0f} min" if duration_s < 7200.0 else f"{duration_s / 3600:.1f} h"


def _times(relapses: int) -> str:
    return "one relapse" if relapses == 1 else f"{relapses} relapses"
