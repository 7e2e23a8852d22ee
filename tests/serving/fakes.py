"""Stand-ins for what surrounds a gateway: plans, models and release kits without Ray and without weights."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import Any

from failsoft.health.window import Outcome
from failsoft.serving.arms.mirror import NotMirrored
from failsoft.serving.fallback.ladder import FallbackLadder
from failsoft.serving.plan.plan import Colour, RoutingPlan, Stage
from failsoft.serving.request import Mirrored, NoReading, Reading
from failsoft.serving.seam import RungAnswer
from failsoft.serving.watching.outcomes import Seen
from failsoft.serving.web.messages import Answer, Entity, Source


def plan(
    stage: Stage = Stage.SERVING,
    *,
    epoch: int = 1,
    share: float = 1.0,
    stand_in: Colour | None = None,
    release: str = "r1",
) -> RoutingPlan:
    """A plan with blue as subject, loaded once."""
    return RoutingPlan(
        epoch=epoch,
        stage=stage,
        subject=Colour.BLUE,
        stand_in=stand_in,
        releases={Colour.BLUE: release, Colour.GREEN: "r0" if stand_in else None},
        load_generation={Colour.BLUE: 1, Colour.GREEN: 1},
        share=share,
        mirror_share=1.0 if stage is Stage.SHADOW else 0.0,
        forced=False,
        forced_remaining_s=None,
        relapses=0,
        why="as planned",
    )


def good(release: str = "r1") -> Reading:
    """A credible answer."""
    return reading(release=release)


def weak() -> Reading:
    """An answer that no caller should get."""
    return reading(confidence=0.3, outcome=Outcome.WEAK, usable=False, why="confidence 0.30 is below 0.50")


def reading(
    *,
    confidence: float = 0.97,
    outcome: Outcome = Outcome.GOOD,
    usable: bool = True,
    why: str = "",
    release: str = "r1",
    entities: tuple[Entity, ...] = (),
) -> Reading:
    """Any answer of a model."""
    return Reading(
        output="play_music",
        confidence=confidence,
        entities=entities,
        release=release,
        load_generation=1,
        outcome=outcome,
        usable=usable,
        why=why,
    )


@dataclass
class ScriptedArm:
    """A model that answers as told and remembers what it was asked."""

    answer: Reading | NoReading = field(default_factory=good)
    takes_s: float = 0.0
    asked: list[str] = field(default_factory=list)

    async def ask(self, text: str, *, within_s: float = math.inf) -> Reading | NoReading:
        """The scripted answer, after the scripted time."""
        self.asked.append(text)
        await asyncio.sleep(self.takes_s)
        return self.answer


@dataclass
class Notes:
    """A journal that keeps everything."""

    seen: list[Seen] = field(default_factory=list)
    stale_colours: list[Colour] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    whys: list[str] = field(default_factory=list)
    copies: list[Mirrored] = field(default_factory=list)
    skipped: list[NotMirrored] = field(default_factory=list)
    held_back: dict[int | None, str] = field(default_factory=dict)
    """Why requests of some callers had better not go to the subject."""

    def holds_back(self, caller: int | None) -> str | None:
        """As a test says."""
        return self.held_back.get(caller)

    def note(self, seen: Seen) -> None:
        """Keep."""
        self.seen.append(seen)

    def stale(self, colour: Colour) -> None:
        """Keep."""
        self.stale_colours.append(colour)

    def answered(self, answer: Answer, row: int, why: str, asked: Any, *, caller: int | None = None) -> None:
        """Keep."""
        self.answers.append(answer)
        self.whys.append(why)

    def mirror(self, copy: Mirrored) -> None:
        """Keep."""
        self.copies.append(copy)

    def not_mirrored(self, reason: NotMirrored) -> None:
        """Keep."""
        self.skipped.append(reason)


class Rules:
    """A last rung: it always says the same."""

    name = Source.RULES

    def answer(self, text: str) -> RungAnswer:
        """The default answer."""
        return RungAnswer(source=Source.RULES, output="help")


def ladder() -> FallbackLadder:
    """A ladder of one rung that can't fail."""
    return FallbackLadder([Rules()])
