"""Each fault that a release may have, planted in a candidate folder; the gates find it by the serving path."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from failsoft.artifacts.bundle import Bundle, Calibration, Role, write_golden, write_json
from failsoft.artifacts.store import ArtifactStore
from failsoft.health.clock import ManualClock
from failsoft.models.labels import LabelSet
from failsoft.models.tokens import TextCodec
from failsoft.release.given import Given
from failsoft.release.inspect import gate_bundle
from failsoft.release.policy import GatePolicy
from failsoft.release.report import GateReport
from tests.release.conftest import Trained, fill_release


def failed(report: GateReport) -> set[str]:
    return {result.name for result in report.failures}


def change_weights(release: Bundle, change: Callable[[dict[str, Tensor]], object]) -> None:
    state = load_file(release.path / Role.WEIGHTS)
    change(state)
    save_file(state, release.path / Role.WEIGHTS)


def test_a_healthy_candidate_passes_every_gate(release: Bundle) -> None:
    report = gate_bundle(release)
    assert report.passed, report.in_words()
    assert len(report.results) == 27


def test_a_temperature_half_as_large_again_fails_by_entropy_and_by_each_answer(release: Bundle) -> None:
    calibration = release.calibration()
    write_json(release.path, Role.CALIBRATION, Calibration(temperature=calibration.temperature * 1.5))
    names = failed(gate_bundle(release))
    assert {"entropy mean as recorded in training", "answers as recorded in training", "golden inputs"} <= names
    assert "logit std as recorded in training" not in names


def test_a_temperature_half_as_large_again_fails_also_where_every_record_agrees_with_it(
    release: Bundle, tmp_path: Path, trained: Trained
) -> None:
    off = Bundle(name="off", path=tmp_path / "off", digest="", meta={})
    off.path.mkdir()
    fill_release(off.path, trained, temperature_factor=1.5)
    assert failed(gate_bundle(off)) == {"calibration as fitted again", "calibration error"}
    assert "entropy mean not flatter than in release candidate" in failed(gate_bundle(off, Given(previous=release)))


def test_logits_that_are_scaled_behind_a_fitting_temperature_fail_by_their_std(release: Bundle) -> None:
    def scale(state: dict[str, Tensor]) -> None:
        last = max(name for name in state if name.startswith("intent.") and name.endswith("weight"))
        state[last] *= 1.5
        state[last.replace("weight", "bias")] *= 1.5

    change_weights(release, scale)
    write_json(release.path, Role.CALIBRATION, Calibration(temperature=release.calibration().temperature * 1.5))
    names = failed(gate_bundle(release))
    assert "logit std as recorded in training" in names
    assert "entropy mean as recorded in training" not in names


def test_a_sanitiser_that_training_did_not_have_is_found(release: Bundle) -> None:
    names = failed(gate_bundle(release, Given(clean=lambda text: text.replace("e", "ë"))))
    assert "coverage: known words kept" in names
    assert "coverage: readable validation words" in names


def test_a_tokenizer_that_lost_words_is_found(release: Bundle, trained: Trained) -> None:
    """As after a rare-word limit that differs between training and serving; sizes still fit."""
    fewer = [utterance.text.replace("song", "sung").replace("rain", "ruin") for utterance in trained.corpus.train]
    TextCodec.train(fewer, trained.codec.config).save(release.path / Role.CODEC)
    assert not gate_bundle(release).passed


def test_weights_that_hold_nan_are_named(release: Bundle) -> None:
    change_weights(release, lambda state: state["words.weight"].fill_(torch.nan))
    report = gate_bundle(release)
    assert {"finite weights", "golden inputs", "quantization KL: intent in int8"} <= failed(report)
    assert "words.weight" in report.in_words()


def test_weights_shuffled_in_place_are_found(release: Bundle) -> None:
    def shuffle(state: dict[str, Tensor]) -> None:
        for name, tensor in state.items():
            order = torch.randperm(tensor.numel(), generator=torch.Generator().manual_seed(3))
            state[name] = tensor.flatten()[order].reshape(tensor.shape)

    change_weights(release, shuffle)
    names = failed(gate_bundle(release))
    assert "golden inputs" in names
    assert any(name.startswith("entropy") for name in names)


def test_a_weight_far_outside_the_others_fails_the_int8_gate(release: Bundle) -> None:
    """One large entry takes all the steps of its row, as a tensor that was never normalised does."""

    def spike(state: dict[str, Tensor]) -> None:
        state["join.weight"][:, 0] = 300.0
        state["join.bias"][:] -= 0.0

    change_weights(release, spike)
    assert "quantization KL: intent in int8" in failed(gate_bundle(release))


@pytest.mark.parametrize("role", [Role.WEIGHTS, Role.NETWORK, Role.CODEC, Role.LABELS])
@pytest.mark.parametrize("torn", [True, False], ids=["torn", "absent"])
def test_a_part_that_serving_needs_and_cannot_load_fails_the_release(release: Bundle, role: Role, torn: bool) -> None:
    part = release.part(role)
    part.write_bytes(part.read_bytes()[:40]) if torn else part.unlink()
    report = gate_bundle(release)
    assert failed(report) == {"loads as serving loads it"}


@pytest.mark.parametrize("role", [Role.CALIBRATION, Role.BASELINE, Role.GOLDEN, Role.EVAL_TEXTS])
@pytest.mark.parametrize("content", [None, "", '{"format": 9}'])
def test_missing_evidence_fails(release: Bundle, role: Role, content: str | None) -> None:
    part = release.part(role)
    part.unlink() if content is None else part.write_text(content)
    report = gate_bundle(release)
    assert not report.passed


def test_a_fallback_that_does_not_load_fails(release: Bundle) -> None:
    (release.part(Role.GBDT) / "model.txt").write_text("tree")
    assert failed(gate_bundle(release)) == {"fallback", "worth"}


def test_a_model_that_learned_nothing_fails_although_it_answers_as_recorded(tmp_path: Path, trained: Trained) -> None:
    untrained = type(trained.model)(trained.model.config)
    folder = tmp_path / "untrained"
    folder.mkdir()
    fill_release(folder, replace(trained, model=untrained.eval()))
    names = failed(gate_bundle(folder))
    assert {"weak answers", "accuracy against the fallback"} <= names
    assert "answers as recorded in training" not in names


def test_evidence_of_too_few_texts_decides_nothing(release: Bundle) -> None:
    body = json.loads(release.part(Role.EVAL_TEXTS).read_text("utf-8"))
    for column in ("texts", "intents", "logits", "slots"):
        body[column] = body[column][:50]
    release.part(Role.EVAL_TEXTS).write_text(json.dumps(body), "utf-8")
    assert "entropy std as recorded in training" in failed(gate_bundle(release))


def test_no_golden_inputs_are_not_enough(release: Bundle) -> None:
    write_golden(release.path, ())
    assert failed(gate_bundle(release)) == {"golden inputs"}


def test_traffic_is_judged_when_it_is_given(release: Bundle, trained: Trained) -> None:
    clean = [utterance.text for utterance in trained.corpus.validation]
    assert gate_bundle(release, Given(traffic=clean)).passed
    emoji = [f"{text} 😀" for text in clean]
    assert "coverage: readable traffic words" in failed(gate_bundle(release, Given(traffic=emoji)))
    assert not gate_bundle(release, Given(traffic=[])).passed


def test_one_text_repeated_is_no_evidence_and_no_traffic(release: Bundle, trained: Trained) -> None:
    text = trained.corpus.validation[0].text
    assert "coverage: readable traffic words" in failed(gate_bundle(release, Given(traffic=[text] * 10_000)))
    body = json.loads(release.part(Role.EVAL_TEXTS).read_text("utf-8"))
    for column in ("texts", "intents", "logits", "slots"):
        body[column] = [body[column][0]] * 400
    release.part(Role.EVAL_TEXTS).write_text(json.dumps(body), "utf-8")
    assert "coverage: readable validation words" in failed(gate_bundle(release))


def test_a_release_like_the_served_one_passes_and_a_flatter_one_does_not(
    release: Bundle, tmp_path: Path, trained: Trained
) -> None:
    """Over-regularised: all logits closer together, with evidence and calibration of its own that agree with it."""
    assert gate_bundle(release, Given(previous=release)).passed
    flat = Bundle(name="flat", path=tmp_path / "flat", digest="", meta={})
    flat.path.mkdir()
    fill_release(flat.path, flattened(trained))
    assert gate_bundle(flat).passed
    assert "logit std not flatter than in release candidate" in failed(gate_bundle(flat, Given(previous=release)))


def test_a_release_of_another_task_is_no_reference(release: Bundle, tmp_path: Path) -> None:
    other = Bundle(name="other", path=tmp_path / "other", digest="", meta={})
    copytree(release.path, other.path)
    LabelSet(("a", "b", "c"), ("thing",)).save(other.path / Role.LABELS)
    assert failed(gate_bundle(release, Given(previous=other))) == {
        "spread against the served release",
        "accuracy against the served release",
    }


def flattened(trained: Trained) -> Trained:
    model = type(trained.model)(trained.model.config)
    model.load_state_dict(trained.model.state_dict())
    with torch.no_grad():
        for parameter in model.intent[-1].parameters():
            parameter.mul_(0.5)
    return replace(trained, model=model.eval())


def test_a_changed_file_of_a_published_release_fails_before_anything_is_loaded(release: Bundle, tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "releases", ManualClock(), kind="release")

    def copy(aside: Path) -> None:
        copytree(release.path, aside, dirs_exist_ok=True)

    published = store.publish("r-1", copy, meta={})
    assert gate_bundle(published.path).passed
    (published.path / Role.BASELINE).write_text("{}")
    report = gate_bundle(published.path)
    assert failed(report) == {"loads as serving loads it"}
    assert "manifest" in report.in_words()


def test_a_folder_that_is_not_there_fails_with_the_mend(tmp_path: Path) -> None:
    report = gate_bundle(tmp_path / "nowhere")
    assert "failsoft train" in report.in_words()


def test_what_is_measured_is_told(release: Bundle) -> None:
    told: list[str] = []
    gate_bundle(release, watch=told.append)
    rest = ["coverage", "spread", "records", "worth", "golden inputs", "fallback", "quantization KL"]
    assert told == ["finite weights", "size", *rest]


def test_stricter_limits_can_be_asked_for(release: Bundle) -> None:
    strict = GatePolicy(min_samples=int(np.iinfo(np.int32).max))
    assert "logit std as recorded in training" in failed(gate_bundle(release, Given(policy=strict)))
