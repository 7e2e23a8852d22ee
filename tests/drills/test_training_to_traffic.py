"""From a finished job to callers: it publishes, the gates let it begin its way beside live traffic, and it serves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from typer.testing import CliRunner

from failsoft.artifacts.home import Home
from failsoft.cli import gate as _gate  # noqa: F401 -- hangs its commands on the app
from failsoft.cli import releases as _releases  # noqa: F401 -- likewise
from failsoft.cli.app import app as command_line
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import read_ledger
from failsoft.models.narrow import Width
from failsoft.serving.settings import ServeSettings
from serve_apps.runtime import start
from tests.drills.serving_support import Traffic, free_port, stages_of, wait_for
from tests.release.conftest import Trained, trained  # noqa: F401 -- a fixture
from tests.release.test_publish_run import finished
from tests.serving.tiny_release import TEXTS
from train_jobs.config import JobConfig, Preset
from train_jobs.intent_ner import run_job
from train_jobs.publish import publish_run

pytestmark = [
    pytest.mark.drill,
    pytest.mark.usefixtures("ray_local", "_threads_as_before"),
    pytest.mark.filterwarnings("ignore:`use_:DeprecationWarning"),  # Ray warns of its own settings
]
RATE_HZ = 60.0


@pytest.fixture
def _threads_as_before() -> Iterator[None]:
    """Jobs and commands set torch's threads for their process; give the test run back what it had."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@contextmanager
def served(home: Path) -> Iterator[str]:
    """The newest release of a home behind a gateway, by the drill's stages."""
    running = start(ServeSettings(home=home, profile="drill", gateways=1), port=free_port())
    try:
        yield running.url
    finally:
        running.stop()


def typed(home: Path, *words: str) -> str:
    done = CliRunner().invoke(command_line, [*words, "--home", str(home)])
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"
    return done.output


def plan_of(url: str) -> dict[str, Any]:
    return dict(httpx.get(f"{url}/v1/status", timeout=5.0).json()["plan"])


def serves(url: str, release: str) -> bool:
    plan = plan_of(url)
    return bool(plan["stage"] == "serving" and plan["releases"].get(plan["subject"]) == release)


def newest(home: Path) -> str:
    return Home(root=home).releases(SystemClock()).listing()[-1].name


def job(home: Path, run: str, seed: int) -> str:
    """Train for real and publish; the name of the release."""
    run_job(JobConfig(home=home, run=run, preset=Preset.DEMO, workers=1, seed=seed))
    return newest(home)


def test_a_finished_job_publishes_and_its_release_reaches_all_callers_through_gates_and_stages(tmp_path: Path) -> None:
    first = job(tmp_path, "first", 7)
    with served(tmp_path) as url, Traffic(url, TEXTS, rate_hz=RATE_HZ) as traffic:
        wait_for(lambda: len(traffic.replies) > 40, within_s=30, what="traffic")
        second = job(tmp_path, "second", 8)
        assert second != first
        said = typed(tmp_path, "release", "promote", second, "--when-gated", "--url", url)
        assert f"release {second} passed all" in said
        assert first in said, "judged against what serves"
        wait_for(lambda: serves(url, second), within_s=180, what="the second release in service")
        reached = len(traffic.replies)
        wait_for(lambda: len(traffic.replies) > reached + 60, within_s=20, what="its answers")
    assert traffic.lost() == []
    assert {"serving", "shadow", "canary", "ramp_20", "ramp_50"} <= stages_of(traffic.replies)
    assert {reply.body["release"] for reply in traffic.replies[-20:]} == {second}
    moved = [event.why for event in read_ledger(tmp_path / "ledger.jsonl").events if event.kind == "stage_move"]
    print(*moved, sep="\n")


def test_each_narrow_variant_that_the_command_makes_is_served_to_callers(
    tmp_path: Path,
    trained: Trained,  # noqa: F811
) -> None:
    texts = [utterance.text for utterance in trained.corpus.test]
    publish_run(finished(trained), home=Home.find(tmp_path), clock=SystemClock(), name="toy")
    with served(tmp_path) as url, Traffic(url, texts, rate_hz=RATE_HZ) as traffic:
        for width in Width:
            typed(tmp_path, "release", "publish", "toy", "--width", str(width))
            typed(tmp_path, "release", "promote", f"toy-{width}", "--url", url)
            wait_for(lambda name=f"toy-{width}": serves(url, name), within_s=180, what=f"toy-{width} in service")  # type: ignore[misc]
            reached = len(traffic.replies)
            wait_for(lambda count=reached: len(traffic.replies) > count + 60, within_s=20, what="its answers")  # type: ignore[misc]
            answers = traffic.replies[-30:]
            assert {(r.body["release"], r.body["source"]) for r in answers} == {(f"toy-{width}", "primary")}
    assert traffic.lost() == []
