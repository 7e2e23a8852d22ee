"""Mojibake, look-alikes and terminal commands are repaired, and text that only resembles them is left alone."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.serving.intake import cleaning, mojibake
from failsoft.serving.intake.characters import IN_JOINING_SCRIPT, KIND, Kind, plain_forms
from failsoft.serving.intake.offsets import Reworked
from failsoft.serving.intake.sanitizer import Cleaned, TextPolicy, sanitize
from tests.serving.odd_text import any_text


def clean(text: str) -> Cleaned:
    return sanitize(text, TextPolicy())


@pytest.mark.parametrize(
    ("garbled", "meant"),
    [
        ("play\xc2\xa0jazz", "play jazz"),
        ("caf\xc3\xa9 music", "caf\xe9 music"),
        ("don\xe2\u20ac\u2122t stop", "don't stop"),
        ("play\xf0\u0178\u201d\xa5 jazz", "play \U0001f525 jazz"),
        ("\xef\xbb\xbfplay", "play"),
        ("\xd0\xbf\xd1\u20ac\xd0\xb8\xd0\xb2\xd0\xb5\xd1\u201a", "\u043f\u0440\u0438\u0432\u0435\u0442"),
        ("caf\xc3\u0192\xc2\xa9", "caf\xe9"),
        ("p\xe2\u20ac\u2039l\xe2\u20ac\u2039ay", "play"),
    ],
)
def test_utf8_that_was_read_as_latin1_is_read_again(garbled: str, meant: str) -> None:
    cleaned = clean(garbled)
    assert cleaned.text == meant
    assert cleaned.repairs["mojibake"] >= 1
    assert sanitize(garbled, TextPolicy(mend_mojibake=False)).text != meant


@pytest.mark.parametrize(
    "text",
    [
        "\xabCAF\xc9\xbb",
        "\u201ctr\xe8s all\xe9\u2026\u201d",
        "\xabcaf\xe9\xbb\u201d",
        "VOIL\xc0 \xab ici \xbb",
        "\xabMA\xc7\xc3\xbb",
        "amanh\xe3\xa0\u2013 talvez",
        "a \xabma\xe7\xe3\xbb\xa0\xe9 verde",
        "MA\xc7\xc3\xa0VERDE",
        "t\xf4i \u0111\xe3\xa0\u2026",
        "na\xef\xa0\xbb",
        "\u201e\xfea\xf0\u201c\u2026\u201d",
    ],
)
def test_words_that_only_look_like_misread_utf8_are_left_alone(text: str) -> None:
    assert "mojibake" not in clean(text).repairs


def test_text_made_to_be_misread_again_and_again_is_left_alone_and_costs_no_rounds() -> None:
    """Each time that this is mended once, it can be mended once more: that took seconds, and as many copies of it."""
    crafted = "\xc3" + "\u0192" * 7_999
    cleaned = clean(crafted)
    assert cleaned.text == crafted
    assert cleaned.offsets is None
    settled = clean("caf\xc3\u0192\u0192\u0192\u0192\u0192\u0192\xa9")
    assert (settled.text, settled.repairs["mojibake"]) == ("caf\xe9", 7)


@pytest.mark.parametrize("odd", ["a" + "\u0301\u0316" * 2_000, "\xd0\xbf\xd1\u20ac" * 1_000])
def test_long_oddities_are_not_remembered_so_that_memory_stays_what_it_is(odd: str) -> None:
    caches = (cleaning._normal_cluster, mojibake._meant)
    before = [cache.cache_info().currsize for cache in caches]
    assert clean(odd).repairs
    assert [cache.cache_info().currsize for cache in caches] == before


@pytest.mark.parametrize(
    ("dressed", "meant"),
    [
        ("\u0440l\u0430\u0443 j\u0430zz", "play jazz"),
        ("\u1d18\u029f\u1d00\u028f jazz", "play jazz"),
        ("\u03a1\u039f\u03a1 mus\u03b9c", "POP music"),
        ("play \u03a1\u0430b", "play Pab"),  # the Greek letter touches a Latin one only when the Cyrillic one is that
        ("play \u0441\u0430f\u0435\u0301", "play caf\xe9"),
    ],
)
def test_letters_that_stand_in_for_latin_ones_become_those(dressed: str, meant: str) -> None:
    cleaned = clean(dressed)
    assert cleaned.text == meant
    assert cleaned.repairs["look_alikes"] >= 1
    assert sanitize(dressed, TextPolicy(fold_look_alikes=False)).text != meant


@pytest.mark.parametrize(
    "text",
    [
        "\u043f\u043e\u0441\u0442\u0430\u0432\u044c iPhone \u0440\u043e\u043a",  # Russian with a Latin name
        "\u0440\u043e\u043a",  # nothing Latin in it
        "\u041c\u041e\u0421\u041a\u0412\u0410 Hilton",  # all six have twins, none touches a Latin letter
        "\u0445\u043e\u0440 ABBA",
        "\u039a\u0399\u039d\u039f XBOX",
        "play \u03bc\u03bf\u03c5\u03c3\u03b9\u03ba\u03ae",
        "the word \u026an\u02c8\u0283\u028a\u0259",
    ],
)
def test_a_text_in_an_alphabet_of_its_own_beside_latin_names_is_left_alone(text: str) -> None:
    assert clean(text).text == text


def test_a_joiner_that_sorted_marks_have_left_alone_goes_at_once() -> None:
    once = clean("\xaf\u064b\u200d\u0958")
    assert clean(once.text).repairs == {}
    assert "\u200d" not in once.text


def test_commands_to_a_terminal_go_whole() -> None:
    cleaned = clean("\x1b[31mplay\x1b[0m jazz")
    assert (cleaned.text, dict(cleaned.repairs)) == ("play jazz", {"controls": 2})
    assert cleaned.to_original(0, 4) == (5, 9)


def test_a_policy_written_before_a_repair_existed_means_without_it() -> None:
    old = TextPolicy.from_json('{"form": "NFKC", "max_words": 512}')
    assert not old.fold_look_alikes
    assert not old.mend_mojibake


@pytest.mark.parametrize(
    "text", ["\u261d\u20e3\U0001f468z", "1\ufe0f\u20e3\U0001f525a\u20e3\U0001f525", "\U0001f525\u20e3"]
)
def test_a_keycap_ring_without_a_digit_is_no_keycap(text: str) -> None:
    once = clean(text).text
    assert clean(once).repairs == {}
    assert clean(once).text == once


@given(any_text)
def test_the_way_back_that_is_laid_out_late_is_that_of_the_text(text: str) -> None:
    """Emoji are set apart in one go, and the edits that this was are listed only when somebody asks."""
    cleaned = clean(text)
    if cleaned.offsets is not None:
        for change in cleaned.offsets.rounds:
            if isinstance(change, Reworked):
                assert change.made == change.text


CSI = "\x9b"
"""Begins a terminal command, which goes with what follows."""
UNSEEN_KINDS = frozenset(Kind) - {Kind.EMOJI, Kind.ENCLOSER}
UNSEEN = {
    char: " " if kind is Kind.SPACE else ""
    for char, kind in KIND.items()
    if kind in UNSEEN_KINDS and char != CSI and char not in IN_JOINING_SCRIPT
}
PLAIN_FORMS = plain_forms("NFKC")


@given(st.text(st.one_of(st.sampled_from("abc 12"), st.sampled_from(sorted(UNSEEN))), max_size=60))
def test_the_unseen_is_taken_out_as_by_looking_at_one_character_after_the_other(text: str) -> None:
    """Few different ones go by replacing, many by a table, and both as a plain loop would do it."""
    cleaned = clean(text)
    assert cleaned.text == "".join(UNSEEN.get(char, char) for char in text)
    found = [KIND[char] for char in text if char in UNSEEN]
    assert cleaned.repairs == Counter(map(str, found))


@given(st.text(st.one_of(st.sampled_from("abc 12"), st.sampled_from(sorted(PLAIN_FORMS))), max_size=60))
def test_dressed_up_letters_become_plain_as_by_looking_at_one_after_the_other(text: str) -> None:
    cleaned = sanitize(text, TextPolicy(fold_look_alikes=False, mend_mojibake=False))
    assert cleaned.text == "".join(PLAIN_FORMS.get(char, char) for char in text)
    assert cleaned.repairs.get("normalised", 0) == sum(char in PLAIN_FORMS for char in text)
    assert [cleaned.to_original(at, at + 1) for at in range(len(text))] == [(at, at + 1) for at in range(len(text))]


@pytest.mark.parametrize(
    ("curly", "plain"),
    [
        ("play \u201cThriller\u201d now", "play  Thriller  now"),
        ("\xabplay\xbb jazz", " play  jazz"),
        ("don\u2019t stop", "don't stop"),
        ("\xe2\x80\x9cplay\xe2\x80\x9d", " play "),
    ],
)
def test_quotation_marks_go_and_apostrophes_become_plain(curly: str, plain: str) -> None:
    cleaned = sanitize(curly, TextPolicy())
    assert cleaned.text == plain
    assert sanitize(plain, TextPolicy()).text == plain
    at = plain.index("play") if "play" in plain else 0
    start, end = cleaned.to_original(at, at + 4)
    assert "play" not in plain or "play" in curly[start:end]


def test_a_phones_quotation_marks_are_no_sign_of_a_broken_sender() -> None:
    assert sanitize("play \u201cThriller\u201d", TextPolicy(plain_quotes=False)).text == "play \u201cThriller\u201d"
    phone = sanitize("play \u201cThriller\u201d", TextPolicy())
    assert (dict(phone.repairs), phone.is_malformed) == ({"quotes": 2}, False)
    broken = sanitize("play \u201cThri\u200bller\u201d", TextPolicy())
    assert broken.is_malformed
    assert not sanitize("play Thriller", TextPolicy()).is_malformed
