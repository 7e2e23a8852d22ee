"""A real process loads the release with serving's code; what reaches its network is compared with training."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from failsoft.artifacts.bundle import Bundle, Role
from failsoft.artifacts.home import Home
from failsoft.errors import ServingError
from failsoft.health.clock import SystemClock
from failsoft.serving.intake.text_policy import TextPolicy
from tests.conftest import ROOT
from tests.release.conftest import Trained, trained  # noqa: F401 -- a fixture
from tests.release.test_publish_run import finished
from train_jobs.gate import Ask, gate_release
from train_jobs.publish import publish_run
from train_jobs.replica import _environment, probe_replica


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home.find(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def published(home: Home, trained: Trained) -> Bundle:  # noqa: F811
    return publish_run(finished(trained), home=home, clock=SystemClock(), name="first")


def test_a_healthy_release_is_published_only_after_a_replica_answered(published: Bundle, home: Home) -> None:
    report = gate_release(Ask(release="first", home=home), clock=SystemClock())
    named = {result.name: result for result in report.results}
    wanted = ["replica: loads and answers", "replica: latency budget"]
    for name in [*wanted, "skew: word ids", "skew: logits", "skew: answers"]:
        assert named[name].passed, named[name].why
    assert published.meta["waived"] == {}


def test_a_release_that_does_not_load_ends_the_replica_with_its_reason(published: Bundle, tmp_path: Path) -> None:
    with pytest.raises(ServingError, match=r"ended with status 1.*nowhere"):
        probe_replica(tmp_path / "nowhere", ["hello"])


def test_a_replica_that_says_nothing_is_ended(published: Bundle) -> None:
    with pytest.raises(ServingError, match="within 0 s"):
        probe_replica(published.path, ["hello"], within_s=0.05)


def test_a_replica_that_hangs_ends_although_whoever_started_it_is_gone(tmp_path: Path) -> None:
    hangs = tmp_path / "texts.json"
    os.mkfifo(hangs)
    code = "from serve_apps import probe; probe.end_after(0.2); print(probe.main(['x', r'{}', 'y']))"
    done = subprocess.run([sys.executable, "-c", code.format(hangs)], timeout=60, check=False, cwd=ROOT)
    assert done.returncode == -signal.SIGALRM


def test_a_replica_gets_no_secret_and_no_address_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = ("FAILSOFT_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "DB_PASSWORD", "RAY_ADDRESS", "HF_TOKEN")
    for name in (*secret, "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    environment = _environment()
    assert [name for name in secret if name in environment] == []
    assert {"OMP_NUM_THREADS", "PATH", "PYTHONPATH"} <= set(environment)


def test_a_text_pipeline_that_training_did_not_have_is_skew(published: Bundle, tmp_path: Path) -> None:
    """The policy in the release cuts texts short, as a limit does that was changed on one side only."""
    import shutil

    folder = tmp_path / "candidate"
    shutil.copytree(published.path, folder, ignore=shutil.ignore_patterns("manifest.json"))
    (folder / Role.TEXT_POLICY).write_text(TextPolicy(max_chars=20).to_json(), "utf-8")
    report = gate_release(Ask(release=str(folder), home=Home.find(tmp_path)), clock=SystemClock())
    assert "skew: word ids" in {result.name for result in report.failures}
