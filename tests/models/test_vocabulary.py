"""A process without any tokenizer counts unknown words as the codec does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.models.recipe import CodecConfig
from failsoft.models.tokens import TextCodec
from failsoft.models.vocabulary import Vocabulary

TEXTS = ["Play some jazz", "play the blues", "what's the weather, \u201cthe weather\u201d in Paris", "caf\xe9"]
CODEC = TextCodec.train(TEXTS, CodecConfig(min_count=1))
ALPHABET = "ejpzPJ s'\u2019,.!\t\xa0\xe9\u0301\U0001f525\u4f60\u3002_$+<\u20ac\u2026"


@pytest.fixture
def vocabulary(tmp_path: Path) -> Vocabulary:
    CODEC.save(tmp_path / "codec.json")
    found = Vocabulary.of_codec(tmp_path / "codec.json")
    assert found is not None
    return found


def test_the_share_is_of_words_and_ignores_case(vocabulary: Vocabulary) -> None:
    assert vocabulary.oov_share("PLAY some JAZZ, xyzzy") == 0.2
    assert vocabulary.oov_share("play the blues") == 0.0
    assert vocabulary.oov_share("play\U0001f525") == 1.0


@pytest.mark.parametrize("text", ["", "  ", "\t"])
def test_a_text_without_words_has_no_share(vocabulary: Vocabulary, text: str) -> None:
    assert vocabulary.oov_share(text) is None


@given(st.lists(st.one_of(st.sampled_from(["play", "jazz", "Paris", "what's"]), st.text(ALPHABET)), max_size=8))
def test_the_share_is_that_of_the_codec(pieces: list[str]) -> None:
    text = " ".join(pieces)
    share = Vocabulary(CODEC.known_words).oov_share(text)
    assert (1.0 if share is None else share) == pytest.approx(CODEC.oov_fraction([text]))


@pytest.mark.parametrize(
    "body",
    ["", "[]", "{}", '{"tokenizer": {"model": {"type": "BPE", "vocab": {"a": 0}}}}', '{"tokenizer": {"model": 3}}'],
)
def test_a_codec_that_does_not_say_its_words_gives_no_vocabulary(tmp_path: Path, body: str) -> None:
    (tmp_path / "codec.json").write_text(body, "utf-8")
    assert Vocabulary.of_codec(tmp_path / "codec.json") is None
    assert Vocabulary.of_codec(tmp_path / "absent.json") is None


def test_it_loads_neither_torch_nor_a_tokenizer() -> None:
    code = "import sys, failsoft.models.vocabulary; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "failsoft.models.vocabulary" in loaded
    assert not {"torch", "tokenizers", "numpy"} & set(loaded)
