"""failsoft itself is upgraded under load: another version of it by Serve's own config, and nobody misses an answer.

The version before is that of a commit of this repository, with an older number; its plan is on the disk and its
controller, gateways and models run when the new ones come.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from failsoft import __version__
from failsoft.artifacts.home import Home
from failsoft.remote import GatewayClient
from tests.conftest import ROOT
from tests.drills.cluster import Head, free_ports, ray_head
from tests.drills.deployed_flats import all_in, config, deploy, every_status, rollout, status
from tests.drills.epochs import Epochs
from tests.drills.flats_app import FLATS, publish_flats, right
from tests.drills.serving_support import Traffic, wait_for

pytestmark = pytest.mark.drill
BEFORE = "03d98d8ea658f9d0240fc4cae84173705c3ab2ef"
"""Its stored plans name no writer, its controller knows no version, and its status says less."""
OLDER = "0.0.9"
RATE_HZ = 20.0


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """The package of the version before."""
    archive = tmp_path / "before.tar"
    command = ["git", "archive", "--output", str(archive), BEFORE, "platform/failsoft"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"the commit {BEFORE[:9]} is not in this checkout: {done.stderr.strip()}")
    shutil.unpack_archive(archive, tmp_path / "before", filter="data")
    number = tmp_path / "before/platform/failsoft/__init__.py"
    number.write_text(number.read_text("utf-8").replace('"0.1.0"', f'"{OLDER}"'), "utf-8")
    assert OLDER in number.read_text("utf-8")
    return tmp_path / "before/platform"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    publish_flats(tmp_path / "home")
    return Home.find(tmp_path / "home")


@pytest.fixture
def head(home: Home) -> Iterator[Head]:
    with ray_head(home.root, num_cpus=2) as running:
        yield running


def test_another_version_takes_over_under_load_with_its_plan_and_nobody_misses_an_answer(
    head: Head, home: Home, older: Path
) -> None:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    deploy(head, config(port, package=older))
    wait_for(lambda: all_in(url, "serving"), within_s=150, what="the version before")
    with (
        Traffic(url, FLATS, rate_hz=RATE_HZ, field_name="instance") as traffic,
        Epochs([partial(status, url)]) as epochs,
    ):
        before = with_a_past(url, home)
        gateways = {str(one["gateway"]) for one in every_status(url)}
        began_s = time.monotonic()
        deploy(head, config(port))
        wait_for(lambda: new_ones(url, gateways), within_s=150, what="gateways of the new version")
        wait_for(
            lambda: rollout(url, home).get("version") == __version__, within_s=60, what="a controller of that version"
        )
        wait_for(lambda: all_in(url, "serving"), within_s=90, what="both gateways serving")
        took_s, done = time.monotonic() - began_s, len(traffic.replies)
        wait_for(lambda: len(traffic.replies) > done + 3 * RATE_HZ, within_s=60, what="callers of the new version")
    after = rollout(url, home)
    slowest_s = max(reply.done_s - reply.sent_s for reply in traffic.replies)
    by_source = Counter(str(reply.body.get("source")) for reply in traffic.replies)
    print(f"upgraded in {took_s:.1f} s; {dict(by_source)}, lost {len(traffic.lost())}, slowest {slowest_s:.2f} s")
    assert traffic.lost() == []
    assert [reply for reply in traffic.replies if not right(reply.body, reply.text)] == []
    assert epochs.went_back() == {}
    assert after["plan"]["epoch"] >= before["plan"]["epoch"]
    assert after["plan"]["releases"] == before["plan"]["releases"]
    assert after["pid"] != before["pid"]


def with_a_past(url: str, home: Home) -> dict[str, Any]:
    """What the older controller says once its plan has been down and up again; only answers lead it up."""
    with GatewayClient(url, token=home.operator_token()) as operator:
        operator.degrade(for_s=0.5, why="so that there is a plan with a past")
    wait_for(lambda: status(url).get("stage") == "degraded", within_s=30, what="the order")
    wait_for(lambda: all_in(url, "serving"), within_s=90, what="its return")
    said = rollout(url, home)
    assert said["plan"]["epoch"] > 1
    assert "version" not in said
    return said


def new_ones(url: str, old: set[str]) -> bool:
    """Whether the gateways that answer came later, all of them."""
    said = {str(one["gateway"]) for one in every_status(url)}
    return bool(said) and not old & said
