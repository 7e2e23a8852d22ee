"""One trial: faults struck and mended at their moments under steady requests, then the wait for all to be whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from failsoft.drills.fault import Phase, PlannedFault
from failsoft.drills.serving.answers import Answer
from failsoft.drills.serving.course import DOWN_AT_MOST_S, Blow, Course, Wave
from failsoft.drills.serving.grip import Grip, hold_s
from failsoft.drills.serving.hands import Hand, LostHead
from failsoft.drills.serving.hosting import LINGER_S
from failsoft.drills.serving.phases import enter, leave
from failsoft.drills.serving.session import Session
from failsoft.drills.serving.traffic import Traffic
from failsoft.errors import FailsoftError, ServingError

SPREAD_S = 2.0
"""``at`` of a fault, from 0.0 to 1.0, is a moment of so many seconds."""
_LOOK_S = 0.05
_STARTS = 3.0
"""Where nothing of the app was left callers may be without an answer for as long as so many of its starts took, beside
the time in which what was left must have ended."""
_REPLACED_WITHIN_S = 10.0
"""An old replica may end after its successor answers."""


@dataclass(kw_only=True)
class _Doing:
    """One fault under way."""

    fault: PlannedFault
    hand: Hand
    words: str = ""
    struck_s: float | None = None
    mended_s: float | None = None
    failed: str = ""
    """Why it could not be done, or not be undone."""


@dataclass(kw_only=True)
class Trial:
    """Carries the faults out.

    Args:
        session: the app; whole when the trial begins.
        faults: what is planned.
        folder: for files of the trial.
    """

    session: Session
    faults: Sequence[PlannedFault]
    folder: Path
    failures: list[str] = field(default_factory=list)
    """What could not be done, or undone, in words."""

    def run(self) -> Course | None:
        """What happened; None where the app was not whole before the first fault.

        Raises:
            ConfigError: a fault has an argument that nobody knows.
            ServingError: the app could not be brought into the phase.
        """
        session, asking = self.session, self.session.asking
        if asking is None:
            raise ServingError("the app was not started yet")
        grip = Grip(asking=asking, folder=self.folder, clock=session.clock, parts=session.parts)
        doing = [_Doing(fault=fault, hand=grip.hand(fault)) for fault in self.faults]
        with Traffic(asking, session.clock) as traffic:
            since_s = session.clock.monotonic_s()
            if not session.until(lambda: session.whole(traffic, since_s), session.target.settle_within_s):
                return None
            enter(self._phase, session, traffic)
            began_s = session.clock.monotonic_s()
            self._carry_out(doing, began_s)
            self._leave()
            mended_s = session.clock.monotonic_s()
            whole = session.until(lambda: session.whole(traffic, mended_s), session.target.settle_within_s)
            whole_s = session.clock.monotonic_s() if whole else None
            left = self._left() if whole else ()
        answers = [one for one in traffic.now() if one.sent_s >= began_s or one.done_s >= began_s]
        return self._course(doing, answers, began_s, whole_s, left)

    def _carry_out(self, doing: list[_Doing], began_s: float) -> None:
        """Each at its moment; a fault that can't be done does not keep the others from being undone."""
        try:
            while any(one.mended_s is None for one in doing):
                self._turn(doing, began_s)
        finally:  # told to end meanwhile: a file of somebody's own must not stay as the drill has made it
            for one in doing:
                if one.struck_s is not None and one.mended_s is None and not isinstance(one.hand, LostHead):
                    self._mend(one)

    def _turn(self, doing: list[_Doing], began_s: float) -> None:
        now_s = self.session.clock.monotonic_s()
        for one in doing:
            if one.struck_s is None and now_s >= began_s + one.fault.at * SPREAD_S:
                self._strike(one)
            elif one.struck_s is not None and one.mended_s is None and now_s >= one.struck_s + hold_s(one.fault):
                self._mend(one)
        if self.session.parts is not None:
            self.session.parts.host.family.look()
        self.session.clock.sleep_s(_LOOK_S)

    def _strike(self, one: _Doing) -> None:
        one.struck_s = self.session.clock.monotonic_s()
        try:
            one.words = one.hand.strike()
        except (FailsoftError, OSError) as error:
            one.failed = f"{one.fault.kind} could not be done: {error}"
            one.mended_s = one.struck_s
            self.failures.append(one.failed)

    def _mend(self, one: _Doing) -> None:
        try:
            one.hand.mend()
        except (FailsoftError, OSError) as error:
            self.failures.append(f"after {one.fault.kind}: {error}")
        one.mended_s = self.session.clock.monotonic_s()

    def _leave(self) -> None:
        try:
            leave(self._phase, self.session)
        except FailsoftError as error:
            self.failures.append(str(error))

    def _left(self) -> tuple[str, ...]:
        self.session.until(lambda: not self.session.too_many(), _REPLACED_WITHIN_S)
        return self.session.too_many()

    @property
    def _phase(self) -> Phase:
        """The rarest of those that were asked for; faults that are drawn together may each name another one."""
        return max((fault.phase for fault in self.faults), key=list(Phase).index)

    def _course(
        self, doing: list[_Doing], answers: list[Answer], began_s: float, whole_s: float | None, left: tuple[str, ...]
    ) -> Course:
        asking = self.session.asking
        expected = None if asking is None else asking.expected
        waves = [one.hand.wave() for one in doing]
        for one in doing:
            left += one.hand.left if isinstance(one.hand, LostHead) else ()
        return Course(
            answers=answers,
            blows=[_blow(one) for one in doing],
            began_s=began_s,
            whole_s=whole_s,
            rate_hz=self.session.target.rate_hz,
            wave=sum(waves, Wave()),
            left=left,
            knows_right=expected is not None and expected.knows > 0,
            down_at_most_s=max(DOWN_AT_MOST_S, LINGER_S + _STARTS * self.session.start_s),
        )


def _blow(one: _Doing) -> Blow:
    struck_s = one.struck_s or 0.0
    return Blow(
        kind=one.fault.kind,
        struck_s=struck_s,
        mended_s=struck_s if one.mended_s is None else one.mended_s,
        words=one.failed or one.words,
        reached=False if one.failed else one.hand.reached(),
    )
