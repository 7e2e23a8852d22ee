"""A release is read by role, and what is absent or odd is named."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from failsoft.artifacts.bundle import Baseline, Bundle, Calibration, Golden, Role, write_golden, write_json
from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import ArtifactError, ConfigError, DamagedArtifactError, IncompatibleArtifactError
from failsoft.health.clock import ManualClock

BASELINE = Baseline(
    samples=500,
    weak_fraction=0.02,
    entropy_mean=0.1,
    entropy_std=0.05,
    logit_std=2.5,
    oov_fraction=0.01,
    label_mix={"play_music": 1.0},
)
GOLDEN = (Golden(text="play jazz", intent="play_music", confidence=0.98),)


def bundle_with(tmp_path: Path, meta: dict[str, Any] | None = None, **files: str) -> Bundle:
    def write(folder: Path) -> None:
        write_json(folder, Role.CALIBRATION, Calibration(temperature=1.5))
        write_json(folder, Role.BASELINE, BASELINE)
        write_golden(folder, GOLDEN)
        for name, content in files.items():
            (folder / Role[name]).write_text(content)

    return Bundle.of(ArtifactStore(tmp_path, ManualClock(), kind="release").publish("r1", write, meta=meta or {}))


def test_what_was_written_is_read_back_by_role(tmp_path: Path) -> None:
    bundle = bundle_with(tmp_path, {"previous": "r0"})
    assert (bundle.calibration().temperature, bundle.baseline(), bundle.golden()) == (1.5, BASELINE, GOLDEN)
    assert (bundle.name, bundle.previous) == ("r1", "r0")
    assert bundle.digest.startswith("blake3:")


def test_the_first_release_has_none_before_it(tmp_path: Path) -> None:
    assert bundle_with(tmp_path).previous is None


def test_an_absent_part_is_named(tmp_path: Path) -> None:
    with pytest.raises(DamagedArtifactError, match=r"release r1 has no weights\.safetensors"):
        bundle_with(tmp_path).part(Role.WEIGHTS)


@pytest.mark.parametrize(
    "content", ["{", "[1]", "5", "{}", '{"golden": 3}', '{"temperatur": 1.0}', '{"temperature": "warm"}']
)
def test_a_part_that_says_something_else_is_named_and_raises_nothing_unexpected(tmp_path: Path, content: str) -> None:
    bundle = bundle_with(tmp_path, CALIBRATION=content, BASELINE=content, GOLDEN=content)
    for read, role in ((bundle.baseline, Role.BASELINE), (bundle.golden, Role.GOLDEN)):
        with pytest.raises(ArtifactError, match=role.value):
            read()
    if content != "{}":
        with pytest.raises(ArtifactError, match=r"calibration\.json"):
            bundle.calibration()


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan, math.inf, 1e6])
def test_a_temperature_that_makes_confidences_nonsense_is_refused(temperature: float) -> None:
    with pytest.raises(ConfigError, match="temperature is"):
        Calibration(temperature=temperature)


def test_a_baseline_of_the_first_format_is_read_and_what_it_did_not_measure_is_unknown(tmp_path: Path) -> None:
    old = {"samples": 9, "weak_fraction": 0.0, "entropy_mean": 0.1, "entropy_std": 0.1, "logit_std": 2.0}
    body = old | {"oov_fraction": 0.0, "label_mix": {"a": 1.0}, "latency_p95_ms": 2.0}
    baseline = bundle_with(tmp_path, BASELINE=json.dumps(body)).baseline()
    assert (baseline.latency_p95_ms, baseline.latency_p50_ms, baseline.oov_mean, baseline.accuracy) == (
        2.0,
        None,
        None,
        None,
    )


@pytest.mark.parametrize("written_in", [3, 0, "2", None])
def test_a_baseline_of_a_newer_format_is_refused_and_named(tmp_path: Path, written_in: object) -> None:
    bundle = bundle_with(tmp_path, BASELINE=json.dumps({"format": written_in}))
    with pytest.raises(IncompatibleArtifactError, match="format"):
        bundle.baseline()


def test_what_is_no_number_is_null_on_disk_and_nan_again_when_read(tmp_path: Path) -> None:
    write_json(tmp_path, Role.BASELINE, replace(BASELINE, entropy_std=math.nan, words_mean=math.inf))
    write_json(tmp_path, Role.MEASURES, {"low": math.nan})
    write_golden(tmp_path, (replace(GOLDEN[0], confidence=math.nan),))
    assert not any("NaN" in part.read_text("utf-8") for part in tmp_path.glob("*.json"))
    bundle = Bundle(name="r", path=tmp_path, digest="", meta={})
    assert math.isnan(bundle.baseline().entropy_std)
    assert bundle.baseline().words_mean is None
    assert math.isnan(bundle.measures()["low"])
    assert math.isnan(bundle.golden()[0].confidence)


def test_a_bare_nan_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    write_json(tmp_path, Role.BASELINE, BASELINE)
    text = (tmp_path / Role.BASELINE).read_text("utf-8").replace('"logit_std": 2.5', '"logit_std": NaN')
    (tmp_path / Role.BASELINE).write_text(text, "utf-8")
    assert math.isnan(Bundle(name="r", path=tmp_path, digest="", meta={}).baseline().logit_std)
