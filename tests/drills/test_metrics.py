"""A real Prometheus scrapes a real training run and a real app through Ray's exporter, and rules fire."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from failsoft.artifacts.bundle import Role
from failsoft.artifacts.home import Home
from failsoft.artifacts.manifest import read_manifest
from failsoft.health import serving_metrics, training_metrics
from failsoft.health.clock import SystemClock
from failsoft.health.metric import Metric
from failsoft.health.metric_table import TABLE
from tests.benchmarks.process_tree import cpu_s
from tests.drills.cluster import BIN, Head, child, free_ports, ray_head, run, wait_until
from tests.drills.prometheus import Prometheus, prometheus
from tests.drills.serving_support import Traffic
from tests.serving.tiny_release import TEXTS
from tests.serving.tracing.receiver import attributes, receiving

pytestmark = pytest.mark.drill

QUICK = {"RAY_metrics_report_interval_ms": "2000", "RAY_worker_niceness": "0"}
"""Ray's processes report every other second and not every ten; what scrapes and asks does not outrank the model."""
RATE_HZ, SEEN_HZ = 12.0, 3.0
"""Requests a second, of which two slow cores shed few beside all that; and what Prometheus must see of them."""
GATE_REPORT = """{"results": [
  {"name": "size", "passed": true, "value": 1.0, "limit": 2.0, "why": "", "waived": null},
  {"name": "skew: logits", "passed": false, "value": 1.0, "limit": 2.0, "why": "", "waived": "known"}]}"""
FAULTS = '[{"kind": "nan_batch", "position": 150}, {"kind": "nan_batch", "position": 160}]'
FALSE = {"FailsoftDegraded", "FailsoftEpochsDisagree", "FailsoftControllerSilent"}
"""Alarms that a sound app does not raise; without their `for`, they may see a process that came up before another."""
SCRAPES, EVERY_S, DEARER = 20, 15.0, 3.0
"""How often a scrape is measured, Prometheus' usual interval, and how often the CPU it may cost of writing its text."""
RARE = {
    "failsoft_training_loss_scale",
    "failsoft_serving_oov_ratio",
    "failsoft_training_checkpoint_stall_seconds",
    "failsoft_training_checkpoint_write_seconds",
}
"""Not in this story: no mixed precision; histograms are there with their first value."""


@pytest.fixture(scope="module")
def home(tiny_releases: Path, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """With the small release, as if it had passed one gate and a waiver had let it through another."""
    home, tiny = Home.find(tmp_path_factory.mktemp("metrics")), tiny_releases / "tiny"
    manifest = read_manifest(tiny)

    def fill(folder: Path) -> None:
        for name in manifest.files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(tiny / name, folder / name)
        (folder / Role.GATE_REPORT).write_text(GATE_REPORT, "utf-8")

    home.releases(SystemClock()).publish("gated", fill, meta=dict(manifest.meta))
    return home


@pytest.fixture(scope="module")
def head(home: Home) -> Iterator[Head]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in QUICK.items():
            patch.setenv(name, value)
        with ray_head(home.root) as running:
            yield running


@pytest.fixture(scope="module")
def watcher(head: Head, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with prometheus(head.metrics_address, tmp_path_factory.mktemp("prometheus") / "p") as one:
        yield one


def scraped(head: Head) -> str:
    return httpx.get(f"http://{head.metrics_address}/metrics", timeout=20).text


def names_in(text: str) -> set[str]:
    """Of ours, as declared to Prometheus."""
    return set(re.findall(r"^# TYPE ray_(failsoft_\w+) \w+$", text, flags=re.MULTILINE))


def wait_for_all(head: Head, metrics: tuple[Metric, ...]) -> None:
    """Each process reports on its own clock, and Ray's agent gathers on another."""
    absent: set[str] = set()

    def all_there() -> bool:
        nonlocal absent
        absent = {metric.name for metric in metrics} - names_in(scraped(head)) - RARE
        return not absent

    try:
        wait_until(all_there, what="every metric of the table", timeout_s=60)
    except TimeoutError as late:
        raise AssertionError(f"never exported: {sorted(absent)}") from late


def _listeners(port: int) -> dict[str, str]:
    """Addresses, as the kernel writes them, on which somebody listens at this port, IPv6 included; and the sockets."""
    found = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text("ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                found[fields[1].rpartition(":")[0]] = f"socket:[{fields[9]}]"
    return found


def test_a_run_that_refuses_batches_is_seen_and_told(head: Head, watcher: Prometheus, tmp_path: Path) -> None:
    command = [str(BIN / "python"), "-m", "train_jobs.intent_ner", "--run", "night", "--preset", "embedded"]
    command += ["--faults", FAULTS, "--no-publish", "--no-preflight", "--checkpoint-every", "100"]
    environment = head.environment | {"RAY_ADDRESS": head.address}
    with child(command, environment=environment, log=tmp_path / "job.log") as job:

        def fires() -> bool:
            assert job.poll() is None, (tmp_path / "job.log").read_text("utf-8", "replace")[-3000:]
            return "FailsoftDropRate" in watcher.firing()

        wait_until(fires, what="the alert of refused batches", timeout_s=240)
        told = watcher.firing()["FailsoftDropRate"]
        assert told["labels"] | {"run": "night", "severity": "warning"} == told["labels"]
        assert "Run night refuses" in told["annotations"]["summary"]
        assert watcher.value('sum(increase(ray_failsoft_training_refused_batches_total{run="night"}[10m]))') is not None
        assert watcher.value('ray_failsoft_training_phase{run="night",phase="training"} == 1') == 1.0
        assert (watcher.value('ray_failsoft_training_position_batches{run="night"}') or 0) > 150
        assert (watcher.value('ray_failsoft_training_batches_per_second{run="night"}') or 0) > 0
        wait_for_all(head, training_metrics.TRAINING_METRICS)
        assert "FailsoftNoProgress" not in watcher.firing()


@contextmanager
def serving(head: Head, log: Path, *settings: str) -> Iterator[str]:
    port = free_ports(1)[0]
    run(head, "serve", "start", "--address", head.address, "--http-port", str(port), timeout_s=90)
    url = f"http://127.0.0.1:{port}"
    command = [str(BIN / "serve"), "run", "--address", head.address, "serve_apps:app", "profile=drill", *settings]

    def answers() -> bool:
        assert process.poll() is None, log.read_text("utf-8", "replace")[-3000:]
        try:
            return httpx.get(f"{url}/healthz", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    with child(command, environment=head.environment, log=log) as process:
        wait_until(answers, what="serve run serve_apps:app", timeout_s=150)
        yield url


def test_an_app_is_seen_and_one_whose_model_answers_nobody_is_told(
    head: Head, watcher: Prometheus, tmp_path: Path
) -> None:
    with (
        receiving() as collector,
        serving(head, tmp_path / "serve.log", f"traces={collector.url}") as url,
        Traffic(url, TEXTS, rate_hz=RATE_HZ) as traffic,
    ):
        by_the_model = 'sum(rate(ray_failsoft_serving_requests_total{source="primary",reason="none"}[30s]))'
        wait_until(lambda: (watcher.value(by_the_model) or 0) > SEEN_HZ, what="answers by the model", timeout_s=120)
        wait_until(lambda: not FALSE & watcher.firing().keys(), what="no alarm of a sound app", timeout_s=60)
        wait_for_all(head, serving_metrics.SERVING_METRICS)
        assert names_in(scraped(head)) <= TABLE.keys()
        waived = 'max(ray_failsoft_release_gates{result="waived"})'
        wait_until(lambda: watcher.value(waived) == 1.0, what="the waived gate in Prometheus", timeout_s=60)
        assert _cost(head) < DEARER * _floor(scraped(head)), "a scrape costs little more than writing its text"
        run(head, "failsoft", "degrade", "--url", url, "--why", "drill", timeout_s=60)
        wait_until(lambda: "FailsoftDegraded" in watcher.firing(), what="the alert of DEGRADED", timeout_s=60)
        why = 'sum(rate(ray_failsoft_serving_requests_total{source!="primary",reason="stage"}[30s]))'
        wait_until(lambda: (watcher.value(why) or 0) > SEEN_HZ, what="answers by the fallback", timeout_s=60)
        for metric in ("serving_stage", "rollout_stage"):
            wait_until(partial(is_told_by_app, watcher, metric), what=f"the app of {metric}", timeout_s=60)
        collector.wait(lambda it: bool(it.named("failsoft.fallback")))
        assert {attributes(one)["failsoft.source"] for one in collector.named("failsoft.fallback")} <= {"gbdt", "rules"}
        sent = 'sum(increase(ray_failsoft_serving_trace_spans_total{app="default",result="sent"}[1m]))'
        wait_until(lambda: (watcher.value(sent) or 0) > 0, what="spans in Prometheus", timeout_s=60)
        run(head, "failsoft", "restore", "--url", url, "--why", "drill", timeout_s=60)
        wait_until(lambda: "FailsoftDegraded" not in watcher.firing(), what="the end of the alert", timeout_s=60)
        assert traffic.lost() == []


def is_told_by_app(watcher: Prometheus, metric: str) -> bool:
    told = watcher.ask(f'ray_failsoft_{metric}{{stage="degraded"}} == 1')
    return {one["metric"]["app"] for one in told} == {"default"}


def _cost(head: Head) -> float:
    """CPU seconds of one scrape in the process that is scraped: what many cost above the same time without any."""
    (socket,) = _listeners(int(head.metrics_address.rpartition(":")[2])).values()
    (agent,) = [pid for pid in _processes() if socket in _files_of(pid)]
    clock = SystemClock()
    began_s, before = clock.monotonic_s(), cpu_s([agent])
    for _ in range(SCRAPES):
        scraped(head)
    took_s, busy_s = clock.monotonic_s() - began_s, cpu_s([agent]) - before
    before = cpu_s([agent])
    clock.sleep_s(took_s)
    cost_s = max(0.0, busy_s - (cpu_s([agent]) - before)) / SCRAPES
    share = cost_s / EVERY_S
    print(f"\na scrape: {cost_s * 1000:.1f} ms of CPU, {share:.2%} of a core, {len(scraped(head)) / 1000:.0f} kB")
    return cost_s


class _Again(Collector):
    """Gives what was scraped once more."""

    def __init__(self, text: str) -> None:
        self._families = list(text_string_to_metric_families(text))

    def collect(self) -> Iterable[Any]:
        return self._families


def _floor(text: str) -> float:
    """CPU seconds that Prometheus' own library takes in this process to write as much: this machine's pace."""
    registry = CollectorRegistry()
    registry.register(_Again(text))
    began_s = time.process_time()
    for _ in range(SCRAPES):
        generate_latest(registry)
    floor_s = (time.process_time() - began_s) / SCRAPES
    print(f"its text alone: {floor_s * 1000:.1f} ms of CPU")
    return floor_s


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _files_of(pid: int) -> set[str]:
    found = set()
    with suppress(OSError):  # gone meanwhile
        for handle in list(Path(f"/proc/{pid}/fd").iterdir()):
            with suppress(OSError):
                found.add(os.readlink(handle))
    return found
