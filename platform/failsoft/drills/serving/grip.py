"""Which hand carries out which fault. The table that the suite's users read stands in :mod:`promises`."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from failsoft.drills.fault import DrillFault, PlannedFault
from failsoft.drills.serving.crowd_hand import CrowdHand
from failsoft.drills.serving.hands import BrokenWeights, FlippedByte, Hand, LostHead, Replaced, Signal, SignHand
from failsoft.drills.serving.malformed import malformed_bodies
from failsoft.drills.serving.parts import CONTROLLERS, Parts
from failsoft.drills.serving.promises import PROMISES
from failsoft.drills.serving.signs import Sign, Told
from failsoft.drills.serving.traffic import Asking
from failsoft.errors import ConfigError, ServingError
from failsoft.health.clock import Clock

_F = DrillFault
_KILL, _TERM, _STOP, _GO_ON = signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, signal.SIGCONT
ARGUMENTS = frozenset({"seconds", "role", "amount", "clients"})
"""``seconds``: how long it stays; ``amount``: seconds of slowness, or of the clock's jump; ``clients``: of overload;
``role``: whom it strikes, model or gateway, and of kill-controller serve or plan."""
ROLES = ("model", "gateway")
OUTSIDE = frozenset({_F.OVERLOAD, _F.MALFORMED_WAVE})
"""What can be done to an app of which only the address is known."""
_CLIENTS, _MALFORMED_CLIENTS = 64.0, 4.0
_JUMP_S = 3600.0
_PAUSE_S = 0.1


@dataclass(frozen=True, kw_only=True)
class Grip:
    """What hands are made from."""

    asking: Asking
    folder: Path
    """Of the trial."""
    clock: Clock
    parts: Parts | None
    """None: only the app's address is known."""

    def hand(self, fault: PlannedFault) -> Hand:
        """The hand for one fault.

        Raises:
            ConfigError: it has an argument that nobody knows.
            ServingError: only the address is known, and that is not enough.
        """
        unknown = set(fault.arguments) - ARGUMENTS
        if unknown:
            raise ConfigError(f"fault {fault.kind} has no argument {min(unknown)}; use {', '.join(sorted(ARGUMENTS))}")
        if fault.kind in OUTSIDE:
            return self._crowd(fault)
        if self.parts is None:
            raise ServingError(f"{fault.kind} needs the app's processes; name the app with --serve, not its address")
        return _MAKERS[fault.kind](fault, self.parts, self)

    def _crowd(self, fault: PlannedFault) -> Hand:
        overload = fault.kind is _F.OVERLOAD
        chance = random.Random(fault.seed)
        asked: dict[str, Any] = {
            "url": self.asking.url,
            "method": self.asking.target.method,
            "headers": dict(self.asking.target.headers),
            "clients": int(fault.number("clients", _CLIENTS if overload else _MALFORMED_CLIENTS)),
            "seconds": hold_s(fault),
            "pause_s": 0.0 if overload else _PAUSE_S,
            "patience_s": self.asking.target.patience_s,
            "may_refuse": overload,
        }
        bodies = self.asking.bodies() if overload else malformed_bodies(self.asking.payloads, chance)
        return CrowdHand(asked, bodies, folder=self.folder, role="good requests" if overload else "malformed requests")


def hold_s(fault: PlannedFault) -> float:
    """How long its cause stays."""
    return fault.number("seconds", PROMISES[fault.kind].hold_s)


def _role(fault: PlannedFault, parts: Parts, otherwise: str) -> tuple[str, Callable[[], Any]]:
    role = str(fault.arguments.get("role", otherwise))
    if role not in ROLES:
        raise ConfigError(f"fault {fault.kind}: role is {role!r}; use {' or '.join(ROLES)}")
    if role == "gateway":
        return role, lambda: one_of(parts.replicas((parts.ingress(),)), fault)
    return role, lambda: parts.replicas(parts.model_names())


def one_of(found: list[Any], fault: PlannedFault) -> list[Any]:
    """One of several replicas, drawn by the fault's seed."""
    return [random.Random(fault.seed).choice(found)] if found else []


def _signal(
    what: signal.Signals, otherwise: str, then: signal.Signals | None = None
) -> Callable[[PlannedFault, Parts, Grip], Hand]:
    def make(fault: PlannedFault, parts: Parts, _grip: Grip) -> Hand:
        role, find = _role(fault, parts, otherwise)
        return Signal(find, what, role=role, then=then)

    return make


def _told(sign: Sign, default: Callable[[Grip], float]) -> Callable[[PlannedFault, Parts, Grip], SignHand]:
    def make(fault: PlannedFault, parts: Parts, grip: Grip) -> SignHand:
        whom = () if sign is Sign.CLOCK else parts.model_names()
        return SignHand(parts.host.signs, sign, Told(amount=fault.number("amount", default(grip)), deployments=whom))

    return make


_spoil = _told(Sign.GARBAGE, lambda _grip: 0.0)


def _garbage(fault: PlannedFault, parts: Parts, grip: Grip) -> Hand:
    sign = _spoil(fault, parts, grip)
    return BrokenWeights(parts, sign, grip.clock) if parts.ours else sign


def _corrupt(fault: PlannedFault, parts: Parts, _grip: Grip) -> Hand:
    kill = Signal(lambda: parts.replicas(parts.model_names()), _KILL, role="model")
    return FlippedByte(parts.model_files, kill, random.Random(fault.seed))


def _controllers(fault: PlannedFault, parts: Parts, _grip: Grip) -> Hand:
    role = str(fault.arguments.get("role", ""))
    if role and role not in CONTROLLERS:
        raise ConfigError(f"fault {fault.kind}: role is {role!r}; use {' or '.join(CONTROLLERS)}, or none for both")
    return Signal(lambda: parts.controllers(*filter(None, [role])), _KILL, role=f"{role} controller".strip())


_MAKERS: Mapping[DrillFault, Callable[[PlannedFault, Parts, Grip], Hand]] = {
    _F.KILL_REPLICA: _signal(_KILL, "model"),
    _F.KILL_GATEWAY: _signal(_KILL, "gateway"),
    _F.SIGTERM: _signal(_TERM, "model"),
    _F.HALF_ALIVE_REPLICA: _signal(_STOP, "model", _GO_ON),
    _F.KILL_CONTROLLER: _controllers,
    _F.PARTITION: lambda _fault, parts, _grip: Signal(
        parts.far_side, _STOP, role="controllers and Ray's store", then=_GO_ON
    ),
    _F.KILL_HEAD: lambda _fault, parts, _grip: LostHead(parts),
    _F.DRAIN: lambda _fault, parts, _grip: Replaced(parts),
    _F.CLOCK_JUMP: _told(Sign.CLOCK, lambda _grip: _JUMP_S),
    _F.SLOW_MODEL: _told(Sign.SLOW, lambda grip: 2.0 * grip.asking.target.patience_s),
    _F.GARBAGE_MODEL: _garbage,
    _F.CORRUPT_BUNDLE: _corrupt,
}
