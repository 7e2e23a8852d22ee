"""Bad samples by their kinds; free of torch, so that lists of them are shown at once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class BadKind(StrEnum):
    """Why a sample is not trained on."""

    RAISED = "raised"
    """The dataset raised an error."""
    MALFORMED = "malformed"
    """The user's check, or its form, which is unlike that of its batch."""
    TOO_LONG = "too long"
    NOT_FINITE = "not finite"
    CHECKSUM = "checksum"
    """Its bytes are not those that the manifest promises."""
    WORKER_DIED = "worker died"
    """The worker that loaded it died, or hung, twice."""
    OUT_OF_REACH = "out of reach"
    """No tier had it: its source is down or in quarantine. Nothing is said against the sample."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BadSample:
    """A sample that was left out. Holds text and numbers only, so that it always survives the way between processes."""

    index: int
    source: str
    """Shard or file; empty where the dataset does not know."""
    kind: BadKind
    why: str
