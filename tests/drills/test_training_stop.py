"""``ray job stop``, and the same job submitted again: whatever Ray's patience was, it ends as the undisturbed one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from failsoft.artifacts.home import Home
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Event, read_ledger
from failsoft.training.checkpoints.inspection import newest_healthy
from failsoft.training.progress import PositionMark
from tests.drills.cluster import Head, ray_head, run, wait_until

pytestmark = pytest.mark.drill

BATCHES = 700
"""So many that the run is far from its end when it is told to, also where that takes a second."""
SNAPSHOT_EVERY = 20
STOP_AT = 50
PATIENCE_S = 300.0
WORKERS = 2


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """A run of the example job on a cluster, submitted as often as it takes."""

    head: Head
    root: Path
    name: str
    stop_wait_s: int | None = None
    """What Ray waits between SIGTERM and SIGKILL; None: its default of 3 s."""

    @property
    def home(self) -> Home:
        return Home.find(self.root)

    def submit(self, number: int) -> str:
        """Returns the id of the submission."""
        submission = f"{self.name}-{number}"
        words = ["ray", "job", "submit", "--address", self.head.dashboard_url, "--no-wait"]
        words += ["--submission-id", submission, "--working-dir", "."]
        if self.stop_wait_s is not None:
            variables = {"RAY_JOB_STOP_WAIT_TIME_S": str(self.stop_wait_s)}
            words += ["--runtime-env-json", json.dumps({"env_vars": variables})]
        words += ["--", "python", "-m", "train_jobs.intent_ner", "--home", str(self.root), "--run", self.name]
        words += ["--preset", "demo", "--workers", str(WORKERS), "--max-batches", str(BATCHES), "--no-publish"]
        words += ["--snapshot-every", str(SNAPSHOT_EVERY), "--checkpoint-every", "1000000"]
        run(self.head, *words, timeout_s=PATIENCE_S)
        return submission

    def stop(self, submission: str) -> None:
        """What ``ray job stop`` asks of Ray, without the seconds that the command takes to load."""
        token = {"Authorization": f"Bearer {self.head.environment['RAY_AUTH_TOKEN']}"}
        url = f"{self.head.dashboard_url}/api/jobs/{submission}/stop"
        assert httpx.post(url, headers=token, timeout=60).json()["stopped"] is True
        self.await_end(submission, "STOPPED")

    def await_end(self, submission: str, status: str) -> None:
        ask = ("ray", "job", "status", "--address", self.head.dashboard_url, submission)
        said = [""]

        def over() -> bool:
            said[0] = run(self.head, *ask, timeout_s=PATIENCE_S)
            return any(word in said[0].upper() for word in ("SUCCEEDED", "FAILED", "STOPPED"))

        wait_until(over, what=f"the end of {submission}", timeout_s=PATIENCE_S)
        assert status in said[0].upper(), said[0]

    def await_batch(self, position: int) -> None:
        mark = PositionMark(self.home.run(self.name))
        wait_until(lambda: (mark.read() or 0) >= position, what=f"batch {position}", timeout_s=PATIENCE_S)

    def told(self, kind: str) -> list[Event]:
        return [one for one in read_ledger(self.home.ledger).events if (one.subject, one.kind) == (self.name, kind)]

    def digest(self) -> str:
        newest = newest_healthy(self.home.checkpoints(self.name, SystemClock()))
        assert newest is not None
        assert newest.manifest.meta["position"] == BATCHES
        return newest.manifest.files["state.safetensors"].digest


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    with ray_head(tmp_path_factory.mktemp("stopped") / "home") as running:
        yield running


@pytest.fixture(scope="module")
def undisturbed_job_digest(head: Head, tmp_path_factory: pytest.TempPathFactory) -> str:
    whole = Submitted(head=head, root=tmp_path_factory.mktemp("undisturbed"), name="undisturbed")
    whole.await_end(whole.submit(1), "SUCCEEDED")
    return whole.digest()


@pytest.mark.parametrize("stop_wait_s", [None, 0, 60])
def test_a_stopped_job_that_is_submitted_again_ends_as_the_undisturbed_one_whatever_time_it_had(
    head: Head, tmp_path: Path, undisturbed_job_digest: str, stop_wait_s: int | None
) -> None:
    job = Submitted(head=head, root=tmp_path, name=f"patience-{stop_wait_s}", stop_wait_s=stop_wait_s)
    first = job.submit(1)
    job.await_batch(STOP_AT)
    job.stop(first)
    job.await_end(job.submit(2), "SUCCEEDED")
    assert job.digest() == undisturbed_job_digest
    began = job.told("run_started")
    assert len(began) == 2
    repeated = began[1].count("repeated_batches", 0)
    print({"waits_s": stop_wait_s, "repeated": repeated, "left": [one.data for one in job.told("preempted")]})
    assert repeated <= SNAPSHOT_EVERY
    if stop_wait_s == 60:
        (left,) = job.told("preempted")
        assert left.data["saved"] is True
        assert (began[1].data["position"], repeated) == (left.data["position"], 0)
        assert len(job.told("run_left")) == 1
