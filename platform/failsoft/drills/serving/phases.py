"""What the app is doing when a fault strikes, and how it is brought there."""

from __future__ import annotations

from failsoft.drills.fault import DrillFault, Phase
from failsoft.drills.serving.session import Session
from failsoft.drills.serving.traffic import Traffic
from failsoft.errors import FailsoftError, ServingError
from failsoft.remote import GatewayClient

_F = DrillFault
_MORE = frozenset({_F.KILL_REPLICA, _F.KILL_GATEWAY, _F.KILL_CONTROLLER})
"""Of the full matrix: what is struck on the fallback and on the way back, too."""
_ON_TRIAL = frozenset({"shadow", "canary", "ramp_20", "ramp_50"})
_WITHIN_S = 30.0


def phases_of(kind: DrillFault, *, full: bool) -> tuple[Phase, ...]:
    """Where a kind is tried."""
    if full and kind in _MORE:
        return (Phase.LOAD, Phase.ROLLOUT, Phase.FALLBACK)
    return (Phase.LOAD,)


def enter(phase: Phase, session: Session, traffic: Traffic) -> None:
    """Bring the app into a phase; it is whole now.

    Raises:
        ServingError: it does not get there.
    """
    if phase is Phase.LOAD:
        return
    _order(session, degrade=True)
    _await(session, traffic, frozenset({"degraded"}), "is not on the fallback")
    if phase is Phase.ROLLOUT:
        _order(session, degrade=False)
        _await(session, traffic, _ON_TRIAL, "has not begun its way back")


def leave(phase: Phase, session: Session) -> None:
    """Take back what :func:`enter` ordered, so that the model returns."""
    if phase is Phase.FALLBACK:
        _order(session, degrade=False)


def _order(session: Session, *, degrade: bool) -> None:
    if session.parts is None:
        raise ServingError("orders need the app's own token; name the app with --serve")
    host, why = session.parts.host, "drill"
    try:
        with GatewayClient(host.url, token=host.home.operator_token()) as gateway:
            if degrade:
                gateway.degrade(for_s=None, why=why, by="drill")
            else:
                gateway.restore(why=why, by="drill")
    except FailsoftError as error:
        raise ServingError(f"the order to {'degrade' if degrade else 'restore'} was refused: {error}") from error


def _await(session: Session, traffic: Traffic, stages: frozenset[str], otherwise: str) -> None:
    if not session.until(lambda: bool({one.stage for one in traffic.now()[-8:]} & stages), _WITHIN_S):
        raise ServingError(f"the app {otherwise} {_WITHIN_S:g} s after the order")
