"""A narrow variant is a release of its own, and a candidate that failed can be published later, with a waiver."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from failsoft.artifacts.bundle import Bundle, Role
from failsoft.artifacts.home import Home
from failsoft.errors import ConfigError, DamagedArtifactError, GateError
from failsoft.health.clock import SystemClock
from failsoft.models.narrow import Stored, Width, stored_as
from failsoft.release.candidate import load_predictor
from failsoft.release.publish import stored_report
from failsoft.release.settings import GateSettings
from failsoft.release.waivers import Waiver
from serve_apps.probe import answerer_of
from tests.release.conftest import Trained, trained  # noqa: F401 -- a fixture
from tests.release.test_publish_run import finished
from train_jobs.gate import Ask, gate_release
from train_jobs.publish import publish_run
from train_jobs.republish import Source, republish

CLOCK = SystemClock()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home.find(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def whole(home: Home, trained: Trained) -> Bundle:  # noqa: F811
    return publish_run(finished(trained), home=home, clock=CLOCK, name="whole", probe=None)


@pytest.fixture(scope="module", params=list(Width))
def narrow(request: pytest.FixtureRequest, home: Home, whole: Bundle) -> Bundle:
    return republish(Source(release=whole.name, width=request.param, probe=None), home=home, clock=CLOCK)


def test_a_variant_is_gated_and_published_under_its_own_name(narrow: Bundle, whole: Bundle) -> None:
    width = narrow.name.removeprefix("whole-")
    assert stored_as(narrow.part(Role.WEIGHTS)) == Stored(width=Width(width), of="whole")
    assert narrow.meta["provenance"] | {"run": "first"} == narrow.meta["provenance"]
    assert narrow.meta["provenance"]["variant_of"] == whole.name
    gates = {result.name for result in stored_report(narrow).results if result.name.startswith("quantization")}
    assert gates == {f"quantization KL: intent in {width}", f"quantization KL: slot in {width}"}


def test_a_variant_answers_and_is_smaller(narrow: Bundle, whole: Bundle) -> None:
    assert narrow.part(Role.WEIGHTS).stat().st_size < 0.75 * whole.part(Role.WEIGHTS).stat().st_size
    assert load_predictor(narrow).predict(["please find me some rain"]).best_intents() == ["get_weather"]


def test_each_variant_loads_as_serving_loads_it_and_answers_a_caller(
    narrow: Bundle,
    trained: Trained,  # noqa: F811
) -> None:
    """Golden inputs, sanitiser, judgement and all; on a cluster, through stages, in the drills."""
    answerer = answerer_of(narrow, CLOCK)
    texts = [utterance.text for utterance in trained.corpus.test[:20]]
    answers = [asyncio.run(answerer.answer(text, key="k", request_id="r")) for text in texts]
    assert {answer.release for answer in answers} == {narrow.name}
    assert {str(answer.source) for answer in answers} == {"primary"}


def test_a_variant_is_judged_again_against_the_whole_weights(narrow: Bundle, home: Home) -> None:
    assert gate_release(Ask(release=narrow.name, home=home, probe=None), clock=CLOCK).passed


def test_a_variant_whose_whole_weights_are_gone_is_not_measured_and_fails(
    home: Home, narrow: Bundle, tmp_path: Path
) -> None:
    alone = Home.find(tmp_path)
    (tmp_path / "releases").mkdir()
    narrow.path.rename(tmp_path / "releases" / narrow.name)
    try:
        report = gate_release(Ask(release=narrow.name, home=alone, probe=None), clock=CLOCK)
    finally:
        (tmp_path / "releases" / narrow.name).rename(narrow.path)
    assert [result.name for result in report.failures] == ["quantization KL"]
    assert "whole weights" in report.in_words()


def test_a_variant_of_a_variant_and_a_release_again_are_refused(home: Home, narrow: Bundle) -> None:
    with pytest.raises(ConfigError, match="variant itself"):
        republish(Source(release=narrow.name, width=Width.INT8, name="x", probe=None), home=home, clock=CLOCK)
    with pytest.raises(ConfigError, match="never changes"):
        republish(Source(release="whole", probe=None), home=home, clock=CLOCK)


def test_a_candidate_that_failed_is_published_later_with_a_reason_that_stays(
    trained: Trained,  # noqa: F811
    tmp_path: Path,
) -> None:
    home = Home.find(tmp_path)
    strict = GateSettings(policy=replace(GateSettings().policy, max_size_mb=0.01))
    with pytest.raises(GateError, match="failsoft release publish"):
        publish_run(finished(trained), home=home, clock=CLOCK, settings=strict, probe=None)
    (candidate,) = (tmp_path / "candidates").iterdir()
    waived = replace(strict, waivers=(Waiver(gate="size", reason="this machine has large disks"),))
    bundle = republish(Source(release=str(candidate), settings=waived, probe=None), home=home, clock=CLOCK)
    assert bundle.meta["waived"] == {"size": "this machine has large disks"}
    assert bundle.meta["provenance"] == {"run": "first", "seed": 7}
    assert [result.waived for result in stored_report(bundle).waived] == ["this machine has large disks"]


def test_a_candidate_that_was_published_can_be_published_again_and_its_folder_is_not_cleared_away_beneath_it(
    trained: Trained,  # noqa: F811
    tmp_path: Path,
) -> None:
    home = Home.find(tmp_path)
    strict = GateSettings(policy=replace(GateSettings().policy, max_size_mb=0.01))
    with pytest.raises(GateError):
        publish_run(finished(trained), home=home, clock=CLOCK, settings=strict, probe=None)
    (candidate,) = (tmp_path / "candidates").iterdir()
    waived = replace(strict, waivers=(Waiver(gate="size", reason="this machine has large disks"),))
    for name in ("first", "again"):
        source = Source(release=str(candidate), name=name, settings=waived, probe=None)
        assert republish(source, home=home, clock=CLOCK).name == name


@pytest.mark.parametrize("content", ["{", "5", "\udcff"])
def test_a_candidate_that_can_t_say_where_it_is_from_is_refused_in_words(
    home: Home, whole: Bundle, tmp_path: Path, content: str
) -> None:
    folder = tmp_path / "candidate"
    shutil.copytree(whole.path, folder, ignore=shutil.ignore_patterns("manifest.json"))
    (folder / "provenance.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(DamagedArtifactError, match="where the candidate is from"):
        republish(Source(release=str(folder), probe=None), home=home, clock=CLOCK)
