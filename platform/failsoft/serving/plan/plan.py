"""The routing plan: which model answers which share of the traffic. Everything a gateway needs to route, and no more.

Pure and small: gateways, model replicas and the controller all import it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from hashlib import blake2b
from typing import Any

from failsoft.errors import ConfigError
from failsoft.health.json_object import is_count, is_finite, json_value

_HASH_BYTES = 8
_HASH_RANGE = float(1 << (8 * _HASH_BYTES))


class Colour(StrEnum):
    """One of the two model deployments that always stand behind the gateway."""

    BLUE = "blue"
    GREEN = "green"

    @property
    def other(self) -> Colour:
        """The other one."""
        return Colour.GREEN if self is Colour.BLUE else Colour.BLUE


class Arm(StrEnum):
    """Who gets a request: the model under test or in service, or what stands in for it."""

    SUBJECT = "subject"
    STAND_IN = "stand_in"


class Stage(StrEnum):
    """How far the subject is trusted. The moves between stages are listed in :mod:`failsoft.serving.rollout.stages`."""

    SERVING = "serving"
    DEGRADED = "degraded"
    SHADOW = "shadow"
    CANARY = "canary"
    RAMP_20 = "ramp_20"
    RAMP_50 = "ramp_50"
    REJECTED = "rejected"


LIVE: frozenset[Stage] = frozenset({Stage.SERVING, Stage.CANARY, Stage.RAMP_20, Stage.RAMP_50})
"""Stages in which the subject answers callers."""


@dataclass(frozen=True, kw_only=True)
class RoutingPlan:
    """One plan, replaced whole and never changed."""

    epoch: int
    """Grows by 1 with every durable change of the plan; the larger epoch is the truth."""
    stage: Stage
    subject: Colour
    stand_in: Colour | None
    """The model that answers what the subject does not; None: the fallback ladder does."""
    releases: Mapping[Colour, str | None]
    """Which release each colour must have loaded; None: nothing."""
    load_generation: Mapping[Colour, int]
    """A colour reads its release from disk again when its number grows, which heals weights damaged in memory."""
    share: float
    """Share of live traffic that goes to the subject, 0..1."""
    mirror_share: float
    """Share of live traffic of which the subject gets a copy, 0..1."""
    forced: bool = False
    """An operator's order holds the subject back."""
    forced_remaining_s: float | None = None
    """Seconds until the order expires, at the moment that this plan was written; None: no order, or no end."""
    relapses: int = 0
    """Trips after the first one since the last full quiet period."""
    why: str = ""

    def __post_init__(self) -> None:
        """Refuse plans that no gateway could follow, or never leave: no epoch is later than one that is no number."""
        self._refuse_odd_kinds()
        for name, share in (("share", self.share), ("mirror_share", self.mirror_share)):
            if not (math.isfinite(share) and 0.0 <= share <= 1.0):
                raise ConfigError(f"{name} of plan {self.epoch} is {share}; it is a share from 0 to 1")
        if self.share > 0.0 and self.stage not in LIVE:
            raise ConfigError(
                f"plan {self.epoch} gives {self.share:.0%} to the subject in {self.stage}; there it gets 0"
            )
        if self.stand_in is self.subject:
            raise ConfigError(f"plan {self.epoch} lets {self.subject} stand in for itself; name the other one, or none")
        for colour in (self.subject, self.stand_in):
            if colour is not None and not self.releases.get(colour):
                raise ConfigError(f"plan {self.epoch} uses {colour}, but names no release for it")

    def _refuse_odd_kinds(self) -> None:
        fit: dict[str, bool] = {
            "epoch": is_count(self.epoch),
            "relapses": is_count(self.relapses),
            "load_generation": all(map(is_count, self.load_generation.values())),
            "releases": all(name is None or isinstance(name, str) for name in self.releases.values()),
            "forced": isinstance(self.forced, bool),
            "forced_remaining_s": self.forced_remaining_s is None or is_finite(self.forced_remaining_s),
            "why": isinstance(self.why, str),
        }
        for name in (name for name, fits in fit.items() if not fits):
            raise ConfigError(f"{name} of a plan is {str(getattr(self, name))[:80]}; no plan has such a one")

    @property
    def subject_release(self) -> str:
        """Name of the release under test or in service."""
        return str(self.releases[self.subject])

    @property
    def release_in_service(self) -> str:
        """Name of the release that callers get for the most part: what stands in, unless the subject serves."""
        if self.stage is Stage.SERVING or self.stand_in is None:
            return self.subject_release
        return str(self.releases[self.stand_in])

    def lets_answer(self, colour: Colour) -> bool:
        """Whether callers may get what this colour says."""
        return colour is self.stand_in or (colour is self.subject and self.share > 0.0)

    def as_json(self) -> dict[str, Any]:
        """Plain values for JSON, status pages and the ledger."""
        return {
            "epoch": self.epoch,
            "stage": str(self.stage),
            "subject": str(self.subject),
            "stand_in": str(self.stand_in) if self.stand_in else None,
            "releases": {str(colour): self.releases.get(colour) for colour in Colour},
            "load_generation": {str(colour): self.load_generation.get(colour, 0) for colour in Colour},
            "share": self.share,
            "mirror_share": self.mirror_share,
            "forced": self.forced,
            "forced_remaining_s": self.forced_remaining_s,
            "relapses": self.relapses,
            "why": self.why,
        }

    def to_json(self) -> str:
        """JSON text that :meth:`from_json` reads back."""
        return json.dumps(self.as_json(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> RoutingPlan:
        """Read a plan.

        Raises:
            ConfigError: not a plan, with fields missing, or one that can't be followed.
        """
        try:
            return cls.of(json_value(text))
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
            raise ConfigError(f"not a routing plan: {error.__class__.__name__}: {error}") from error

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> RoutingPlan:
        """The plan in plain values, as :meth:`as_json` gives them in any version; raises what a wrong value raises."""
        values = known_fields(cls, body)
        stand_in = values.pop("stand_in")
        return cls(
            stage=Stage(values.pop("stage")),
            subject=Colour(values.pop("subject")),
            stand_in=None if stand_in is None else Colour(stand_in),
            releases={Colour(name): release for name, release in values.pop("releases").items()},
            load_generation={Colour(name): int(number) for name, number in values.pop("load_generation").items()},
            **values,
        )


def known_fields(of: type[Any], body: Mapping[str, Any]) -> dict[str, Any]:
    """What this version knows of plain values; the others come from an earlier or a later one.

    While an app is upgraded both run; after an upgrade that was taken back the older one reads what the newer wrote.
    """
    known = {field.name for field in fields(of)}
    return {name: value for name, value in body.items() if name in known}


def choose_arm(plan: RoutingPlan, key: str) -> Arm:
    """Who answers the caller with this key.

    The same key gives the same arm inside a stage; as the share grows a key changes over once, from the stand-in to the
    subject; when the share falls to 0 all change back at once. Another release meets other callers first.
    """
    whole = plan.share >= 1.0  # the usual case: nothing is to be drawn
    return Arm.SUBJECT if whole or _uniform(plan, "arm", key) < plan.share else Arm.STAND_IN


def should_mirror(plan: RoutingPlan, key: str) -> bool:
    """Whether the subject gets a copy of this request; independent of :func:`choose_arm`."""
    return plan.mirror_share > 0.0 and _uniform(plan, "mirror", key) < plan.mirror_share


def _uniform(plan: RoutingPlan, purpose: str, key: str) -> float:
    """A number in [0, 1) that only purpose, release and key decide."""
    text = f"{purpose}\0{plan.subject_release}\0{key}"
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES).digest()
    return min(int.from_bytes(digest, "big") / _HASH_RANGE, math.nextafter(1.0, 0.0))
