"""What is promised of an app under each fault: the oracle's table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from failsoft.drills.fault import DrillFault

_F = DrillFault


class Excuse(StrEnum):
    """Which requests had nobody who could have answered them."""

    NONE = "none"
    """None: somebody was there all the time."""
    UNDER_WAY = "under way"
    """Those that the struck process held, or was sent before anybody could know: out at that moment."""
    WHILE_DOWN = "while down"
    """All between the blow and the return: no process of the app was left."""
    TURNED_AWAY = "turned away"
    """Those that were refused at once and in words (429, 503), for more came than fits."""


@dataclass(frozen=True, kw_only=True)
class Promise:
    """Of one kind of fault."""

    excuse: Excuse
    hold_s: float
    """The fault stays for so long before its cause is taken away."""
    mend: str
    """What to do where the promise was not kept."""
    bad_within_s: float = 5.0
    """Bad answers may come for so long after the blow; none after that."""
    notice_s: float = 0.5
    """Of ``UNDER_WAY``: so long after the blow a request may still be sent to what is dead."""


_FALLBACK = (
    "let something else answer while the model can't: failsoft.serving.build_app(AppSpec(predictor=..., rungs=...)), "
    "see docs/own_model.py"
)
_MORE_GATEWAYS = "run two replicas or more of what takes the requests (num_replicas=2), so that the other goes on"
_CONTROLLERS = (
    "requests must not pass through a controller; keep the route's state in the replicas, and see ray#62728 for what "
    "Serve tells them when its controller returns"
)
_NETS = (
    "judge each answer before it leaves (confidence, entropy, range), and take the model out when too many fail: "
    "failsoft.serving.Classification or Regression in AppSpec(quality=...)"
)
_INPUT = "refuse what can't be parsed with 4xx before any model sees it, and clean text (failsoft.serving.Texts)"

PROMISES: Mapping[DrillFault, Promise] = {
    _F.KILL_REPLICA: Promise(excuse=Excuse.NONE, hold_s=1.0, mend=_FALLBACK),
    _F.KILL_GATEWAY: Promise(excuse=Excuse.UNDER_WAY, hold_s=2.0, mend=_MORE_GATEWAYS),
    _F.KILL_CONTROLLER: Promise(excuse=Excuse.NONE, hold_s=5.0, mend=_CONTROLLERS),
    _F.KILL_HEAD: Promise(
        excuse=Excuse.WHILE_DOWN,
        hold_s=1.0,
        mend="have the start command run again by systemd or KubeRay (docs/deploy.md), and two heads behind a balancer "
        "where an outage of this length is too long",
    ),
    _F.SIGTERM: Promise(excuse=Excuse.NONE, hold_s=1.0, mend=_FALLBACK),
    _F.DRAIN: Promise(
        excuse=Excuse.NONE,
        hold_s=3.0,
        mend="let replicas finish what they hold: graceful_shutdown_timeout_s above the slowest answer",
    ),
    _F.CLOCK_JUMP: Promise(excuse=Excuse.NONE, hold_s=3.0, mend="measure times with time.monotonic, never time.time"),
    _F.PARTITION: Promise(excuse=Excuse.NONE, hold_s=4.0, mend=_CONTROLLERS),
    _F.SLOW_MODEL: Promise(
        excuse=Excuse.NONE,
        hold_s=5.0,
        mend=f"give the model's call a deadline that its callers can live with; {_FALLBACK}",
    ),
    _F.GARBAGE_MODEL: Promise(excuse=Excuse.NONE, hold_s=6.0, mend=_NETS),
    _F.HALF_ALIVE_REPLICA: Promise(
        excuse=Excuse.NONE,
        hold_s=6.0,
        mend=f"a process that hangs answers no health check: lower health_check_timeout_s (5 s suits); {_FALLBACK}",
    ),
    _F.OVERLOAD: Promise(
        excuse=Excuse.TURNED_AWAY,
        hold_s=3.0,
        mend="bound the queues (max_ongoing_requests, max_queued_requests) and refuse the rest in words, so that "
        "nobody waits for nothing",
    ),
    _F.MALFORMED_WAVE: Promise(excuse=Excuse.NONE, hold_s=3.0, mend=_INPUT),
    _F.CORRUPT_BUNDLE: Promise(
        excuse=Excuse.NONE,
        hold_s=8.0,
        mend=f"verify a model's files by digest before they are loaded (failsoft.serving.publish_own); {_FALLBACK}",
    ),
}
"""One for each fault of the serving side."""

KINDS: tuple[DrillFault, ...] = (
    _F.MALFORMED_WAVE,
    _F.OVERLOAD,
    _F.CLOCK_JUMP,
    _F.PARTITION,
    _F.KILL_CONTROLLER,
    _F.KILL_GATEWAY,
    _F.GARBAGE_MODEL,
    _F.KILL_REPLICA,
    _F.SLOW_MODEL,
    _F.HALF_ALIVE_REPLICA,
    _F.SIGTERM,
    _F.DRAIN,
    _F.CORRUPT_BUNDLE,
    _F.KILL_HEAD,
)
"""In the order in which they are tried: what leaves the app as it was comes first, what takes all of it down last."""

SHORT_KINDS: tuple[DrillFault, ...] = (
    _F.MALFORMED_WAVE,
    _F.GARBAGE_MODEL,
    _F.KILL_GATEWAY,
    _F.KILL_REPLICA,
    _F.OVERLOAD,
    _F.PARTITION,
    _F.KILL_CONTROLLER,
    _F.CLOCK_JUMP,
    _F.KILL_HEAD,
)
"""Of the default profile: one of each family; what a slow machine has no time for stands last, with the head."""
