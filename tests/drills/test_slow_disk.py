"""Storage like a far NFS server: each question to it takes 0.3 s, then 2 s, then it hangs, then it is quick again.

Training keeps its pace, gateways their answers, and nothing on the disk is torn.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from failsoft.artifacts.home import Home
from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import FailsoftError
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import read_ledger
from failsoft.remote import GatewayClient
from failsoft.serving.plan.planstore import PlanStore
from tests.conftest import ROOT
from tests.drills.cluster import free_ports, ray_head
from tests.drills.deployed_flats import all_in, config, deploy, status
from tests.drills.epochs import Epochs
from tests.drills.flats_app import FLATS, publish_flats, right
from tests.drills.last_line import last_line
from tests.drills.serving_support import Reply, Traffic, wait_for
from tests.drills.slow_disk import HANGS, WHY_NOT, SlowDisk, slow_disk
from tests.drills.slow_disk_process import EACH, PHASES, STEP_S

pytestmark = [pytest.mark.drill, pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")]
ONCE_S = 1.5
"""The work may stand for so long once: until it is known that the disk is slow (``Aside.PATIENCE_S``, and some)."""


def trained(disk: SlowDisk, run: Path, dial: Path) -> list[float]:
    """When each step of the toy run began."""
    command = [sys.executable, "-m", "tests.drills.slow_disk_process", str(run), str(dial)]
    environment = os.environ | disk.environment | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [float(began_s) for began_s in json.loads(last_line(done.stdout, "["))]


def test_a_training_keeps_its_pace_on_a_disk_that_slows_down_and_hangs_and_leaves_nothing_torn(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    with slow_disk(tmp_path / "disk", tmp_path) as disk:
        run = tmp_path / "disk" / "run"
        began_s = trained(disk, run, disk.library.with_suffix(".dial"))
        steps_s = [later - earlier for earlier, later in pairwise(began_s)]
        took_s = {name: steps_s[at * EACH : (at + 1) * EACH] for at, name in enumerate(PHASES)}
        for name, took in took_s.items():
            print(
                f"{name}: a step {median(took) * 1000:.1f} ms, longest {max(took):.2f} s, {EACH} in {sum(took):.1f} s"
            )
        quick_s = sum(took_s["quick"])
        assert quick_s < EACH * STEP_S * 3, "this machine is too busy to say anything"
        for name in ("slow", "slower", "hangs"):
            assert sum(took_s[name]) < 1.5 * quick_s + ONCE_S, name
        assert max(steps_s) < ONCE_S
        reading = read_ledger(run / "ledger.jsonl")
        store = ArtifactStore(run / "checkpoints", SystemClock(), kind="checkpoint")
        whole = [store.open(artifact.name) for artifact in store.listing()]  # each byte verified
    assert reading.torn_lines == 0
    assert reading.events[-1].kind == "run_finished"
    positions = [event.count("position") for event in reading.events if event.kind == "checkpoint_handed_over"]
    assert positions == sorted(positions)
    assert len(whole) >= 2


@pytest.fixture
def slow_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Home, SlowDisk]]:
    """A home on the slow disk; whatever this test starts from now on uses it."""
    publish_flats(tmp_path / "disk")
    with slow_disk(tmp_path / "disk", tmp_path) as disk:
        for name, value in disk.environment.items():
            monkeypatch.setenv(name, value)
        yield Home.find(tmp_path / "disk"), disk


def answers_of_three_disks(
    url: str, disk: SlowDisk, operator: GatewayClient, traffic: Traffic
) -> dict[str, list[Reply]]:
    """What callers got on a quick disk, on a slow one, and on one that hangs; the app serves before and after."""
    wait_for(lambda: len(traffic.replies) > 200, within_s=60, what="warm callers")
    got = {"quick": list(traffic.replies[-150:])}
    disk.turn(300)
    began_s = time.monotonic()
    operator.degrade(for_s=None, why="an order on a slow disk")
    print(f"an order is durable after {time.monotonic() - began_s:.1f} s at 0.3 s for each question")
    wait_for(lambda: all_in(url, "degraded"), within_s=30, what="the order everywhere")
    got["slow"] = traffic.since(began_s)
    disk.turn(HANGS)
    began_s = time.monotonic()
    wait_for(lambda: len(traffic.since(began_s)) > 300, within_s=60, what="answers while the disk hangs")
    got["hangs"] = traffic.since(began_s)
    disk.turn(0)
    wait_for(lambda: restored(operator), within_s=60, what="an order once the disk is back")
    wait_for(lambda: all_in(url, "serving"), within_s=90, what="the return to serving")
    return got


def test_gateways_answer_as_ever_on_a_disk_that_slows_down_and_hangs_and_the_plan_is_whole_afterwards(
    slow_home: tuple[Home, SlowDisk],
) -> None:
    home, disk = slow_home
    with ray_head(home.root, num_cpus=2) as head:
        (port,) = free_ports(1)
        url = f"http://127.0.0.1:{port}"
        deploy(head, config(port))
        wait_for(lambda: all_in(url, "serving"), within_s=150, what="the app")
        with (
            Traffic(url, FLATS, rate_hz=20.0, field_name="instance") as traffic,
            Epochs([partial(status, url)]) as epochs,
            GatewayClient(url, token=home.operator_token()) as operator,
        ):
            got = answers_of_three_disks(url, disk, operator, traffic)
    for name, replies in got.items():
        print(f"{name}: {len(replies)} answers, half in {middle_ms(replies):.0f} ms, slowest {worst_s(replies):.2f} s")
    loaded = PlanStore(home.serving).load()
    assert loaded is not None
    assert (loaded.damaged, loaded.state.plan.stage) == (None, "serving")
    assert read_ledger(home.ledger).torn_lines == 0
    assert epochs.went_back() == {}
    assert traffic.lost() == []
    assert [reply for reply in traffic.replies if not right(reply.body, reply.text)] == []
    for name in ("slow", "hangs"):
        assert middle_ms(got[name]) < 2.0 * middle_ms(got["quick"]) + 10.0, name
        assert worst_s(got[name]) < worst_s(got["quick"]) + 1.0, name


def restored(operator: GatewayClient) -> bool:
    """Whether the order to come back was taken."""
    try:
        operator.restore(why="the disk is quick again")
    except FailsoftError:
        return False
    return True


def middle_ms(replies: list[Reply]) -> float:
    return median(reply.done_s - reply.sent_s for reply in replies) * 1000


def worst_s(replies: list[Reply]) -> float:
    return max(reply.done_s - reply.sent_s for reply in replies)
