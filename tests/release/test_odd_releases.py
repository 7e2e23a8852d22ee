"""Releases whose parts are whole, and not those of this model, or that say something odd; the gates find them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from failsoft.artifacts.bundle import Bundle, Role
from failsoft.errors import ConfigError, ServingError
from failsoft.models.labels import LabelSet
from failsoft.release.given import Given
from failsoft.release.inspect import gate_bundle
from failsoft.release.policy import GatePolicy
from failsoft.release.replica import ReplicaReport
from failsoft.release.replica_gates import LOADS
from failsoft.release.waivers import Waiver
from tests.release.conftest import Trained, fill_release
from tests.release.test_inspect import failed


def finding_slots(trained: Trained) -> Trained:
    """The same model, which takes every word for the beginning of a thing."""
    model = type(trained.model)(trained.model.config)
    model.load_state_dict(trained.model.state_dict())
    with torch.no_grad():
        *_, (_, bias) = model.slots.named_parameters()
        bias[1] += 100.0
    return replace(trained, model=model.eval())


def test_slots_that_are_called_otherwise_than_in_training_are_found(tmp_path: Path, trained: Trained) -> None:
    fill_release(tmp_path, finding_slots(trained))
    assert gate_bundle(tmp_path).passed
    LabelSet(trained.labels.intents, ("place",)).save(tmp_path / Role.LABELS)
    assert failed(gate_bundle(tmp_path)) == {"slots as recorded in training"}


@pytest.mark.parametrize(
    "spoiled", [{"weak_fraction": 0.9}, {"label_mix": {"x": 1.0}}, {"oov_std": -5.0}, {"samples": 9}]
)
def test_a_baseline_that_is_not_this_model_s_is_found(release: Bundle, spoiled: dict[str, Any]) -> None:
    body = json.loads(release.part(Role.BASELINE).read_text("utf-8"))
    release.part(Role.BASELINE).write_text(json.dumps(body | spoiled), "utf-8")
    assert failed(gate_bundle(release)) == {"baseline as measured again"}


@pytest.mark.parametrize(
    ("instead", "failing"),
    [
        (("one", "two", "three"), {"fallback of the same task", "fallback right"}),
        (("get_weather", "play_music", "book_table"), {"fallback right"}),
    ],
)
def test_rules_of_another_task_or_that_mix_up_the_intents_are_found(
    release: Bundle, instead: tuple[str, str, str], failing: set[str]
) -> None:
    rules = release.part(Role.RULES).read_text("utf-8")
    for intent, other in zip(("book_table", "get_weather", "play_music"), instead, strict=True):
        rules = rules.replace(f"  intent: {intent}", f"  intent: <{other}>")
    release.part(Role.RULES).write_text(rules.replace("<", "").replace(">", ""), "utf-8")
    assert failed(gate_bundle(release)) == failing


@pytest.mark.parametrize(
    ("role", "change"),
    [
        (Role.GOLDEN, lambda body: body["golden"][0].update(text=True)),
        (Role.NETWORK, lambda body: body["shape"].update(char_filters="x")),
        (Role.EVAL_TEXTS, lambda body: body.update(logits=[[*row, 99.0] for row in body["logits"]])),
        (Role.EVAL_TEXTS, lambda body: body.update(texts=[5] * 400)),
    ],
)
def test_a_part_that_holds_something_odd_fails_in_words_and_raises_nothing(
    release: Bundle, role: Role, change: Callable[[Any], object]
) -> None:
    body = json.loads(release.part(role).read_text("utf-8"))
    change(body)
    release.part(role).write_text(json.dumps(body), "utf-8")
    assert "could not be measured" in gate_bundle(release).in_words()


def test_no_waiver_passes_a_release_whose_replica_dies(release: Bundle) -> None:
    def dies(folder: Path, texts: Sequence[str]) -> ReplicaReport:
        raise ServingError(f"a replica of {folder} ended with status -9 before {len(texts)} answers")

    waivers = (Waiver(gate="replica", reason="it is flaky on our CI machines"),)
    assert failed(gate_bundle(release, Given(probe=dies, waivers=waivers))) == {LOADS}
    with pytest.raises(ConfigError, match="can't be waived"):
        Waiver(gate=LOADS, reason="it is flaky on our CI machines")


def test_that_no_narrow_variant_was_judged_is_said(release: Bundle) -> None:
    assert any("widths" in note for note in gate_bundle(release, Given(policy=GatePolicy(widths=()))).notes)
