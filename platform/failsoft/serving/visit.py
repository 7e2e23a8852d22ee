"""One request on its way: what is in force for it, and how much time it has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from failsoft.serving.config import GatewayConfig
from failsoft.serving.fallback.ladder import FallbackLadder
from failsoft.serving.intake.sanitizer import Cleaned, TextPolicy
from failsoft.serving.plan.plan import Arm, Colour, RoutingPlan


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What is in force at one moment; replaced whole, so that a request lives under one plan."""

    plan: RoutingPlan
    text_policy: TextPolicy | None
    """Of the release that serves; None where items are no texts."""
    subject_policy: TextPolicy | None
    """Of the plan's subject, which may be another release on trial."""
    ladder: FallbackLadder
    """Of the release that serves."""


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """Time for one call of a model."""

    left_s: float
    """The call is cut after so long; 0 or less: it is not made."""
    whole_s: float
    """What such a call has when nothing else took time before it."""
    by_caller: bool = False
    """The caller gave less time than this gateway does: a cut call says nothing about the model."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How a request's time is shared out: the model first, then the previous release, then the ladder.

    What is kept back for the previous release, where there is one, is taken from both arms: they are compared.
    """

    began_s: float
    deadline_s: float
    by_caller: bool
    model_s: float
    """From the beginning to the end of the model's call."""
    previous_s: float
    """From there to the end of the previous release's call; 0 without one."""

    @classmethod
    def of(cls, config: GatewayConfig, *, began_s: float, caller_ms: float | None, with_previous: bool) -> Budget:
        """The shares of one request's time; ``caller_ms``: what the caller said that it will wait."""
        deadline_ms = config.deadline_for(caller_ms)
        models_s = max(0.0, deadline_ms - config.ladder_reserve_ms) / 1000
        previous_s = models_s * config.previous_share if with_previous else 0.0
        return cls(
            began_s=began_s,
            deadline_s=deadline_ms / 1000,
            by_caller=deadline_ms < config.deadline_ms,
            model_s=models_s - previous_s,
            previous_s=previous_s,
        )

    def for_model(self, now_s: float) -> Allowance:
        """Time for the chosen arm's call, if it is made now."""
        left_s = self.began_s + self.model_s - now_s
        return Allowance(left_s=left_s, whole_s=self.model_s, by_caller=self.by_caller)

    def for_previous(self, now_s: float) -> Allowance:
        """Time for the previous release's call after the model's, if it is made now."""
        left_s = self.began_s + self.model_s + self.previous_s - now_s
        return Allowance(left_s=left_s, whole_s=self.previous_s, by_caller=self.by_caller)


class Waits(NamedTuple):
    """Since when somebody waits for an answer, and how long."""

    began_s: float | None = None
    """When the request came, on the gateway's clock; None: now. The deadline counts from there."""
    timeout_ms: float | None = None
    """How long the caller will wait, if it said so; the configuration bounds it."""


NOW = Waits()


@dataclass(frozen=True, kw_only=True)
class Whose:
    """Who asks."""

    key: str
    """The same one stays with the same model."""
    request_id: str
    caller: int | None
    """Number of whose request it is; None: nobody knows."""
    row: int = 0
    """Place of the item in its request."""


@dataclass(kw_only=True)
class Ending:
    """How a request ended, beside its answer; all copies of a visit share it."""

    why: str = "none"
    """Why not the model in service, as one of few words; whoever makes the answer says it."""


@dataclass(frozen=True, kw_only=True)
class Visit:
    """One request on its way."""

    key: str
    request_id: str
    row: int
    """Place of the item in its request."""
    caller: int | None
    now: Situation
    budget: Budget
    arm: Arm
    text: Any
    """As the caller wrote it: a text, or an instance."""
    cleaned: Cleaned
    """The same as the arm's release wants it."""
    ending: Ending = field(default_factory=Ending)

    @property
    def colour(self) -> Colour | None:
        """Who is to answer; None: the ladder."""
        plan = self.now.plan
        return plan.subject if self.arm is Arm.SUBJECT else plan.stand_in
