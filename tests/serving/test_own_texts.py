"""An own tagger of texts behind the nets: its pieces lie in the caller's own text, whatever was cleaned away."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from failsoft.artifacts.bundle import Bundle
from failsoft.serving import AnswerForm, AppSpec, ConstantRung, Rung, Tagging, Texts, publish_own
from tests.serving.own_world import OwnWorld

pytestmark = pytest.mark.anyio
LABELS = ("O", "B-genre", "I-genre")


class Genres:
    """Knows one genre of two words, and how sure it is for how many tokens."""

    def __init__(self, sure: float) -> None:
        self.sure = sure

    def predict(self, batch: Sequence[str]) -> dict[str, Any]:
        tokens = [[match.span() for match in re.finditer(r"\w+", text)] for text in batch]
        logits_BTS = np.zeros((len(batch), max(map(len, tokens)), 3))
        for row, places in enumerate(tokens):
            for place, (start, end) in enumerate(places):
                tag = {"free": 1, "jazz": 2}.get(batch[row][start:end], 0)
                logits_BTS[row, place, tag] = self.sure
        return {"logits": logits_BTS, "counts": np.array(list(map(len, tokens))), "offsets": tokens}


def load(bundle: Bundle) -> Genres:
    return Genres(float(bundle.file("sure.txt").read_text("utf-8")))


def rungs(_bundle: Bundle) -> list[Rung]:
    return [ConstantRung([], name="nothing_found")]


CONFIG = AppSpec(
    predictor="tests.serving.test_own_texts:load",
    quality=Tagging(labels=LABELS),
    rungs="tests.serving.test_own_texts:rungs",
    inputs=Texts(),
    answers=AnswerForm(field="tags", output=list[str], example=["O", "B-genre"], entities=True),
)


@pytest.fixture
def world(tmp_path: Path) -> OwnWorld:
    files = tmp_path / "files"
    files.mkdir()
    (files / "sure.txt").write_text("9.0", "utf-8")
    publish_own(CONFIG, files, healthy=["play free jazz", "play it"], home=tmp_path)
    return OwnWorld(CONFIG, tmp_path)


@pytest.mark.parametrize("text", ["play free jazz", "play\u200b free\u200b jazz", "\u202eplay  free jazz\U0001f3b5"])
async def test_a_piece_lies_in_the_callers_own_text(world: OwnWorld, text: str) -> None:
    answer = (await world.post({"text": text})).json()
    (piece,) = answer["entities"]
    assert (answer["source"], piece["slot"]) == ("primary", "genre")
    assert text[piece["start"] : piece["end"]] == piece["text"]
    assert re.fullmatch(r"free\W+jazz", piece["text"])
    assert answer["tags"][:3] == ["O", "B-genre", "I-genre"]


async def test_a_tagger_that_guesses_is_replaced_by_its_last_rung(world: OwnWorld) -> None:
    world.arm.model = Genres(0.1)
    answer = (await world.post({"texts": ["play free jazz"]})).json()["answers"][0]
    assert (answer["tags"], answer["entities"], answer["source"]) == ([], [], "nothing_found")


async def test_a_text_without_anything_to_read_never_reaches_the_tagger(world: OwnWorld) -> None:
    answer = (await world.post({"text": "\u200b"})).json()
    assert answer["source"] == "nothing_found"
    assert [str(seen.outcome) for seen in world.notes.seen] == ["bad_input"]
