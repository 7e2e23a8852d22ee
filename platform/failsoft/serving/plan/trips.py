"""A replica's finding that one load of a model is ill: what it holds back here, and whether a newer plan answers it.

Pure. A finding is about weights, not about a plan: a plan that was made before the controller knew of it, whatever its
number, cures nothing. Only another load does, or a plan in which that load gets nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from failsoft.errors import ConfigError
from failsoft.health.json_object import is_count
from failsoft.serving.plan.plan import Colour, RoutingPlan, Stage, known_fields
from failsoft.serving.rollout.stages import WATCHED


@dataclass(frozen=True, kw_only=True)
class Trip:
    """What a replica saw, and under which plan."""

    gateway: str
    epoch: int
    """The plan under which it was seen."""
    colour: Colour
    load_generation: int
    """Of the colour, under that plan: which weights are ill."""
    why: str

    def __post_init__(self) -> None:
        """Refuse what can't be held against a plan."""
        if not (is_count(self.epoch) and is_count(self.load_generation)):
            raise ConfigError(
                f"a trip is of plan {self.epoch!r:.80}, load {self.load_generation!r:.80}; both are counts"
            )
        texts: tuple[object, ...] = (self.gateway, self.why)
        if not all(isinstance(text, str) for text in texts):
            raise ConfigError(f"a trip of {self.gateway!r:.80} says {self.why!r:.80}; both are texts")

    @classmethod
    def of_subject(cls, plan: RoutingPlan, *, gateway: str, why: str) -> Trip:
        """The subject of a plan was found ill."""
        generation = plan.load_generation.get(plan.subject, 0)
        return cls(gateway=gateway, epoch=plan.epoch, colour=plan.subject, load_generation=generation, why=why)

    def is_about(self, plan: RoutingPlan, colour: Colour | None) -> bool:
        """Whether ``colour`` has, under ``plan``, the very weights that were found ill."""
        return colour is self.colour and plan.load_generation.get(colour, 0) == self.load_generation

    def holds_in(self, plan: RoutingPlan) -> bool:
        """Whether ``plan`` gives anything to the weights that were found ill."""
        subject = self.is_about(plan, plan.subject) and plan.stage in WATCHED
        return subject or self.is_about(plan, plan.stand_in)

    def applied_to(self, plan: RoutingPlan) -> RoutingPlan:
        """The plan without what was found ill; the same one where it gives nothing to it."""
        if not self.holds_in(plan):
            return plan
        why = f"held back by this replica: {self.why}"
        if self.is_about(plan, plan.stand_in):
            return replace(plan, stand_in=None, why=why)
        return replace(plan, stage=Stage.DEGRADED, share=0.0, mirror_share=0.0, why=why)

    def as_json(self) -> dict[str, Any]:
        """Plain values, as the controller takes them."""
        return asdict(self) | {"colour": str(self.colour)}

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Trip:
        """Read what :meth:`as_json` gave, here or in another version.

        Raises:
            ConfigError: fields are missing, or no trip's.
        """
        try:
            return cls(**(known_fields(cls, body) | {"colour": Colour(body["colour"])}))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ConfigError(f"not a trip: {error.__class__.__name__}: {error}") from error
