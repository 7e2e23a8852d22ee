"""The books of one gateway replica: what is in force, what was counted, what its own eye sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from failsoft.health.metric_book import MetricBook
from failsoft.serving.arms.mirror import MirrorQueue, NotMirrored
from failsoft.serving.kit import KitShelf
from failsoft.serving.plan.plan import Arm, Colour, RoutingPlan
from failsoft.serving.request import Mirrored, Situation
from failsoft.serving.watching.few_names import one_of_few
from failsoft.serving.watching.gateway_metrics import GatewayMetrics
from failsoft.serving.watching.late_labels import LateLabels
from failsoft.serving.watching.outcomes import OutcomeBuffer, Seen
from failsoft.serving.watching.watch import Watch
from failsoft.serving.watching.waves import Waves
from failsoft.serving.web.messages import Answer


@dataclass(kw_only=True)
class Counts:
    """What this replica did since it started."""

    sources: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    stale: Counter[str] = field(default_factory=Counter)
    """Answers of a model that had not (re)loaded what the plan asks for."""

    def as_json(self) -> dict[str, Any]:
        """For the status route."""
        return {
            "answers_by_source": dict(self.sources),
            "outcomes": dict(self.outcomes),
            "stale_answers": dict(self.stale),
        }


class FrontDesk:
    """Knows what is in force for the next request, and writes down how each one went (the answerer's journal).

    Args:
        plan: gives the plan in force in this replica.
        shelf: holds the ladder and the text policy in use.
        watch: the replica's own eye on the subject.
        buffer: counts for the controller.
        mirror: takes copies for the subject.
        labels: remembers answers for labels that come later.
    """

    def __init__(
        self,
        *,
        plan: Callable[[], RoutingPlan],
        shelf: KitShelf,
        watch: Watch,
        buffer: OutcomeBuffer,
        mirror: MirrorQueue[Mirrored],
        labels: LateLabels,
    ) -> None:
        self._plan = plan
        self._shelf = shelf
        self._watch = watch
        self._buffer = buffer
        self._mirror = mirror
        self._labels = labels
        self.metrics = GatewayMetrics(MetricBook())
        """What is to be exported of all this; whoever owns this desk does."""
        self.on_answer: Callable[[Answer, str, Any, int | None], None] | None = None
        """Told of each answer, why it is not the model's, what was asked, and by which caller; returns at once."""
        self._counts = Counts()
        self._refusals: dict[str, str | None] = {}
        self._waves = Waves()
        self._made: Situation | None = None
        self._made_of = shelf.kit, shelf.in_service
        watch.arm(shelf.kit.release, shelf.kit.baseline)
        watch.follow(plan())

    def situation(self) -> Situation:
        """What the next request lives under; the same object while nothing of it is another."""
        plan, subject, serving, made = self._plan(), self._shelf.kit, self._shelf.in_service, self._made
        if made is None or made.plan is not plan or self._made_of[0] is not subject or self._made_of[1] is not serving:
            self._made_of = subject, serving
            self._made = made = Situation(
                plan=plan,
                text_policy=serving.text_policy,
                subject_policy=subject.text_policy,
                ladder=serving.ladder,
            )
        return made

    def follow(self, plan: RoutingPlan) -> None:
        """Take over a new plan: its answers are judged in an empty window."""
        self._watch.follow(plan)

    async def follow_release(self) -> bool:
        """Take over the kits that the plan wants, and the baseline of its subject; True when a kit is another one."""
        subject = self._shelf.kit
        if not await self._shelf.follow(self._plan()):
            return False
        if self._shelf.kit is not subject:
            self._watch.arm(self._shelf.kit.release, self._shelf.kit.baseline)
        return True

    def new_refusals(self) -> list[tuple[str, str]]:
        """Kind and words of what was refused since it was last asked: an unarmed watch, a fallback that won't load.

        Also of callers whose answers are judged alone from now on, and of waves that are not the model's fault.
        """
        now = {"watch_not_armed": self._watch.refusal, "fallback_refused": self._shelf.refusal}
        told, self._refusals = self._refusals, now
        new = [(kind, why) for kind, why in now.items() if why is not None and why != told.get(kind)]
        new += [("caller_apart", why) for why in self._watch.newly_apart()]
        return new + self._waves.news(self._watch.warnings(), self._counts.sources.total())

    def note(self, seen: Seen) -> None:
        """Count one call of a model, and let the watch see it if the subject made it."""
        self._counts.outcomes[f"{'rescue' if seen.rescue else seen.arm}_{seen.outcome}"] += 1
        self.metrics.called(seen)
        if seen.rescue:
            return
        self._labels.noted(seen)
        if seen.arm is Arm.SUBJECT:
            self._buffer.record(seen, slow=self._watch.slow(seen))
            self._watch.record(seen)
        else:
            self._buffer.record(seen, slow=self._watch.slow_for(self._stand_in_p95_ms(), seen))

    def holds_back(self, caller: int | None) -> str | None:
        """Why this request had better not go to the subject: its caller alone has gone bad. None: it may."""
        return self._watch.holds_back(caller)

    def stale(self, colour: Colour) -> None:
        """Count an answer that is no evidence about the plan's release."""
        self._counts.stale[colour] += 1

    def answered(self, answer: Answer, row: int, why: str, asked: Any, *, caller: int | None = None) -> None:
        """Count one answered item."""
        self._counts.sources[one_of_few(answer.source, self._counts.sources)] += 1
        self.metrics.answered(answer, why)
        self._labels.answered(answer, row)
        if self.on_answer is not None:
            self.on_answer(answer, why, asked, caller)

    def mirror(self, copy: Mirrored) -> None:
        """Queue a copy for the subject, or drop and count it."""
        self._mirror.offer(copy)

    def not_mirrored(self, reason: NotMirrored) -> None:
        """Count a request of which no copy was made."""
        self._mirror.skip(reason)

    def _stand_in_p95_ms(self) -> float | None:
        """Of the release that stands in, where its kit is at hand: on a trial it is the one in service."""
        kit, plan = self._shelf.in_service, self._plan()
        stands_in = plan.stand_in is not None and plan.releases.get(plan.stand_in) == kit.release
        return kit.baseline.latency_p95_ms if stands_in and kit.baseline is not None else None

    def status(self) -> dict[str, Any]:
        """Everything above, for people and for tests."""
        verdict, plan = self._watch.verdict(), self._plan()
        return {
            "epoch": plan.epoch,
            "stage": plan.stage,
            "plan": plan.as_json(),
            "health": {
                "status": verdict.status,
                "bad": verdict.bad,
                "total": verdict.total,
                "limit": verdict.verdict.policy.max_bad_fraction,
                "reason": verdict.reason,
                "rule": self._watch.in_words(),
                "not_armed": self._watch.refusal,
                "signals": self._watch.status(),
            },
            "fallback": {"release": self._shelf.in_service.release, "refusal": self._shelf.refusal},
            "release_lacks": list(self._shelf.kit.not_armed),
            "rungs_resting": dict(self._shelf.in_service.ladder.resting),
            "mirror": {
                "sent": self._mirror.sent,
                "waiting": self._mirror.waiting,
                "dropped": dict(self._mirror.dropped),
                "error": self._mirror.last_error,
            },
            "late_labels": self._labels.status(),
            "counts": self._counts.as_json() | {"reports_given_up": self._buffer.given_up},
        }
