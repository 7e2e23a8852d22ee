"""Which release a gate compares with, and what it says of releases that are none of the platform's own kind."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from failsoft.artifacts.bundle import Baseline, Bundle, Golden, Role, write_golden, write_json
from failsoft.artifacts.home import Home
from failsoft.cli import gate as _gate  # noqa: F401 -- hangs its commands on the app
from failsoft.cli import releases as _releases  # noqa: F401 -- hangs its commands on the app
from failsoft.cli.app import app
from failsoft.errors import ArtifactError, ConfigError
from failsoft.health.clock import SystemClock
from failsoft.release.report import GateReport
from failsoft.serving.plan.plan import Colour, RoutingPlan, Stage
from failsoft.serving.plan.planstore import PlanStore, RolloutState
from tests.release.conftest import Trained, trained  # noqa: F401 -- a fixture
from tests.release.test_publish_run import finished
from train_jobs.gate import SERVED, Ask, gate_release, read_traffic
from train_jobs.publish import publish_run

CLOCK = SystemClock()
ACCURACY = "accuracy not worse than in release first"


def serve(home: Home, name: str) -> None:
    plan = RoutingPlan(
        epoch=1,
        stage=Stage.SERVING,
        subject=Colour.BLUE,
        stand_in=None,
        releases={Colour.BLUE: name},
        load_generation={},
        share=1.0,
        mirror_share=0.0,
        why="it is the first",
    )
    PlanStore(home.serving).save(RolloutState(plan=plan, since_epoch=1))


def gated(home: Home, release: str, against: str | None = None) -> GateReport:
    return gate_release(Ask(release=release, home=home, against=against, probe=None), clock=CLOCK)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, trained: Trained) -> Home:  # noqa: F811
    """A home where ``first`` serves and ``second`` is published."""
    home = Home.find(tmp_path_factory.mktemp("home"))
    for name in ("first", "second"):
        publish_run(finished(trained), home=home, clock=CLOCK, name=name, probe=None)
    serve(home, "first")
    return home


@pytest.fixture
def home(whole: Home, tmp_path: Path) -> Home:
    """A copy, to be spoiled at will."""
    shutil.copytree(whole.root, tmp_path / "home")
    return Home.find(tmp_path / "home")


def own(home: Home, *, baseline: Mapping[str, Any] | None, weights: float = 1.0) -> Bundle:
    def fill(folder: Path) -> None:
        (folder / "model.txt").write_text("2.0", "utf-8")
        save_file({"w": torch.full((2, 2), weights)}, folder / "mine.safetensors")
        if baseline is not None:
            unknown: dict[str, Any] = dict.fromkeys(
                ("entropy_mean", "entropy_std", "logit_std", "oov_fraction"), math.nan
            )
            write_json(folder, Role.BASELINE, Baseline(**unknown, label_mix={}, **baseline))
            write_golden(folder, (Golden(text=1.0, intent=2.0, confidence=0.9),))

    meta = {"own_model": True, "not_armed": [] if baseline else ["no healthy inputs were given"]}
    return Bundle.of(home.releases(CLOCK).publish("mine", fill, meta=meta))


def names(report: GateReport) -> set[str]:
    return {result.name for result in report.failures}


def test_what_serves_is_the_reference_where_none_is_named(whole: Home) -> None:
    for against in (None, SERVED):
        report = gated(whole, "second", against)
        assert (report.passed, report.against) == (True, "first")
        assert ACCURACY in {result.name for result in report.results}


def test_a_served_release_that_is_damaged_is_no_reason_to_compare_with_none(home: Home) -> None:
    (home.releases(CLOCK).root / "first" / Role.WEIGHTS).write_bytes(b"torn")
    for against in (None, SERVED):
        with pytest.raises(ArtifactError, match=r"first, which serves, can't be compared with.*--against"):
            gated(home, "second", against)
    assert gated(home, "second", "second").passed


def test_traffic_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "traffic.txt"
    with path.open("wb") as out:
        out.truncate(65 << 20)
    with pytest.raises(ConfigError, match=r"larger than 64 MiB.*tail"):
        read_traffic(path)


@pytest.mark.parametrize(("name", "code"), [(b"odd\xff\x01", 2), (b"[bold red]", 0), (b"<script>alert(1)", 0)])
def test_a_folder_of_any_name_is_judged_and_its_report_printed_and_written(
    home: Home, tmp_path: Path, name: bytes, code: int
) -> None:
    """No library opens weights below a name that is not UTF-8; that fails a gate, in words."""
    folder = tmp_path / os.fsdecode(name)
    left_out = shutil.ignore_patterns("manifest.json")
    shutil.copytree(home.releases(CLOCK).root / "second", folder, ignore=left_out)
    written = {kind: tmp_path / f"out.{kind}" for kind in ("json", "junit", "html")}
    words = ["gate", str(folder), "--no-replica", "--home", str(home.root)]
    done = CliRunner().invoke(app, [*words, *(word for kind in written for word in (f"--{kind}", str(written[kind])))])
    assert done.exit_code == code, done.exception
    ElementTree.parse(written["junit"])  # noqa: S314 -- written here
    assert "<script" not in written["html"].read_text("utf-8")


def test_a_folder_named_by_a_dot_has_its_own_name(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home.releases(CLOCK).root / "second")
    assert gated(home, ".").release == "second"


def test_nothing_serves_is_said(home: Home) -> None:
    shutil.rmtree(home.serving)
    with pytest.raises(ConfigError, match="nothing serves"):
        gated(home, "second", SERVED)
    assert any("none serves" in note for note in gated(home, "second").notes)


def test_a_release_is_not_compared_with_itself_and_that_is_said(whole: Home) -> None:
    for against in (None, "first"):
        report = gated(whole, "first", against)
        assert (report.passed, report.against) == (True, None)
        assert "compared with no served release: it is first itself" in report.notes


def test_a_candidate_whose_folder_is_called_as_the_served_release_is_compared(whole: Home, tmp_path: Path) -> None:
    left_out = shutil.ignore_patterns("manifest.json")
    shutil.copytree(whole.releases(CLOCK).root / "second", tmp_path / "first", ignore=left_out)
    report = gated(whole, str(tmp_path / "first"))
    assert report.against == "first"
    assert ACCURACY in {result.name for result in report.results}


def test_an_own_model_is_judged_by_what_can_be_known_of_it_and_the_rest_is_said(home: Home) -> None:
    own(home, baseline={"samples": 300, "weak_fraction": 0.01})
    report = gated(home, "mine")
    assert report.passed, report.in_words()
    assert {result.name for result in report.results} == {
        "size",
        "finite weights",
        "healthy baseline",
        "golden inputs recorded",
    }
    assert any("only its own predictor can read its files" in note for note in report.notes)


@pytest.mark.parametrize(
    ("baseline", "weights", "failing"),
    [
        (None, 1.0, {"healthy baseline", "golden inputs recorded"}),
        ({"samples": 3, "weak_fraction": 0.0}, 1.0, {"healthy baseline"}),
        ({"samples": 300, "weak_fraction": math.nan}, 1.0, {"healthy baseline"}),
        ({"samples": 300, "weak_fraction": 0.0}, math.nan, {"finite weights"}),
    ],
)
def test_an_own_model_without_healthy_inputs_or_with_nan_weights_fails(
    home: Home, baseline: Mapping[str, Any] | None, weights: float, failing: set[str]
) -> None:
    own(home, baseline=baseline, weights=weights)
    assert names(gated(home, "mine")) == failing


def test_an_own_model_that_is_the_newest_does_not_stop_a_run_from_publishing(
    home: Home,
    trained: Trained,  # noqa: F811
) -> None:
    shutil.rmtree(home.serving)
    own(home, baseline=None)
    assert publish_run(finished(trained), home=home, clock=CLOCK, name="third", probe=None).previous == "mine"
    serve(home, "mine")
    assert gated(home, "third").passed
    with pytest.raises(ConfigError, match="own model"):
        gated(home, "third", "mine")


@pytest.mark.parametrize("baseline", [None, {"samples": 300, "weak_fraction": 0.01}])
def test_an_own_model_is_shown(home: Home, baseline: Mapping[str, Any] | None) -> None:
    own(home, baseline=baseline)
    shown = CliRunner().invoke(app, ["release", "show", "mine", "--home", str(home.root)])
    assert (shown.exit_code, "published without gates" in shown.output) == (0, True), shown.output
    as_json = CliRunner().invoke(app, ["release", "show", "mine", "--json", "--home", str(home.root)])
    assert json.loads(as_json.output)["gates"] is None
