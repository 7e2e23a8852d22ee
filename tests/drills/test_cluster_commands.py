"""The commands that the README gives for a real cluster, typed against a real head node from a plain checkout."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from failsoft.artifacts.home import Home
from failsoft.health.clock import SystemClock
from tests.drills.cluster import BIN, Head, ray_head, run, serving, wait_until

pytestmark = pytest.mark.drill


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster") / "home"


@pytest.fixture(scope="module")
def head(home: Path) -> Iterator[Head]:
    with ray_head(home) as running:
        yield running


@pytest.fixture(scope="module")
def trained(head: Head, home: Path) -> str:
    """The release that a job published, submitted as the README says."""
    command = ["python", "-m", "train_jobs.intent_ner", "--run", "cluster", "--preset", "demo"]
    submit = ["ray", "job", "submit", "--address", head.dashboard_url, "--working-dir", ".", "--", *command]
    output = run(head, *submit, timeout_s=400)
    published = Home(root=home).releases(SystemClock()).listing()
    assert len(published) == 1, output[-4000:]
    return published[0].name


def ask(url: str, text: str) -> dict[str, Any]:
    answer = httpx.post(f"{url}/v1/predict", json={"text": text, "key": "caller-1"}, timeout=10)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def ask_until_the_model_answers(url: str, text: str) -> dict[str, Any]:
    """The fallback answers while the model still loads, and when a busy machine keeps it past its deadline."""
    answers: list[dict[str, Any]] = []

    def by_the_model() -> bool:
        answers.append(ask(url, text))
        return bool(answers[-1]["source"] == "primary")

    wait_until(by_the_model, what="an answer by the model itself", timeout_s=60)
    return answers[-1]


def test_serving_without_a_release_says_how_to_make_one(head: Head, tmp_path: Path) -> None:
    command = [str(BIN / "serve"), "run", "--address", head.address, "serve_apps:app", f"home={tmp_path / 'empty'}"]
    done = subprocess.run(
        command,
        env=head.environment,
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode != 0
    assert "failsoft train" in done.stdout + done.stderr


def test_a_submitted_job_publishes_a_release_that_serve_run_answers_with(
    head: Head, trained: str, tmp_path: Path
) -> None:
    with serving(head, log=tmp_path / "serve.log") as url:
        answer = ask_until_the_model_answers(url, "play some jazz in the kitchen")
        assert answer["release"] == trained
        assert answer["intent"]
        assert 0.0 < answer["confidence"] <= 1.0
        assert answer["stage"] == "serving"
        assert answer["degrade_reason"] is None
        for malformed in ("\u202e\u200b🎵🎵🎵", "plаy sоme jаzz", "x" * 8000):
            assert ask(url, malformed)["intent"]
