from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.artifacts.bundle import Bundle, Role
from failsoft.errors import ConfigError, DamagedArtifactError
from failsoft.release.evidence import Evidence, read_evidence, spread_out

EVIDENCE = Evidence(
    texts=("play", "r\u00e9sum\u00e9 \ud83d"),
    intents=("a", "b"),
    logits_BC=np.array([[1.5, -2.0], [1e-8, 3e8]]),
    temperature=0.7,
)


def written(folder: Path, text: str) -> Bundle:
    (folder / Role.EVAL_TEXTS).write_text(text, "utf-8")
    return Bundle(name="r", path=folder, digest="", meta={})


def test_evidence_survives_the_disk_lone_surrogates_included(tmp_path: Path) -> None:
    again = read_evidence(written(tmp_path, EVIDENCE.to_json()))
    assert (again.texts, again.intents, again.temperature) == (EVIDENCE.texts, EVIDENCE.intents, 0.7)
    np.testing.assert_allclose(again.logits_BC, EVIDENCE.logits_BC, rtol=1e-5)
    np.testing.assert_allclose(again.answers.entropies_B, EVIDENCE.answers.entropies_B, atol=1e-6)


def test_logits_that_are_not_finite_stay_so_through_the_disk(tmp_path: Path) -> None:
    broken = Evidence(texts=("x",), intents=("a",), logits_BC=np.array([[np.nan, np.inf]]), temperature=1.0)
    assert np.isnan(read_evidence(written(tmp_path, broken.to_json())).logits_BC).all()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', EVIDENCE.to_json()[:-9], EVIDENCE.to_json() + "}"])
def test_what_is_no_evidence_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DamagedArtifactError, match="publish the release again"):
        read_evidence(written(tmp_path, text))


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ConfigError, match="one of each"):
        Evidence(texts=("x",), intents=("a", "b"), logits_BC=np.zeros((1, 2)), temperature=1.0)


@given(st.integers(0, 5000), st.integers(1, 2000))
def test_places_are_spread_out_in_order_and_never_repeat(count: int, at_most: int) -> None:
    places = spread_out(count, at_most)
    assert places == sorted(set(places))
    assert len(places) == min(count, at_most)
    assert all(0 <= place < count for place in places)
