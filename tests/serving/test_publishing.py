"""A folder of own files becomes a release that says what it was measured with, and what it is not armed with."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from failsoft.artifacts.bundle import Bundle, Calibration, Role
from failsoft.artifacts.home import Home
from failsoft.errors import ConfigError, IncompatibleArtifactError
from failsoft.health.clock import SystemClock
from failsoft.serving import (
    AppSpec,
    Classification,
    ConstantRung,
    Instances,
    Labelled,
    Regression,
    Rung,
    Texts,
    publish_own,
)
from failsoft.serving.kit import load_kit
from failsoft.serving.replicas.golden import check_golden
from failsoft.serving.seam import Loader, Predictor


class Doubling:
    """Answers twice the number, with the deviation in its file."""

    def __init__(self, std: float) -> None:
        self.std = std

    def predict(self, batch: Sequence[float]) -> dict[str, Any]:
        return {"mean": 2.0 * np.asarray(batch), "std": np.full(len(batch), self.std)}


def load(bundle: Bundle) -> Predictor:
    return Doubling(float(bundle.file("std.txt").read_text("utf-8")))


def rungs(_bundle: Bundle) -> list[Rung]:
    return [ConstantRung(0.0)]


CONFIG = AppSpec(
    predictor=load, quality=Regression(tolerance=1.0), rungs=rungs, inputs=Instances(schema=float, examples=[1.0])
)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "std.txt").write_text("0.5", "utf-8")
    return folder


def test_a_release_is_measured_by_what_will_judge_it(files: Path, tmp_path: Path) -> None:
    bundle = publish_own(CONFIG, files, healthy=[1.0, 2.0, 3.0], home=tmp_path, meta={"run": "seven"})
    assert bundle.measures() == {"mean_low_0": 2.0, "mean_high_0": 6.0}
    baseline = bundle.baseline()
    assert (baseline.samples, baseline.weak_fraction) == (3, 0.0)
    assert baseline.confidence_mean == pytest.approx(math.erf(2.0 / math.sqrt(2.0)))
    assert baseline.latency_p95_ms is not None
    assert [(golden.text, golden.intent) for golden in bundle.golden()] == [(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)]
    assert (bundle.meta["own_model"], bundle.meta["not_armed"]) == (True, [])
    assert bundle.meta["provenance"] == {"run": "seven"}
    assert list((tmp_path / "candidates").iterdir()) == []


def test_right_outputs_tell_how_often_the_model_is_right(files: Path, tmp_path: Path) -> None:
    rows: Any = np.array([1.0, 2.0, 3.0, 4.0])
    told = Labelled(inputs=rows, right=[2.5, 4.0, 9.0, 8.0])
    assert publish_own(CONFIG, files, healthy=told, home=tmp_path).baseline().accuracy == 0.75
    assert publish_own(CONFIG, files, healthy=[1.0, 2.0], home=tmp_path).baseline().accuracy is None
    partly = Labelled(inputs=[1.0, 2.0], right=[2.0, None])
    assert publish_own(CONFIG, files, healthy=partly, home=tmp_path).baseline().accuracy is None
    with pytest.raises(ConfigError, match="1 right outputs for 2 inputs"):
        Labelled(inputs=[1.0, 2.0], right=[2.0])


def test_a_release_that_computes_something_else_here_does_not_load(files: Path, tmp_path: Path) -> None:
    bundle = publish_own(CONFIG, files, healthy=[1.0, 2.0], home=tmp_path)
    check_golden(load(bundle), bundle, CONFIG.kind, bundle.measures())

    class Tripling(Doubling):
        def predict(self, batch: Sequence[float]) -> dict[str, Any]:
            return {"mean": 4.1 * np.asarray(batch), "std": np.full(len(batch), 0.5)}

    with pytest.raises(IncompatibleArtifactError, match=r"answers 1\.0 with 4\.1, but 2\.0 when it was made"):
        check_golden(Tripling(0.5), bundle, CONFIG.kind, bundle.measures())
    with pytest.raises(IncompatibleArtifactError, match=r"answers 1\.0 with"):
        check_golden(Doubling(math.nan), bundle, CONFIG.kind, bundle.measures())


def test_healthy_inputs_may_be_an_array_of_rows(files: Path, tmp_path: Path) -> None:
    bundle = publish_own(CONFIG, files, healthy=np.array([1.0, 2.0]), home=tmp_path)  # type: ignore[arg-type]
    assert (bundle.baseline().samples, [golden.text for golden in bundle.golden()]) == (2, [1.0, 2.0])


def test_files_that_can_not_be_copied_leave_no_half_copy(files: Path, tmp_path: Path) -> None:
    (files / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(shutil.Error):
        publish_own(CONFIG, files, healthy=[1.0], home=tmp_path)
    assert list((tmp_path / "candidates").iterdir()) == []


def test_without_healthy_inputs_it_is_served_and_says_what_is_not_armed(files: Path, tmp_path: Path) -> None:
    bundle = publish_own(CONFIG, files, home=tmp_path)
    assert "no baseline arms the watch" in bundle.meta["not_armed"][0]
    kit = load_kit(Home.find(tmp_path).releases(SystemClock()).open(bundle.name), CONFIG.task())
    assert (kit.baseline, kit.not_armed) == (None, tuple(bundle.meta["not_armed"]))
    check_golden(load(bundle), bundle, CONFIG.kind, bundle.measures())  # nothing to hold it against


def test_the_next_release_knows_the_one_before(files: Path, tmp_path: Path) -> None:
    first = publish_own(CONFIG, files, healthy=[1.0], home=tmp_path)
    (files / "std.txt").write_text("0.4", "utf-8")
    assert publish_own(CONFIG, files, healthy=[1.0], home=tmp_path).previous == first.name


@pytest.mark.parametrize(
    ("healthy", "words"),
    [
        ([1.0, math.nan], "healthy input 1, nan, is hopeless"),
        ([1.0] * 5000, "5000 healthy inputs were given"),
    ],
)
def test_inputs_that_are_not_healthy_are_refused_and_nothing_is_published(
    files: Path, tmp_path: Path, healthy: list[float], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        publish_own(CONFIG, files, healthy=healthy, home=tmp_path)
    assert Home.find(tmp_path).releases(SystemClock()).newest() is None
    assert list((tmp_path / "candidates").iterdir()) == []


def test_a_model_without_an_answer_to_a_healthy_input_is_refused(files: Path, tmp_path: Path) -> None:
    (files / "std.txt").write_text("nan", "utf-8")
    with pytest.raises(ConfigError, match=r"healthy input 0, 1\.0, got no answer: mean or std is not finite"):
        publish_own(CONFIG, files, healthy=[1.0], home=tmp_path)


def test_a_folder_that_holds_what_is_measured_here_is_refused(files: Path, tmp_path: Path) -> None:
    (files / Role.BASELINE).write_text("{}", "utf-8")
    with pytest.raises(ConfigError, match=r"holds baseline.json, which is measured"):
        publish_own(CONFIG, files, home=tmp_path)
    with pytest.raises(ConfigError, match="no folder with files"):
        publish_own(CONFIG, tmp_path / "absent", home=tmp_path)


def test_an_app_without_a_last_resort_publishes_nothing(files: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a ladder without rungs"):
        publish_own(replace(CONFIG, rungs=lambda _bundle: []), files, home=tmp_path)


class Moods:
    """Two classes of texts, by their length; and overconfident."""

    def predict(self, batch: Sequence[str]) -> Any:
        return np.array([[8.0, 0.0] if len(text) < 8 else [0.0, 8.0] for text in batch])


def test_texts_are_cleaned_before_they_are_measured_and_classes_are_counted(files: Path, tmp_path: Path) -> None:
    config = AppSpec(
        predictor=lambda _bundle: Moods(),
        quality=Classification(labels=("short", "long")),
        rungs=rungs,
        inputs=Texts(),
    )
    bundle = publish_own(
        config, files, healthy=["hi\u200b", "good day to you"], home=tmp_path, calibration=Calibration(temperature=4.0)
    )
    assert [golden.text for golden in bundle.golden()] == ["hi", "good day to you"]
    assert bundle.baseline().label_mix == {"long": 0.5, "short": 0.5}
    assert bundle.measures() == {"temperature": 4.0}
    assert bundle.baseline().confidence_mean == pytest.approx(1.0 / (1.0 + math.exp(-2.0)))
    assert bundle.has(Role.TEXT_POLICY)


def test_a_loader_is_a_class_a_function_or_a_path_and_nothing_else(files: Path, tmp_path: Path) -> None:
    class WithLoad(Doubling):
        @classmethod
        def load(cls, bundle: Bundle) -> Predictor:
            return cls(7.0)

    bundle = publish_own(CONFIG, files, home=tmp_path)
    sources: list[Any] = [WithLoad, load, "tests.serving.test_publishing:load"]
    loaders: list[Loader] = [replace(CONFIG, predictor=source).loader() for source in sources]
    assert [type(make(bundle)).__name__ for make in loaders] == ["WithLoad", "Doubling", "Doubling"]
    for source, words in ((Doubling, "makes no predictor"), ("tests.serving", "names nothing to import")):
        with pytest.raises(ConfigError, match=words):
            replace(CONFIG, predictor=source).loader()  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ConfigError, match="can't be imported here"):
        replace(CONFIG, predictor="tests.serving:Absent").loader()(bundle)


def test_every_part_that_is_made_here_is_json_that_a_strict_reader_takes(files: Path, tmp_path: Path) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    bundle = publish_own(CONFIG, files, healthy=[1.0, 2.0, 3.0], home=tmp_path)
    for part in bundle.path.glob("*.json"):
        json.loads(part.read_text("utf-8"), parse_constant=refuse)
    assert math.isnan(bundle.baseline().entropy_mean)
