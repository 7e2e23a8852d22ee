"""Second act of the demo: traffic, malformed traffic, broken weights, the trip, a relapse, the way back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.status import Status

from failsoft.artifacts.home import Home
from failsoft.demo.picture import Mark
from failsoft.demo.traffic import SteadyTraffic
from failsoft.demo.waves import WAVES
from failsoft.errors import ServingError
from failsoft.health.clock import Clock

HEALTHY_S = 8.0
WAVE_S = 5.0
AFTERWARDS_S = 4.0
_TRIP_WITHIN_S = 20.0
_RETURN_WITHIN_S = 120.0
_LOOK_EVERY_S = 0.1


@dataclass(kw_only=True)
class Script:
    """What was done to the system, and when; times are the client's monotonic ones."""

    marks: list[Mark] = field(default_factory=list)
    broken_at_s: float = 0.0
    mended_at_s: float = 0.0
    returned_at_s: float = 0.0


class ServingAct:
    """Plays the incident against a running app."""

    def __init__(self, *, traffic: SteadyTraffic, home: Home, clock: Clock, console: Console) -> None:
        self._traffic = traffic
        self._fault: Path = home.faults / "broken_weights"
        self._clock = clock
        self._console = console
        self.script = Script()

    def play(self) -> Script:
        """Run the whole act; takes one to two minutes.

        Raises:
            ServingError: the system did not trip or did not return in time.
        """
        with self._console.status("warming up") as line:
            self._steady(line, "healthy", HEALTHY_S)
            for name in WAVES:
                self._wave(line, name)
            self._recover(line)
            self._break(line)
            self._relapse(line)
            self._mend(line)
            self._steady(line, "after", AFTERWARDS_S)
        return self.script

    def _steady(self, line: Status, phase: str, duration_s: float) -> None:
        self._traffic.enter(phase)
        self._show_for(line, phase, duration_s)

    def _wave(self, line: Status, name: str) -> None:
        self._mark(f"traffic: {name}")
        self._traffic.enter(name, WAVES[name])
        self._show_for(line, f"malformed traffic: {name}", WAVE_S)

    def _recover(self, line: Status) -> None:
        """Healthy traffic again; if a wave tripped the model, it must be led back before the next act."""
        self._mark("traffic: healthy again")
        self._traffic.enter("healthy again")
        give_up_s = self._clock.monotonic_s() + _RETURN_WITHIN_S
        while True:  # a machine that is busy with other things may take it away once more
            self._wait_for(line, "traffic is healthy again", "serving", give_up_s - self._clock.monotonic_s())
            self._show_for(line, "healthy again", AFTERWARDS_S)
            if self._traffic.stage == "serving":
                return

    def _break(self, line: Status) -> None:
        self._fault.parent.mkdir(parents=True, exist_ok=True)
        self._traffic.enter("incident")
        self.script.broken_at_s = self._clock.monotonic_s()
        self._fault.touch()
        self._mark("weights broken in memory")
        self._wait_for(line, "incident: the model's weights are garbage", "degraded", _TRIP_WITHIN_S)
        self._mark("tripped: all on the fallback")

    def _relapse(self, line: Status) -> None:
        self._wait_for(line, "resting, then shadow", "shadow", _RETURN_WITHIN_S)
        self._wait_for(line, "shadow: still broken, must not pass", "degraded", _RETURN_WITHIN_S)
        self._mark("shadow failed: relapse")

    def _mend(self, line: Status) -> None:
        self._fault.unlink()
        self.script.mended_at_s = self._clock.monotonic_s()
        self._mark("cause removed")
        self._wait_for(line, "leading the model back", "serving", _RETURN_WITHIN_S)
        self.script.returned_at_s = self._clock.monotonic_s()
        self._mark("back at 100 %")

    def _wait_for(self, line: Status, text: str, stage: str, within_s: float) -> None:
        give_up_s = self._clock.monotonic_s() + within_s
        while self._traffic.stage != stage:
            if self._clock.monotonic_s() > give_up_s:
                raise ServingError(
                    f"still in stage {self._traffic.stage} after {within_s:.0f} s, {stage} was due; see the ledger"
                )
            self._show(line, text)

    def _show_for(self, line: Status, text: str, duration_s: float) -> None:
        until_s = self._clock.monotonic_s() + duration_s
        while self._clock.monotonic_s() < until_s:
            self._show(line, text)

    def _show(self, line: Status, text: str) -> None:
        line.update(f"{text} · stage [bold]{self._traffic.stage}[/bold] · {self._traffic.recent_sources()}")
        self._clock.sleep_s(_LOOK_EVERY_S)

    def _mark(self, text: str) -> None:
        self.script.marks.append(Mark(at_s=self._clock.monotonic_s(), text=text))
