"""Anybody's Serve app under drill, as the engine of the suite asks for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from failsoft.drills.fault import DrillFault, Phase, PlannedFault, Side
from failsoft.drills.outcome import Outcome
from failsoft.drills.serving.course import Course
from failsoft.drills.serving.grip import OUTSIDE
from failsoft.drills.serving.judging import Verdict, judged
from failsoft.drills.serving.phases import phases_of
from failsoft.drills.serving.promises import KINDS, PROMISES, SHORT_KINDS
from failsoft.drills.serving.seconds import by_second, in_words, to_text
from failsoft.drills.serving.session import Session
from failsoft.drills.serving.target import ServeTarget
from failsoft.drills.serving.trial import Trial
from failsoft.drills.subject import Reference
from failsoft.errors import ServingError
from failsoft.health.clock import Clock
from failsoft.health.ledger import read_ledger

_MOST_WORDS = 8
_BUSY = "the app was not whole before the fault, or the machine was too busy to tell: try it again, alone"


class ServeSubject:
    """A Serve app. One start serves many trials; one that leaves the app in pieces is followed by a fresh start.

    Args:
        target: which app, and how it is asked.
        clock: waits and times.
        full: all faults in all phases, instead of one of each family.
        kinds: these faults only; None: those of the profile.
    """

    side = Side.SERVING

    def __init__(
        self, target: ServeTarget, clock: Clock, *, full: bool = False, kinds: Sequence[DrillFault] | None = None
    ) -> None:
        self._target, self._clock, self._full = target, clock, full
        profile = KINDS if full else SHORT_KINDS
        self._kinds = tuple(kind for kind in KINDS if kind in kinds) if kinds else profile
        self._session: Session | None = None
        self._folder: Path | None = None
        self._starts = 0
        self.left: tuple[str, ...] = ()
        """Processes and ports that did not end with the app, over all its starts."""

    @property
    def name(self) -> str:
        """The import path, or the address."""
        return self._target.name

    @property
    def kinds(self) -> tuple[DrillFault, ...]:
        """What can be done to it, the most harmless first, the loss of the head last."""
        return self._kinds

    def phases(self, kind: DrillFault) -> tuple[Phase, ...]:
        """Under load; of the full matrix some on the fallback and on the way back, too."""
        return phases_of(kind, full=self._full)

    def able(self, kind: DrillFault, phase: Phase) -> str | None:
        """Why not here, if so."""
        if kind not in OUTSIDE and self._target.app is None:
            return "only its address is known; name the app itself with --serve module:app"
        if kind not in OUTSIDE and not Path("/proc/self/stat").exists():
            return "processes are found in /proc, which this system has not"
        if phase is not Phase.LOAD and not (self._session and self._session.ours):
            return "the app has no fallback that an operator could order, and no way back"
        parts = self._session.parts if self._session else None
        if kind is DrillFault.CORRUPT_BUNDLE and parts is not None and not parts.model_files():
            return "no file is known that the model is loaded from; name one with --bundle FILE"
        return None

    def reference(self, folder: Path) -> Reference:
        """Start it and ask it for some seconds."""
        began_s, self._folder = self._clock.monotonic_s(), folder
        try:
            session = self._started()
        except ServingError as error:
            took_s = self._clock.monotonic_s() - began_s
            mend = f"start it by hand first: serve run {self._target.app}" if self._target.app else "look at its log"
            return Reference(good=False, why=str(error), seconds=took_s, mend=mend)
        took_s, asking = self._clock.monotonic_s() - began_s, session.asking
        known = asking.expected.knows if asking and asking.expected else 0
        of = len(asking.payloads) if asking else 0
        who = "one of failsoft's apps" if session.ours else "an app without failsoft's nets"
        why = f"{who}, steady at {self._target.rate_hz:g} requests/s; the right answer is known for {known} of {of}"
        return Reference(good=True, why=why, seconds=took_s)

    def trial(self, faults: Sequence[PlannedFault], folder: Path) -> Outcome:
        """All of them under steady requests; what the oracle says of it."""
        began_s, planned = self._clock.monotonic_s(), tuple(faults)
        session = self._whole_session()
        ledger = _ledger_lines(session)
        trial = Trial(session=session, faults=planned, folder=folder)
        try:
            course = trial.run()
        except ServingError as error:
            course, trial.failures = None, [*trial.failures, str(error)]
        took_s = self._clock.monotonic_s() - began_s
        if course is None or course.whole_s is None:
            self._end()
        if course is None:
            why = "; ".join(trial.failures) or "the app was not whole before the fault"
            return Outcome(faults=planned, survived=None, seconds=took_s, why=why, mend=_BUSY)
        verdict = judged(course, session.target.model_sources)
        seconds = by_second(course, session.target.model_sources)
        (folder / "seconds.json").write_text(to_text(course, seconds), "utf-8")
        seen = (*trial.failures, *what_was_seen(course, ledger()), in_words(seconds))
        return outcome_of(planned, verdict, course, took_s, seen)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be said of the whole drill, after its end."""
        if self._target.app is None:
            return ("only from outside: of this app nothing but its address is known",)
        ended = f"left behind when it was stopped: {', '.join(self.left)}" if self.left else "nothing was left behind"
        return (f"{ended} by {self._target.app} over {self._starts} starts",)

    def close(self) -> None:
        """End the app as its user would; what does not end by itself is ended, and named in :attr:`left`."""
        self._end()

    def _whole_session(self) -> Session:
        return self._session or self._started()

    def _started(self) -> Session:
        if self._folder is None:
            raise ServingError("the reference was not asked for yet")
        session = Session(self._target, self._clock)
        self._starts += 1
        try:
            session.start(self._folder)
        except BaseException:  # half an app must not stay; re-raised
            self.left += session.close()
            raise
        self._session = session
        return session

    def _end(self) -> None:
        if self._session is not None:
            self.left += self._session.close()
            self._session = None


def outcome_of(
    faults: tuple[PlannedFault, ...], verdict: Verdict, course: Course, seconds: float, seen: Sequence[str]
) -> Outcome:
    """The oracle's word in the suite's form."""
    mends = dict.fromkeys(PROMISES[fault.kind].mend for fault in faults)
    mend = "" if verdict.survived else _BUSY if verdict.survived is None else "; ".join(mends)
    return Outcome(
        faults=faults,
        survived=verdict.survived,
        seconds=seconds,
        why=verdict.why,
        lost=verdict.lost,
        left=len(course.left),
        seen=tuple(seen),
        mend=mend,
    )


def what_was_seen(course: Course, ledger: Sequence[str]) -> tuple[str, ...]:
    """What was done, what callers read, and what the ledger says, the first of each kind."""
    done = [blow.words for blow in course.blows]
    statuses = Counter(f"{one.status or 'no answer'} {one.reason}".strip() for one in course.answers if one.lost)
    reasons = Counter(one.reason for one in course.answers if not one.lost and one.reason)
    callers = [f"{count} × {words}" for words, count in (*statuses.most_common(3), *reasons.most_common(3))]
    return (*done, *callers, *ledger, *course.wave.words[:1])


def _ledger_lines(session: Session) -> Callable[[], list[str]]:
    """Of what the app's ledger has got since now, the first line of each kind; empty for apps without one."""
    path = session.parts.host.home.ledger if session.parts is not None else None
    before = 0 if path is None else len(read_ledger(path).events)

    def since() -> list[str]:
        events = [] if path is None else read_ledger(path).events[before:]
        first: dict[str, str] = {}
        for event in events:
            first.setdefault(event.kind, f"ledger: {event.kind} of {event.subject}: {event.why}"[:240])
        return list(first.values())[:_MOST_WORDS]

    return since
