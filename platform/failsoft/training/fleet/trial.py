"""One run of a fleet, event by event, led by failsoft's own supervisor.

What is simulated are machines, faults and time. What decides is the code that a real run uses: the supervisor's loop
with its back-off and budgets, Daly's interval, the count of workers that fit, the record of preflights, and when to
grow. A node fails with the time that it is used; an idle spare does not.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from failsoft.errors import NoProgressError, PreemptedError
from failsoft.health.clock import ManualClock
from failsoft.training.fleet.course import Course
from failsoft.training.fleet.faults import Fault
from failsoft.training.fleet.machines import Machines
from failsoft.training.fleet.setting import FleetSetting, Part
from failsoft.training.survival.growth import Growth
from failsoft.training.survival.supervise import Attempt, Failure, supervise

_DAY_S = 86_400.0


@dataclass(frozen=True, kw_only=True)
class Ran:
    """How one run went."""

    wall_s: float
    spent_s: dict[Part, float]
    faults: dict[Fault, int]
    attempts: int
    by_hand: int
    """Times that the supervisor gave up and people had to come."""
    grown: int
    """Planned resizes."""

    @property
    def ettr(self) -> float:
        """Effective training time ratio: the time that the steps which stand take on all nodes, over the wall time."""
        return self.spent_s[Part.PRODUCTIVE] / self.wall_s


@dataclass(frozen=True, kw_only=True)
class _Groups:
    """How the groups of workers of one attempt ended."""

    begun: int
    """Where the last one began."""
    faults: tuple[Fault, ...] = ()
    failures: tuple[Failure, ...] = ()
    """Errors of code, each another one, as published software bugs were: one that comes back stops a real run."""
    planned: bool = False
    room_lost: bool = False


@dataclass(kw_only=True)
class FleetTrial:
    """One run, to be simulated once.

    Args:
        setting: the fleet and the run's policies.
        seed: of faults, repairs and back-off, each with a stream of its own, so that two settings with the same seed
            meet the same faults after the same use of their nodes.
    """

    setting: FleetSetting
    seed: int
    faults: dict[Fault, int] = field(default_factory=lambda: dict.fromkeys(Fault, 0))
    attempts: int = 0
    by_hand: int = 0
    grown: int = 0

    def __post_init__(self) -> None:
        """Nothing has happened yet."""
        self.clock = ManualClock()
        self.course = Course(setting=self.setting)
        self.machines = Machines(setting=self.setting, rng=random.Random(f"machines {self.seed}"))
        self._growth = Growth(self.setting.resize, self.setting.workers.most)
        self._chance = random.Random(f"faults {self.seed}")
        self._back_off = random.Random(f"back-off {self.seed}")
        self._until_fault = self._chance.expovariate(1.0)
        self._moves = 0
        self._end_s = self.setting.days * _DAY_S

    def run(self) -> Ran:
        """To the end of its days."""
        while not self._over():
            try:
                supervise(
                    self._attempt,
                    policy=self.setting.restart,
                    clock=self._waiting(),
                    rng=self._back_off,
                    told=self._over,
                )
            except NoProgressError:
                self.by_hand += 1
                self._spend(Part.BY_HAND, self.setting.times.by_hand_s)
                self.machines.found_by_hand(self.clock.monotonic_s())
            except PreemptedError:  # the end of its days
                break
        wall_s = self.clock.monotonic_s()
        return Ran(
            wall_s=wall_s,
            spent_s=dict(self.course.spent_s),
            faults=dict(self.faults),
            attempts=self.attempts,
            by_hand=self.by_hand,
            grown=self.grown,
        )

    def _over(self) -> bool:
        return self.clock.monotonic_s() >= self._end_s

    def _waiting(self) -> _Waits:
        return _Waits(self)

    def _spend(self, part: Part, duration_s: float) -> None:
        self.course.spent_s[part] += duration_s
        self.clock.advance(duration_s)

    def _attempt(self, number: int) -> Attempt:
        self.attempts += 1
        began, moves = self.course.checkpoint, self._moves
        if self.setting.preflight_finds is not None:
            self._spend(Part.PREFLIGHT, self.setting.times.preflight_s)
            self.machines.look(self.clock.monotonic_s())
        workers = self._muster()
        if workers is None:
            return self._ended(number, began, _Groups(begun=self.course.checkpoint))
        self._growth.began(workers, self.clock.monotonic_s())
        return self._ended(number, began, self._groups(workers, moves))

    def _groups(self, workers: int, moves: int) -> _Groups:
        """Groups of workers, one after the other, for as long as Ray restarts them by itself."""
        faults: list[Fault] = []
        failures: list[Failure] = []
        while True:
            begun = self.course.go_back(nodes_stayed=moves == self.machines.moves)
            moves = self._moves = self.machines.moves
            struck = self._group(workers)
            ended = struck is None or struck is Fault.PLANNED
            room_lost = struck is Fault.LOST and self.machines.room(self.clock.monotonic_s()) < workers
            if struck is not None and not ended:
                faults.append(struck)
            if struck is Fault.PROCESS:
                error = f"an error of code, the {self.faults[struck]}. of this run"
                failures.append(Failure(error=error, position=self.course.position))
            if ended or room_lost or len(faults) > self.setting.immediate_retries or self._over():
                return _Groups(
                    begun=begun,
                    faults=tuple(faults),
                    failures=tuple(failures),
                    planned=struck is Fault.PLANNED,
                    room_lost=room_lost,
                )

    def _ended(self, number: int, began: int, groups: _Groups) -> Attempt:
        """As the supervisor of a real run gathers it from checkpoints and ledger."""
        return Attempt(
            number=number,
            finished=False,
            began=began,
            reached=max(self.course.checkpoint, groups.begun),
            error=", ".join(groups.faults),
            failures=groups.failures,
            preempted=groups.planned or not groups.faults,
            resized=not groups.planned and not groups.faults and not self._over(),
            room_lost=groups.room_lost,
            told_to_leave=self._over(),
        )

    def _muster(self) -> int | None:
        """As many as fit; waits for mended nodes where they are too few. None: the days are over."""
        while not self._over():
            now_s = self.clock.monotonic_s()
            chosen = self.setting.workers.choose(self.machines.room(now_s))
            if chosen is not None:
                if chosen < self.setting.workers.most:
                    self._spend(Part.WAIT, self.setting.resize.settle_s)
                return chosen
            back_s = self.machines.next_back_s
            until_s = self._end_s if back_s is None else min(back_s, self._end_s)
            self._spend(Part.WAIT, max(until_s - now_s, self.setting.resize.look_s))
        return None

    def _group(self, workers: int) -> Fault | None:
        """One group of workers: start and train until something ends it; None: it left to grow, or the days are over.

        An ill node that nobody has found ends it at its first step.
        """
        start_s = self.setting.times.start_s
        struck = self._used(start_s, workers, at_work=False)
        if struck is not None:
            return self._noticed(struck, at_work=False)
        if self.machines.ill:
            self._spend(Part.DETECT, self.setting.times.death_seen_s)
            return Fault.ILL
        grows_s = self._grows_at(workers)
        until_s = self._end_s if grows_s is None else min(grows_s, self._end_s)
        struck = self._used(until_s - self.clock.monotonic_s(), workers, at_work=True)
        if struck is not None:
            return self._noticed(struck, at_work=True)
        self._save()
        self.grown += grows_s is not None and not self._over()
        return None

    def _used(self, duration_s: float, workers: int, *, at_work: bool) -> Fault | None:
        """Use the nodes for so long, or until the next fault."""
        rate = self.setting.faults.total_per_node_s * workers
        until_fault_s = self._until_fault / rate
        used_s = max(0.0, min(duration_s, until_fault_s))
        self._until_fault -= used_s * rate
        if at_work:
            self.course.train(used_s, workers)
            self.clock.advance(used_s)
        else:
            self._spend(Part.START, used_s)
        if until_fault_s > duration_s:
            return None
        self._until_fault = self._chance.expovariate(1.0)
        kinds = self.setting.faults.per_node_s
        (struck,) = self._chance.choices(list(kinds), weights=list(kinds.values()))
        self.faults[struck] += 1
        return struck

    def _noticed(self, struck: Fault, *, at_work: bool) -> Fault:
        """What it does to the machines, and how long it takes until somebody knows."""
        times, now_s = self.setting.times, self.clock.monotonic_s()
        if struck is Fault.ILL:
            self.machines.falls_ill()
        elif struck in (Fault.LOST, Fault.PLANNED):
            self.machines.goes(now_s)
        if struck is Fault.PLANNED:
            self._save()
            return struck
        seen_s = {Fault.HANG: self.setting.hang_seen_s(at_work=at_work), Fault.LOST: times.node_seen_s}
        self._spend(Part.DETECT, seen_s.get(struck, times.death_seen_s))
        return struck

    def _save(self) -> None:
        if self.setting.times.save_s > 0.0:
            self._spend(Part.STALL, self.setting.times.save_s)
            self.course.save()

    def _grows_at(self, workers: int) -> float | None:
        """When the run asks its workers to leave since there is room for more, by failsoft's own judgement."""
        most, look_s = self.setting.workers.most, self.setting.resize.look_s
        at_s, end_s = self.clock.monotonic_s(), self._next_end_s(workers)
        while workers < most and at_s < end_s:
            spare = self.machines.room(at_s) - workers
            back_s = self.machines.next_back_s
            # what does not pay back does not do so before one more is there
            if spare < 1 or not self.setting.resize.worth(workers, min(spare, most - workers)):
                if back_s is None:
                    return None
                at_s = max(at_s + look_s, back_s)
                continue
            target = self._growth.look(spare, at_s)
            if target is not None:
                return at_s
            at_s += look_s
        return None

    def _next_end_s(self, workers: int) -> float:
        """Of what ends the group anyway: nobody looks after that."""
        return min(
            self._end_s, self.clock.monotonic_s() + self._until_fault / (self.setting.faults.total_per_node_s * workers)
        )


class _Waits:
    """The run's clock, for the supervisor: what it sleeps is back-off."""

    def __init__(self, trial: FleetTrial) -> None:
        self._trial = trial

    def monotonic_s(self) -> float:
        """The simulated time."""
        return self._trial.clock.monotonic_s()

    def wall_s(self) -> float:
        """The same, on a calendar."""
        return self._trial.clock.wall_s()

    def sleep_s(self, duration_s: float) -> None:
        """Let it pass."""
        self._trial.course.spent_s[Part.BACKOFF] += duration_s
        self._trial.clock.advance(duration_s)
