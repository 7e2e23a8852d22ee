"""The batch script under a scheduler of fakes: signals, saves, requeues, and nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from failsoft.training.survival.notice import SIGNALS, NoticePolicy
from tests.deploy.fake_slurm import NEVER_LEAVES, SAVES_WHEN_TOLD, SCRIPT, FakeSlurm, ended, left_running
from train_jobs import child


@pytest.fixture
def slurm(tmp_path: Path) -> FakeSlurm:
    return FakeSlurm(folder=tmp_path)


def requeues(slurm: FakeSlurm) -> list[str]:
    return [line for line in slurm.lines("scontrol") if line.startswith("requeue")]


def told(slurm: FakeSlurm, number: signal.Signals, driver: str = SAVES_WHEN_TOLD) -> tuple[int, str]:
    job = slurm.start(driver)
    slurm.wait_for("training")
    slurm.wait_for("worker-n2")
    job.send_signal(number)  # B: to the batch shell alone
    status, log = ended(job)
    assert left_running(job) == [], log
    return status, log


def test_slurms_signal_before_the_time_is_over_saves_the_run_and_requeues_the_job(slurm: FakeSlurm) -> None:
    _, log = told(slurm, signal.SIGUSR1)
    assert (slurm.folder / "saved").exists(), log
    assert requeues(slurm) == ["requeue 4711"]
    assert sorted(slurm.lines("ended")) == ["head", "worker-n2"]


def test_a_job_that_is_cancelled_or_preempted_saves_and_is_not_requeued_by_itself(slurm: FakeSlurm) -> None:
    """Else ``scancel`` could never end it; a job that it preempted Slurm requeues itself."""
    status, log = told(slurm, signal.SIGTERM)
    assert (slurm.folder / "saved").exists(), log
    assert status == 143
    assert requeues(slurm) == []


def test_a_run_that_never_leaves_is_requeued_all_the_same_before_slurm_kills_the_job(slurm: FakeSlurm) -> None:
    slurm.variables = {"FAILSOFT_LEAVE_WITHIN_S": "1"}
    _, log = told(slurm, signal.SIGUSR1, NEVER_LEAVES)
    assert "did not leave within 1 s" in log
    assert requeues(slurm) == ["requeue 4711"]


def test_a_signal_while_ray_comes_up_is_not_lost(slurm: FakeSlurm) -> None:
    (slurm.folder / "head").mkdir()  # `touch` does no harm to it
    (slurm.folder / "bin" / "ray").write_text(
        "#!/bin/bash\n[[ $1 == health-check ]] && { touch $FAKES/asked; exit 1; }\n"
        "trap 'exit 1' TERM; while :; do sleep 0.05; done\n",
        "utf-8",
    )
    job = slurm.start(SAVES_WHEN_TOLD)
    slurm.wait_for("asked")
    job.send_signal(signal.SIGUSR1)
    _, log = ended(job)
    assert requeues(slurm) == ["requeue 4711"], log
    assert slurm.lines("driver-arguments") == []
    assert left_running(job) == []


@pytest.mark.parametrize(
    ("status", "restarts", "again"),
    [(0, 0, False), (1, 0, True), (1, 5, False), (3, 0, False), (4, 0, False), (137, 1, True)],
)
def test_what_the_run_ended_with_decides_whether_the_job_starts_again(
    slurm: FakeSlurm, status: int, restarts: int, *, again: bool
) -> None:
    slurm.variables = {"SLURM_RESTART_COUNT": str(restarts)}
    job = slurm.start(f"exit {status}")
    code, log = ended(job)
    assert requeues(slurm) == (["requeue 4711"] if again else []), log
    assert again or code == status
    assert left_running(job) == []


def test_a_head_that_does_not_come_up_ends_the_job_in_words(slurm: FakeSlurm) -> None:
    (slurm.folder / "no-head").touch()
    slurm.variables = {"SLURM_RESTART_COUNT": "5"}
    job = slurm.start(SAVES_WHEN_TOLD)
    status, log = ended(job)
    assert status == 1
    assert "did not come up on n1" in log
    assert slurm.lines("driver-arguments") == []


def test_a_worker_nodes_death_leaves_the_run_alone(slurm: FakeSlurm) -> None:
    job = slurm.start(SAVES_WHEN_TOLD)
    slurm.wait_for("training")
    slurm.wait_for("worker-n2")
    os.kill(int(slurm.lines("worker-n2.pid")[0]), signal.SIGKILL)
    assert job.poll() is None
    job.send_signal(signal.SIGUSR1)
    ended(job)
    assert (slurm.folder / "saved").exists()


def test_each_node_gets_a_ray_with_ports_of_the_job_and_the_run_may_have_a_worker_on_each(slurm: FakeSlurm) -> None:
    _, log = ended(slurm.start("exit 0", "--preset", "demo"))
    steps = slurm.lines("steps")
    head = next(step for step in steps if "--head" in step)
    assert head.startswith("n1: ")
    port = 20_000 + 4711 % 500 * 20
    assert f"--port={port}" in head
    assert slurm.lines("driver-ray") == [f"10.0.0.1:{port}"], "loopback leads other nodes nowhere"
    assert "--node-ip-address=10.0.0.1 " in head
    assert "--dashboard-host=127.0.0.1" in head
    assert slurm.lines("driver-arguments") == ["-m train_jobs.intent_ner --run nightly --workers 1:2 --preset demo"], (
        log
    )
    ports = {int(found) for found in re.findall(r"port=(\d+)", head)}
    assert all(19_999 < one < 32_768 for one in ports), "within Ray's range for workers, or the kernel's"


def test_a_head_that_no_other_node_could_reach_ends_the_job_in_words(slurm: FakeSlurm) -> None:
    (slurm.folder / "addresses").write_text("127.0.0.1\n", "utf-8")
    status, log = ended(slurm.start("exit 0"))
    assert status == 1
    assert "n1 has no address but its own loopback" in log
    assert [*(slurm.home / "ray-tokens").iterdir()] == []


def test_a_job_of_one_node_needs_no_other_address(slurm: FakeSlurm) -> None:
    (slurm.folder / "addresses").write_text("127.0.0.1\n", "utf-8")
    slurm.variables = {"SLURM_JOB_NODELIST": "n1"}
    status, log = ended(slurm.start("exit 0"))
    assert (status, slurm.lines("driver-ray")) == (0, [f"127.0.0.1:{20_000 + 4711 % 500 * 20}"]), log


def test_the_token_is_the_jobs_own_for_its_owner_alone_and_gone_afterwards(slurm: FakeSlurm) -> None:
    ended(slurm.start("stat -c %a $RAY_AUTH_TOKEN_PATH > $FAKES/mode; wc -c < $RAY_AUTH_TOKEN_PATH > $FAKES/length"))
    assert slurm.lines("mode") == ["600"]
    assert slurm.lines("length") == ["64"]
    assert [*(slurm.home / "ray-tokens").iterdir()] == []


def test_without_a_shared_folder_it_does_not_start(slurm: FakeSlurm) -> None:
    slurm.variables = {"FAILSOFT_HOME": ""}
    status, log = ended(slurm.start("exit 0"))
    assert status != 0
    assert "a folder that all nodes share" in log
    assert slurm.lines("steps") == []


def option(name: str) -> str:
    found = re.search(rf"^#SBATCH --{name}(?:=(\S+))?$", SCRIPT.read_text("utf-8"), re.MULTILINE)
    assert found is not None, f"no #SBATCH --{name}"
    return found[1] or ""


def test_the_signal_comes_early_enough_for_all_that_must_happen_after_it() -> None:
    to, _, lead_s = option("signal").partition("@")
    number = signal.Signals[f"SIG{to.removeprefix('B:')}"]
    assert to.startswith("B:"), "workers would hear it too, and each node would leave for itself"
    assert number in SIGNALS
    text = SCRIPT.read_text("utf-8")
    within_s = {name: int(found) for name, found in re.findall(r"\$\{FAILSOFT_(\w+)_WITHIN_S:-(\d+)\}", text)}
    assert within_s["LEAVE"] >= NoticePolicy().grace_s + 2 * child._END_S, "the workers' time, and the driver's"
    assert int(lead_s) >= within_s["LEAVE"] + within_s["END"] + 30


def test_the_job_survives_a_node_and_may_be_requeued() -> None:
    for name in ("requeue", "no-kill", "exclusive"):
        assert option(name) == ""


def test_the_script_is_good_shell() -> None:
    subprocess.run(["/bin/bash", "-n", str(SCRIPT)], check=True)
