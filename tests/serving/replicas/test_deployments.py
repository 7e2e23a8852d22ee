"""A release must answer its golden inputs as it did when it was made, or it does not load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from failsoft.artifacts.bundle import Bundle, Golden, write_golden
from failsoft.errors import IncompatibleArtifactError
from failsoft.models.scores import ScoreBatch
from failsoft.serving.quality.intents import IntentsAndEntities
from failsoft.serving.replicas.golden import check_golden

FITTED = {"temperature": 1.0}


class Model:
    """Answers every text with its second intent."""

    def predict(self, texts: Sequence[str]) -> ScoreBatch:
        count = len(texts)
        return ScoreBatch(
            intents=("play_music", "get_weather"),
            intent_logits_BC=np.tile(np.asarray([0.0, 5.0], dtype=np.float32), (count, 1)),
            spans=[[] for _ in texts],
            counts_B=np.ones(count, dtype=np.int32),
            oov_fraction_B=np.zeros(count, dtype=np.float32),
            left_out_B=np.zeros(count, dtype=np.int32),
        )

    def break_weights(self) -> None:
        raise NotImplementedError


def bundle(folder: Path, *intents: str) -> Bundle:
    write_golden(folder, tuple(Golden(text="sunny?", intent=intent, confidence=0.9) for intent in intents))
    return Bundle(name="r1", path=folder, digest="", meta={})


def test_a_release_that_answers_as_it_did_when_it_was_made_loads(tmp_path: Path) -> None:
    check_golden(Model(), bundle(tmp_path, "get_weather", "get_weather"), IntentsAndEntities(), FITTED)


def test_a_release_that_answers_otherwise_here_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IncompatibleArtifactError, match=r"r1 answers 'sunny\?' with get_weather, but play_music"):
        check_golden(Model(), bundle(tmp_path, "get_weather", "play_music"), IntentsAndEntities(), FITTED)


def test_golden_inputs_are_asked_for_in_small_pieces_with_a_breath_between(tmp_path: Path) -> None:
    asked = list[int]()

    class Counting(Model):
        def predict(self, texts: Sequence[str]) -> ScoreBatch:
            asked.append(len(texts))
            return super().predict(texts)

    breaths = list[int]()
    golden = bundle(tmp_path, *["get_weather"] * 9)
    check_golden(Counting(), golden, IntentsAndEntities(), FITTED, beat=lambda: breaths.append(1))
    assert (sum(asked), max(asked), len(breaths)) == (9, 4, 3)
