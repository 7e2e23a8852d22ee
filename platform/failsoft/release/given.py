"""What a release is judged with, beside its own files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date

from failsoft.artifacts.bundle import Bundle
from failsoft.release.candidate import Clean
from failsoft.release.policy import GatePolicy
from failsoft.release.replica import Probe
from failsoft.release.waivers import Waiver

Watch = Callable[[str], object]
"""Told what is being measured, for a progress display."""


def as_given(text: str) -> str:
    """No sanitiser: the text as it is."""
    return text


@dataclass(frozen=True, kw_only=True)
class Given:
    """References, texts, limits."""

    traffic: Sequence[str] | None = None
    """Recent texts of callers; without them coverage rests on the release's own validation texts."""
    previous: Bundle | None = None
    """The release that is served now: a second reference."""
    alone: str = "there is none, or none was named"
    """Why there is no previous one, for the report."""
    clean: Clean = as_given
    """The sanitiser that serving puts before the model."""
    previous_clean: Clean = as_given
    """The one that it puts before the served release."""
    whole: Bundle | None = None
    """The release that has the whole weights of a narrow one."""
    probe: Probe | None = None
    """Starts a replica; None: what only a replica can tell is not judged, as in a process that can't start others."""
    policy: GatePolicy = field(default_factory=GatePolicy)
    waivers: tuple[Waiver, ...] = ()
    today: date = date.min
    """For waivers that end; UTC."""
