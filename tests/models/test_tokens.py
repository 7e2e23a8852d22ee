"""Text to numbers: any string has its words, places and spelling, and no bad number reaches a model."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import CorpusError
from failsoft.models.recipe import CodecConfig
from failsoft.models.tokens import PAD, UNKNOWN, TextCodec, check_ids

TEXTS = ["Play some jazz", "play the blues", "what's the weather", "the weather in Paris", "play jazz in Paris"]
CODEC = TextCodec.train(TEXTS)


def test_places_point_into_the_text_as_given() -> None:
    text = "PLAY  Jazz, in\tPärís"
    encoded = CODEC.encode([text])
    assert [text[start:end] for start, end in encoded.offsets[0]] == ["PLAY", "Jazz", ",", "in", "Pärís"]


def test_case_does_not_change_a_word_but_its_spelling() -> None:
    lower, upper = CODEC.encode(["play jazz"]), CODEC.encode(["PLAY JAZZ"])
    assert lower.word_ids_BT.tolist() == upper.word_ids_BT.tolist()
    assert lower.char_ids_UK.tolist() != upper.char_ids_UK.tolist()


def test_a_glued_emoji_makes_a_known_word_unknown_and_punctuation_does_not() -> None:
    assert CODEC.encode(["play🔥 jazz"]).oov_fraction_B[0] == 0.5
    assert CODEC.encode(["what's the weather"]).oov_fraction_B[0] == 0.0


def test_a_word_seen_once_counts_as_known_though_the_model_reads_it_by_its_characters() -> None:
    encoded = CODEC.encode(["blues"])
    assert encoded.word_ids_BT[0, 0] == UNKNOWN
    assert encoded.oov_fraction_B[0] == 0.0


def test_coverage_is_of_word_types_and_ignores_case() -> None:
    assert CODEC.type_coverage(["Play PLAY play xyzzy"]) == 0.5
    assert CODEC.oov_fraction(["Play PLAY play xyzzy"]) == 0.25
    assert CODEC.type_coverage([""]) == 0.0


@pytest.mark.parametrize("text", ["", " \n", "\u200b"])
def test_a_text_without_known_words_is_one_unknown_word(text: str) -> None:
    encoded = CODEC.encode([text, "play"])
    assert encoded.mask_BT[0].tolist() == [True]
    assert encoded.word_ids_BT[0, 0] == UNKNOWN
    assert encoded.oov_fraction_B[0] == 1.0


def test_no_text_is_a_batch_of_none() -> None:
    assert CODEC.encode([]).word_ids_BT.shape[0] == 0


@given(st.lists(st.text(st.characters(), max_size=40), max_size=4))
def test_any_strings_give_valid_numbers_and_places(texts: list[str]) -> None:
    encoded = CODEC.encode(texts)
    check_ids(encoded.word_ids_BT, vocab_size=CODEC.vocab_size, max_words=512)
    assert (encoded.word_ids_BT[~encoded.mask_BT] == PAD).all()
    assert encoded.char_ids_UK.max(initial=0) < CODEC.char_vocab_size
    for text, offsets, count in zip(texts, encoded.offsets, encoded.counts_B, strict=True):
        assert len(offsets) == max(1, count)
        assert all(0 <= start <= end <= len(text) for start, end in offsets)
        assert all(left[1] <= right[0] for left, right in itertools.pairwise(offsets))


def test_lone_surrogates_are_read_as_one_unknown_sign_each() -> None:
    codec = TextCodec.train(TEXTS, CodecConfig(skip_unknown_signs=False))
    encoded = codec.encode(["play \ud83d jazz"])
    assert encoded.offsets[0] == [(0, 4), (5, 6), (7, 11)]


@pytest.mark.parametrize("sign", ["🔥", "👨\u200d👩\u200d👧", "🇫🇷", "1\ufe0f\u20e3", "\u201c", "\ufffd"])
def test_a_sign_that_training_never_saw_is_passed_over_and_counted_as_unknown(sign: str) -> None:
    encoded = CODEC.encode([f"play {sign} jazz {sign}"])
    assert encoded.offsets[0] == [(0, 4), (6 + len(sign), 10 + len(sign))]
    assert (encoded.counts_B[0], encoded.skipped_B[0], encoded.oov_fraction_B[0]) == (2, 2, 0.5)
    assert encoded.word_ids_BT.tolist() == CODEC.encode(["play jazz"]).word_ids_BT.tolist()


@pytest.mark.parametrize("word", [",", "7", "слово", "Ö", "xyzzy"])
def test_words_digits_and_plain_punctuation_are_read_though_training_never_saw_them(word: str) -> None:
    encoded = CODEC.encode([f"play {word}"])
    assert (encoded.counts_B[0], encoded.skipped_B[0]) == (2, 0)


def test_a_sign_that_training_saw_is_read() -> None:
    codec = TextCodec.train(["i ❤ jazz", "i ❤ blues"])
    assert codec.encode(["play ❤ jazz"]).skipped_B[0] == 0


def test_a_codec_written_before_signs_were_passed_over_reads_them_all(tmp_path: Path) -> None:
    CODEC.save(tmp_path / "codec.json")
    body = json.loads((tmp_path / "codec.json").read_text("utf-8"))
    del body["config"]["skip_unknown_signs"]
    (tmp_path / "codec.json").write_text(json.dumps(body), "utf-8")
    assert TextCodec.load(tmp_path / "codec.json").encode(["play 🔥 jazz"]).counts_B[0] == 3


@given(st.text(st.sampled_from([chr(code) for code in range(0x20, 0x7F)]), max_size=60))
def test_plain_text_is_split_as_the_tokenizer_splits_it(text: str) -> None:
    """The quick way and the tokenizer's own agree on every word and place."""
    ids, places = CODEC.words(text)
    encoding = CODEC.tokenizer.encode(text, add_special_tokens=False)
    assert (ids, places) == (encoding.ids, encoding.offsets)


def test_words_beyond_the_limit_are_left_out_and_counted() -> None:
    codec = TextCodec.train(TEXTS, CodecConfig(max_words=3))
    encoded = codec.encode(["play the jazz in Paris", "play"])
    assert encoded.word_ids_BT.shape == (2, 3)
    assert encoded.left_out_B.tolist() == [2, 0]
    assert encoded.counts_B.tolist() == [3, 1]


def test_the_middle_of_an_overlong_word_is_left_out_not_its_end() -> None:
    codec = TextCodec.train(["aaaa bbbb cdef"], CodecConfig(min_count=1, max_chars=6))
    long, short = codec.encode(["aabbbbbbbbcdef"]).char_ids_UK[0], codec.encode(["aacdef"]).char_ids_UK[0]
    assert long.tolist() == short.tolist()


def test_a_saved_codec_reads_as_before(tmp_path: Path) -> None:
    CODEC.save(tmp_path / "codec.json")
    loaded = TextCodec.load(tmp_path / "codec.json")
    texts = ["Play the blues in Paris🔥", "weather?"]
    assert loaded.encode(texts).word_ids_BT.tolist() == CODEC.encode(texts).word_ids_BT.tolist()
    assert loaded.encode(texts).char_ids_UK.tolist() == CODEC.encode(texts).char_ids_UK.tolist()
    assert loaded.known_words == CODEC.known_words
    assert loaded.config == CODEC.config


def test_the_same_texts_train_the_same_codec(tmp_path: Path) -> None:
    for name in ("first", "second"):
        TextCodec.train(TEXTS).save(tmp_path / name)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"format": 99}', '{"format": 1, "tokenizer": {}, "config": {}}'])
def test_a_file_that_is_no_codec_is_refused_by_name(tmp_path: Path, body: str) -> None:
    (tmp_path / "codec.json").write_text(body, "utf-8")
    with pytest.raises(CorpusError, match=r"codec\.json"):
        TextCodec.load(tmp_path / "codec.json")


def test_texts_without_words_train_no_codec() -> None:
    with pytest.raises(CorpusError, match="no word"):
        TextCodec.train(["", "  "])


@pytest.mark.parametrize("bad", [100, -1, 2**31])
def test_an_id_without_an_embedding_never_reaches_the_model(bad: int) -> None:
    ids = np.array([[1, 2], [3, bad]], dtype=np.int64)
    with pytest.raises(CorpusError, match=rf"word id {bad} of text 1, word 1, is outside 0\.\.99"):
        check_ids(ids, vocab_size=100, max_words=512)


def test_a_text_of_513_words_never_reaches_the_model() -> None:
    check_ids(np.ones((1, 512), dtype=np.int64), vocab_size=100, max_words=512)
    with pytest.raises(CorpusError, match="513 words is too long"):
        check_ids(np.ones((1, 513), dtype=np.int64), vocab_size=100, max_words=512)
