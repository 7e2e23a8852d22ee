"""What strikes and mends, on processes and files of the test's own."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from failsoft.artifacts.home import Home
from failsoft.drills.fault import DrillFault, Phase, PlannedFault
from failsoft.drills.serving.grip import OUTSIDE, Grip
from failsoft.drills.serving.hands import BrokenWeights, FlippedByte, Signal, SignHand
from failsoft.drills.serving.parts import Parts
from failsoft.drills.serving.processes import Family, Process
from failsoft.drills.serving.promises import KINDS
from failsoft.drills.serving.signs import Sign, Signs, Told
from failsoft.drills.serving.target import ServeTarget
from failsoft.drills.serving.traffic import Asking
from failsoft.drills.serving.trial import Trial, _Doing
from failsoft.errors import ConfigError, ServingError
from failsoft.health.clock import ManualClock
from failsoft.health.ledger import Ledger, Side


@pytest.fixture
def sleeper() -> Iterator[tuple[subprocess.Popen[bytes], Process]]:
    """A process that waits, and how the drill knows it."""
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    (known,) = Family(process.pid).look()
    yield process, known
    process.kill()
    process.communicate()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]


def test_a_stopped_process_goes_on_when_it_is_over(sleeper: tuple[subprocess.Popen[bytes], Process]) -> None:
    process, known = sleeper
    hand = Signal(lambda: [known], signal.SIGSTOP, role="model", then=signal.SIGCONT)
    assert hand.reached() is False
    assert hand.strike() == "SIGSTOP to 1 × model"
    assert hand.reached() is True
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    hand.mend()
    assert state_of(process.pid) != "T"


def test_where_there_is_nobody_to_strike_the_drill_says_so() -> None:
    with pytest.raises(ServingError, match="no process of the model"):
        Signal(list, signal.SIGKILL, role="model").strike()


def test_a_sign_that_nobody_followed_never_struck(tmp_path: Path) -> None:
    signs = Signs(tmp_path)
    hand = SignHand(signs, Sign.SLOW, Told(amount=10.0, deployments=("model",)))
    assert hand.strike() == "slow in model, +10 s"
    hand.mend()
    assert hand.reached() is False
    hand.strike()
    signs.say_struck(Sign.SLOW)
    hand.mend()
    assert hand.reached() is True
    assert signs.read() == {}


def test_one_byte_of_the_largest_file_is_flipped_and_put_back(tmp_path: Path) -> None:
    weights = tmp_path / "weights.bin"
    weights.write_bytes(bytes(range(256)))
    killed: Any = SimpleNamespace(strike=lambda: "SIGKILL to 1 × model", reached=lambda: True)
    hand = FlippedByte(lambda: [weights], killed, random.Random(1))
    assert hand.strike().endswith("of weights.bin flipped, SIGKILL to 1 × model")
    changed = weights.read_bytes()
    assert sum(a != b for a, b in zip(changed, bytes(range(256)), strict=True)) == 1
    hand.mend()
    assert weights.read_bytes() == bytes(range(256))
    assert hand.reached() is True


def test_a_byte_is_put_back_where_nobody_could_be_killed_for_it(tmp_path: Path) -> None:
    weights = tmp_path / "weights.bin"
    weights.write_bytes(bytes(range(256)))
    nobody = Signal(list, signal.SIGKILL, role="model")
    with pytest.raises(ServingError, match="no process of the model"):
        FlippedByte(lambda: [weights], nobody, random.Random(1)).strike()
    assert weights.read_bytes() == bytes(range(256))


def test_a_drill_that_is_told_to_end_puts_the_byte_back(tmp_path: Path) -> None:
    weights = tmp_path / "weights.bin"
    weights.write_bytes(bytes(range(256)))
    killed: Any = SimpleNamespace(strike=lambda: "SIGKILL to 1 × model", reached=lambda: True)

    def told_to_end() -> None:
        assert weights.read_bytes() != bytes(range(256))
        raise SystemExit(143)

    family = SimpleNamespace(look=told_to_end)
    session: Any = SimpleNamespace(clock=ManualClock(), parts=SimpleNamespace(host=SimpleNamespace(family=family)))
    fault = PlannedFault(kind=DrillFault.CORRUPT_BUNDLE, phase=Phase.LOAD, at=0.0)
    doing = _Doing(fault=fault, hand=FlippedByte(lambda: [weights], killed, random.Random(1)))
    with pytest.raises(SystemExit):
        Trial(session=session, faults=(fault,), folder=tmp_path)._carry_out([doing], 0.0)
    assert weights.read_bytes() == bytes(range(256))


def test_who_followed_a_sign_before_did_not_follow_this_one(tmp_path: Path) -> None:
    signs = Signs(tmp_path)
    signs.say_struck(Sign.SLOW)
    hand = SignHand(signs, Sign.SLOW, Told(amount=10.0))
    hand.strike()
    hand.mend()
    assert hand.reached() is False


def test_a_bundle_that_nobody_knows_cannot_be_corrupted() -> None:
    killed: Any = SimpleNamespace(strike=lambda: "", reached=lambda: True)
    with pytest.raises(ServingError, match="--bundle"):
        FlippedByte(list, killed, random.Random(1)).strike()


@dataclass
class AnsweringClock(ManualClock):
    """While the drill waits, the model says what it did."""

    ledger: Ledger
    says: str
    sign: Path
    heard: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def sleep_s(self, duration_s: float) -> None:
        super().sleep_s(duration_s)
        if self.sign.exists() and not self.heard:
            self.heard.append(self.says)
            self.ledger.record("planned_fault", self.says)


@pytest.mark.parametrize(
    ("says", "by_itself"),
    [("weights were shuffled in memory", True), ("this model has no break_weights(): nothing was spoilt", False)],
)
def test_a_model_that_cannot_break_its_weights_is_spoilt_from_outside(
    says: str, by_itself: bool, tmp_path: Path
) -> None:
    home, signs = Home(root=tmp_path / "home"), Signs(tmp_path / "signs")
    home.root.mkdir()
    signs.folder.mkdir()
    ledger = Ledger(home.ledger, ManualClock(), side=Side.SERVING, subject="blue model")
    clock = AnsweringClock(ledger=ledger, says=says, sign=home.faults / "broken_weights")
    parts: Any = SimpleNamespace(host=SimpleNamespace(home=home))
    hand = BrokenWeights(parts, SignHand(signs, Sign.GARBAGE, Told(deployments=("blue",))), clock)
    assert ("shuffled" in hand.strike()) is by_itself
    assert (home.faults / "broken_weights").exists() is by_itself
    assert (Sign.GARBAGE in signs.read()) is not by_itself
    hand.mend()
    assert not (home.faults / "broken_weights").exists()
    assert signs.read() == {}
    assert (hand.reached() is True) is by_itself


@dataclass
class TitledFamily:
    """Processes by their titles."""

    titles: list[str]

    def titled(self, *titles: str) -> list[Any]:
        return [SimpleNamespace(title=title) for title in self.titles if title.startswith(titles)]

    def look(self) -> list[Any]:
        return self.titled("")


def parts_of(titles: list[str], folder: Path, **target: Any) -> Parts:
    told = {"ingress": "front", "deployments": ["front", "model", "model-2"]}
    signs = Signs(folder)
    host: Any = SimpleNamespace(
        url="http://127.0.0.1:9", told=told, family=TitledFamily(titles), signs=signs, home=Home(root=folder)
    )
    return Parts(ServeTarget(app="a:b", **target), host, ManualClock())


TITLES = [
    "ray::ServeReplica:drilled:front",
    "ray::ServeReplica:drilled:model.handle_request",
    "ray::ServeReplica:drilled:model-2",
    "ray::ServeController",
    "ray::Controller.wait_plan",
    "/x/ray/core/src/ray/gcs/gcs_server --log_dir=x",
]


def test_replicas_are_found_by_their_whole_name(tmp_path: Path) -> None:
    parts = parts_of(TITLES, tmp_path)
    assert [one.title for one in parts.replicas(("model",))] == ["ray::ServeReplica:drilled:model.handle_request"]
    assert parts.model_names() == ("model", "model-2")
    assert parts_of(TITLES, tmp_path, models=("model-2",)).model_names() == ("model-2",)
    assert len(parts.controllers()) == 2
    assert [one.title for one in parts.controllers("serve")] == ["ray::ServeController"]
    assert len(parts.far_side()) == 3
    assert not parts.ours


def grip(parts: Parts | None, folder: Path) -> Grip:
    asking = Asking(url="http://127.0.0.1:9/", payloads=({"text": "x"},), target=ServeTarget(app="a:b"))
    return Grip(asking=asking, folder=folder, clock=ManualClock(), parts=parts)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_hand_where_the_app_is_known(kind: DrillFault, tmp_path: Path) -> None:
    fault = PlannedFault(kind=kind, phase=Phase.LOAD)
    assert grip(parts_of(TITLES, tmp_path), tmp_path).hand(fault).reached() in {False, None}
    if kind in OUTSIDE:
        assert grip(None, tmp_path).hand(fault).reached() is False
    else:
        with pytest.raises(ServingError, match="--serve"):
            grip(None, tmp_path).hand(fault)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (DrillFault.OVERLOAD, {"users": 3.0}),
        (DrillFault.KILL_REPLICA, {"role": "king"}),
        (DrillFault.KILL_CONTROLLER, {"role": "model"}),
        (DrillFault.SLOW_MODEL, {"amount": "much"}),
    ],
)
def test_an_argument_that_cannot_be_meant_is_refused(
    kind: DrillFault, arguments: dict[str, float | str], tmp_path: Path
) -> None:
    fault = PlannedFault(kind=kind, phase=Phase.LOAD, arguments=arguments)
    with pytest.raises(ConfigError, match=str(kind)):
        grip(parts_of(TITLES, tmp_path), tmp_path).hand(fault)
