"""How far a simulated run has come, what it could go back to, and what its time went to."""

from __future__ import annotations

from dataclasses import dataclass, field

from failsoft.training.fleet.setting import FleetSetting, Part


@dataclass(frozen=True, kw_only=True)
class _Stretch:
    """Steps done one after another at one pace."""

    begin: int
    end: int
    step_s: float


@dataclass(kw_only=True)
class Course:
    """The steps of a run and the time they took. Steps that are done again count as productive once."""

    setting: FleetSetting
    position: int = 0
    checkpoint: int = 0
    """Position of the newest checkpoint that is whole."""
    snapshot: int = 0
    """Position of the newest snapshot; it stands for as long as all nodes stay."""
    spent_s: dict[Part, float] = field(default_factory=lambda: dict.fromkeys(Part, 0.0))
    _done: list[_Stretch] = field(default_factory=list)

    def train(self, duration_s: float, workers: int) -> None:
        """So much time at work: whole steps, and whatever was begun when it ended, which is in vain."""
        step_s, every = self.setting.step_s(workers), self.setting.checkpoint_steps(workers)
        snapshots = self.setting.snapshot_every_steps
        copied_s = 0.0 if snapshots is None else self.setting.times.snapshot_cost_s / snapshots
        paced_s, cost_s = step_s + copied_s, self.setting.times.checkpoint_cost_s
        cycle_s = every * paced_s + cost_s
        cycles, rest_s = divmod(duration_s, cycle_s)
        begun = min(every, int(rest_s / paced_s))
        steps, begin = int(cycles) * every + begun, self.position
        self.position += steps
        self._done.append(_Stretch(begin=begin, end=self.position, step_s=step_s))
        self._publish(begin, every, cycle_s, duration_s)
        if snapshots is not None and steps >= snapshots:
            self.snapshot = begin + steps // snapshots * snapshots
        useful_s = steps * self.setting.times.step_s
        stall_s = min(duration_s - steps * step_s, steps * copied_s + cycles * cost_s)
        self.spent_s[Part.PRODUCTIVE] += useful_s
        self.spent_s[Part.FEWER] += steps * step_s - useful_s
        self.spent_s[Part.STALL] += stall_s
        self.spent_s[Part.LOST] += duration_s - steps * step_s - stall_s

    def _publish(self, begin: int, every: int, cycle_s: float, duration_s: float) -> None:
        """A checkpoint can be gone back to once it is written, a while after the training has gone on."""
        whole = int((duration_s - self.setting.times.checkpoint_write_s) / cycle_s)
        if whole >= 1:
            self.checkpoint = begin + whole * every

    def save(self) -> None:
        """A last checkpoint before the workers leave."""
        self.checkpoint = self.position

    def go_back(self, *, nodes_stayed: bool) -> int:
        """To the newest state that is left; the steps since then were done in vain.

        Returns:
            Where it goes on.
        """
        outlived = nodes_stayed and self.setting.snapshot_every_steps is not None
        target = max(self.checkpoint, self.snapshot) if outlived else self.checkpoint
        self.snapshot = target
        while self._done and self._done[-1].end > target:
            last = self._done.pop()
            kept = max(last.begin, target)
            self._in_vain(last.end - kept, last.step_s)
            if last.begin < kept:
                self._done.append(_Stretch(begin=last.begin, end=kept, step_s=last.step_s))
        self.position = target
        return target

    def _in_vain(self, steps: int, step_s: float) -> None:
        useful_s = steps * self.setting.times.step_s
        self.spent_s[Part.PRODUCTIVE] -= useful_s
        self.spent_s[Part.FEWER] -= steps * step_s - useful_s
        self.spent_s[Part.LOST] += steps * step_s
