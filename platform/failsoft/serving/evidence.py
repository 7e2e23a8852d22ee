"""What is known about the subject and its stand-in under the current stage, gathered from the gateways' reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from failsoft.errors import ConfigError
from failsoft.health.window import Outcome
from failsoft.serving.plan import Arm


@dataclass(frozen=True, kw_only=True)
class OutcomeBatch:
    """How a gateway's calls of one arm ended between two reports. Counts suffice: order inside a batch is unknown."""

    gateway: str
    sequence: int
    """Grows with every batch of a gateway. A batch may arrive twice; it counts once."""
    epoch: int
    """The plan under which the calls were made."""
    arm: Arm
    mirrored: bool
    outcomes: Mapping[Outcome, int]
    latency_ms: float = 0.0
    """Sum over all calls."""
    agree: int = 0
    """Mirrored answers with the live answer's intent …"""
    compared: int = 0
    """… of so many compared."""

    def __post_init__(self) -> None:
        """Refuse counts below zero, which would cancel evidence."""
        if any(count < 0 for count in self.outcomes.values()) or not 0 <= self.agree <= self.compared:
            raise ConfigError(f"batch {self.sequence} of {self.gateway} has impossible counts: {self.as_json()}")

    def as_json(self) -> dict[str, Any]:
        """Plain values, as the controller's ``report`` takes them."""
        return {
            "gateway": self.gateway,
            "sequence": self.sequence,
            "epoch": self.epoch,
            "arm": str(self.arm),
            "mirrored": self.mirrored,
            "outcomes": {str(outcome): count for outcome, count in self.outcomes.items()},
            "latency_ms": self.latency_ms,
            "agree": self.agree,
            "compared": self.compared,
        }

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> OutcomeBatch:
        """Read what :meth:`as_json` gave.

        Raises:
            ConfigError: fields are missing, unknown or impossible.
        """
        try:
            fields = dict(body)
            outcomes = {Outcome(name): int(count) for name, count in fields.pop("outcomes").items()}
            return cls(arm=Arm(fields.pop("arm")), outcomes=outcomes, **fields)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ConfigError(f"not an outcome batch: {error.__class__.__name__}: {error}") from error


def interleaved(outcomes: Mapping[Outcome, int]) -> Iterator[Outcome]:
    """The counted outcomes in an order that spreads each kind evenly.

    A batch may be larger than a monitor's window; all bad ones last would make a healthy batch look ill.
    """
    total = sum(outcomes.values())
    due = [
        ((index + 0.5) * total / count, str(outcome), outcome)
        for outcome, count in outcomes.items()
        for index in range(count)
    ]
    yield from (outcome for _, _, outcome in sorted(due))
