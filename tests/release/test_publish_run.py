"""A finished run becomes a release that serving can load by role, gated through serving's own sanitiser."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from failsoft.artifacts.bundle import Bundle, Role
from failsoft.artifacts.home import Home
from failsoft.errors import ArtifactMissingError, ConfigError, GateError
from failsoft.health.clock import SystemClock
from failsoft.models.gbdt import GbdtIntent
from failsoft.release.candidate import load_predictor
from failsoft.release.publish import stored_report
from failsoft.release.report import GateReport
from tests.release.conftest import Trained
from train_jobs.gate import Ask, gate_release, read_traffic
from train_jobs.publish import FinishedRun, cleaner_of, publish_run


def finished(trained: Trained) -> FinishedRun:
    return FinishedRun(
        corpus=trained.corpus,
        codec=trained.codec,
        labels=trained.labels,
        model=trained.model,
        quality={"intent_accuracy": 0.97},
        provenance={"run": "first", "seed": 7},
    )


def gated(release: str, home: Home, **more: Any) -> GateReport:
    """Without a replica, which takes seconds to start; one test has it."""
    return gate_release(Ask(release=release, home=home, probe=None, **more), clock=SystemClock())


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home.find(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def published(home: Home, trained: Trained) -> Bundle:
    return publish_run(finished(trained), home=home, clock=SystemClock(), name="first-1", probe=None)


def test_every_role_of_the_contract_is_there(published: Bundle) -> None:
    """But for what only models of other kinds measure."""
    assert [role for role in Role if not (published.path / role).exists()] in ([], [Role.MEASURES])


def test_the_release_answers_as_the_run_did(published: Bundle, trained: Trained) -> None:
    texts = [utterance.text for utterance in trained.corpus.test]
    right = [utterance.intent for utterance in trained.corpus.test]
    answers = load_predictor(published).predict(texts).best_intents()
    assert sum(a == b for a, b in zip(answers, right, strict=True)) / len(right) > 0.9
    assert GbdtIntent.load(published.part(Role.GBDT)).predict_one(texts[0]) is not None


def test_the_baseline_is_measured_and_the_report_passed(published: Bundle) -> None:
    baseline = published.baseline()
    assert baseline.samples == 400
    assert baseline.weak_fraction < 0.1
    assert baseline.latency_p95_ms is not None
    assert sum(baseline.label_mix.values()) == pytest.approx(1.0)
    assert stored_report(published).passed


def test_the_cleaner_is_the_release_s_own(published: Bundle) -> None:
    assert cleaner_of(published)("rain\u200b😀now") == "rain 😀 now"


def test_a_published_release_without_its_manifest_fails_as_serving_would_refuse_it(
    published: Bundle, home: Home, tmp_path: Path
) -> None:
    other = Home.find(tmp_path)
    copied = other.releases(SystemClock()).root / published.name
    shutil.copytree(published.path, copied)
    assert gated(published.name, other).passed
    (copied / "manifest.json").unlink()
    report = gated(published.name, other)
    assert not report.passed
    assert "manifest.json" in report.in_words()


def test_a_published_release_is_gated_by_name_and_by_folder(published: Bundle, home: Home) -> None:
    assert gated("first-1", home).passed
    assert gated(str(published.path), home, against="first-1").passed


def test_emoji_traffic_fails_also_after_cleaning(published: Bundle, home: Home, trained: Trained) -> None:
    emoji = [f"{utterance.text}🔥" for utterance in trained.corpus.validation]
    report = gated(published.name, home, traffic=emoji)
    assert "coverage: readable traffic words" in [result.name for result in report.failures]


def test_full_width_letters_pass_since_serving_cleans_them(published: Bundle, home: Home, trained: Trained) -> None:
    wide = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
    traffic = [utterance.text.translate(wide) for utterance in trained.corpus.validation]
    assert gated(published.name, home, traffic=traffic).passed


def test_blank_texts_are_no_evidence_that_traffic_can_be_read(published: Bundle, home: Home, trained: Trained) -> None:
    few = [utterance.text for utterance in trained.corpus.validation[:20]]
    report = gated(published.name, home, traffic=few + [" "] * 100)
    assert "coverage: readable traffic words" in [result.name for result in report.failures]


def test_a_traffic_file_has_one_text_a_line_whatever_else_breaks_lines(tmp_path: Path) -> None:
    path = tmp_path / "traffic.txt"
    path.write_bytes("play\u2028jazz\r\n\n   \nrain\x85now\n".encode())
    assert read_traffic(path) == ["play\u2028jazz", "rain\x85now"]


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"\n\n"])
def test_a_traffic_file_that_holds_no_texts_is_refused_in_words(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "traffic.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"traffic\.txt"):
        read_traffic(path)


def test_an_unknown_release_fails_with_the_mend(home: Home) -> None:
    assert "failsoft train" in gated("nothing", home).in_words()


def test_an_unknown_release_to_compare_with_is_an_error(published: Bundle, home: Home) -> None:
    with pytest.raises(ArtifactMissingError, match="nothing"):
        gated(published.name, home, against="nothing")


def test_a_run_that_learned_nothing_from_few_texts_is_not_published(home: Home, trained: Trained) -> None:
    """Thirty validation texts decide nothing."""
    few = replace(trained.corpus, validation=trained.corpus.validation[:30])
    with pytest.raises(GateError, match="decide nothing"):
        publish_run(replace(finished(trained), corpus=few), home=home, clock=SystemClock(), probe=None)
