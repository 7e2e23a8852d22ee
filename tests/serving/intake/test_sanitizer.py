"""Any text goes in, readable text comes out, and every span finds its way back."""

from __future__ import annotations

import json
import sys
import unicodedata
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.models.vocabulary import Vocabulary
from failsoft.serving.intake.sanitizer import Cleaned, Cleanliness, TextPolicy, sanitize
from tests.serving.odd_text import CHANGED_BY_NFKC, TRAPS, any_text, clean_ascii

POLICIES = (
    TextPolicy(),
    TextPolicy(form="NFC"),
    TextPolicy(split_emoji=False),
    TextPolicy(max_expansion=18, max_marks=0),
)
policies = st.sampled_from(POLICIES)


def clean(text: str) -> Cleaned:
    return sanitize(text, TextPolicy())


def spans(cleaned: Cleaned) -> list[tuple[int, int]]:
    return [cleaned.to_original(index, index + 1) for index in range(len(cleaned.text))]


@given(any_text, policies)
def test_cleaning_never_raises_and_leaves_nothing_that_a_tokenizer_chokes_on(text: str, policy: TextPolicy) -> None:
    cleaned = sanitize(text, policy)
    cleaned.text.encode()
    assert not any(unicodedata.category(char) in {"Cc", "Cs"} for char in cleaned.text)


@given(any_text, policies)
def test_cleaning_twice_is_cleaning_once(text: str, policy: TextPolicy) -> None:
    once = sanitize(text, policy)
    twice = sanitize(once.text, policy)
    assert twice.text == once.text
    assert dict(twice.repairs) == {}


@pytest.mark.parametrize("policy", POLICIES)
def test_cleaning_twice_is_cleaning_once_for_each_character_that_normalisation_touches(policy: TextPolicy) -> None:
    for char in CHANGED_BY_NFKC:
        for text in (char, f"a{char}b", f"{char}\u0301\u0323", f"1{char}\u20e3"):
            once = sanitize(text, policy).text
            assert sanitize(once, policy).text == once, ascii(text)


def test_cleaning_twice_is_cleaning_once_for_any_three_traps() -> None:
    few = TRAPS[::3]
    for parts in product(few, repeat=3):
        once = clean("".join(parts)).text
        assert clean(once).text == once, ascii(parts)


@given(any_text, policies)
def test_spans_lie_within_the_original_and_never_go_back(text: str, policy: TextPolicy) -> None:
    cleaned = sanitize(text, policy)
    found = spans(cleaned)
    assert all(0 <= start <= end <= len(text) for start, end in found)
    assert all(before[0] <= after[0] and before[1] <= after[1] for before, after in pairwise(found))
    whole = cleaned.to_original(0, len(cleaned.text))
    assert not found or whole == (found[0][0], found[-1][1])


@given(any_text, st.integers(-3, 100), st.integers(-3, 100))
def test_any_span_asked_for_is_clipped_into_the_original(text: str, start: int, end: int) -> None:
    first, last = clean(text).to_original(start, end)
    assert 0 <= first <= last <= len(text)


@given(any_text)
def test_a_character_that_was_kept_points_to_itself(text: str) -> None:
    cleaned = sanitize(text, TextPolicy(fold_look_alikes=False, mend_mojibake=False))
    for index, (start, end) in enumerate(spans(cleaned)):
        if cleaned.text[index].isascii() and cleaned.text[index].isalpha() and end - start == 1:
            assert unicodedata.normalize("NFKC", text[start])[0:].find(cleaned.text[index]) >= 0


@given(clean_ascii)
def test_clean_ascii_comes_back_as_the_same_object(text: str) -> None:
    cleaned = clean(text)
    assert cleaned.text is text
    assert cleaned.repairs == {}
    assert cleaned.to_original(0, len(text)) == (0, len(text))


@given(any_text)
def test_a_verdict_of_clean_means_the_very_same_text(text: str) -> None:
    cleaned = clean(text)
    assert (cleaned.verdict is not Cleanliness.CLEAN) or cleaned.text is text
    assert (cleaned.text == text) == (not cleaned.repairs)


@pytest.mark.parametrize(
    ("text", "cleaned", "repairs"),
    [
        ("play\U0001f525\U0001f525jazz", "play \U0001f525 \U0001f525 jazz", {"emoji": 2}),
        (
            "mum\U0001f468\u200d\U0001f469\u200d\U0001f467!",
            "mum \U0001f468\u200d\U0001f469\u200d\U0001f467 !",
            {"emoji": 1},
        ),
        (
            "fly\U0001f1eb\U0001f1f7\U0001f1e9\U0001f1eanow",
            "fly \U0001f1eb\U0001f1f7 \U0001f1e9\U0001f1ea now",
            {"emoji": 2},
        ),
        ("ok\U0001f44d\U0001f3fdgo", "ok \U0001f44d\U0001f3fd go", {"emoji": 1}),
        ("at1\ufe0f\u20e32", "at 1\ufe0f\u20e3 2", {"emoji": 1}),
        ("\u2764\ufe0fyou", "\u2764\ufe0f you", {"emoji": 1}),
        (
            "go\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007fgo",
            "go \U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f go",
            {"emoji": 1},
        ),
        ("jazz \U0001f525 now", "jazz \U0001f525 now", {}),
    ],
)
def test_emoji_are_set_apart_from_words_and_kept_whole(text: str, cleaned: str, repairs: dict[str, int]) -> None:
    found = clean(text)
    assert found.text == cleaned
    assert found.repairs == repairs


@pytest.mark.parametrize(
    ("text", "cleaned", "repair"),
    [
        ("\u202eplay\u2066 jazz", "play jazz", "bidi"),
        ("pl\u200bay\ufeff", "play", "invisible"),
        ("p\u200dl\u200da\u200dy", "play", "joiners"),
        ("pl\x00ay\x1b", "play", "controls"),
        ("play\tjazz\u3000now", "play jazz now", "spaces"),
        ("\uff50\uff4c\uff41\uff59", "play", "normalised"),
        ("\U0001d429\U0001d425\U0001d41a\U0001d432", "play", "normalised"),
        ("cafe\u0301", "caf\xe9", "normalised"),
        ("hi\U000e0048\U000e0049", "hi", "invisible"),
    ],
)
def test_what_is_not_seen_goes_and_dressed_up_letters_become_plain(text: str, cleaned: str, repair: str) -> None:
    found = clean(text)
    assert (found.text, found.verdict, list(found.repairs)) == (cleaned, Cleanliness.REPAIRED, [repair])


def test_an_accent_meets_its_letter_across_something_invisible() -> None:
    assert clean("caf" + "e\u200b\u0301").text == "caf\xe9"


def test_a_joiner_between_persian_letters_stays_because_it_changes_the_word() -> None:
    text = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    assert clean(text).text is text


def test_a_lone_surrogate_from_json_becomes_one_replacement_character_and_one_count() -> None:
    """U1: ``json.loads`` accepts it, and fast tokenizers die of it."""
    cleaned = clean(json.loads('"play \\ud83d jazz"'))
    assert cleaned.text == "play \ufffd jazz"
    assert cleaned.repairs == {"surrogates": 1}
    assert cleaned.to_original(7, 11) == (7, 11)


def test_two_halves_that_belong_together_are_joined() -> None:
    cleaned = clean("go \ud83d\udd25 x")
    assert cleaned.text == "go \U0001f525 x"
    assert cleaned.to_original(3, 4) == (3, 5)


def test_spans_behind_a_character_that_grows_still_find_their_word() -> None:
    """U3: U+FDFA is 18 characters in NFKC; U+3316 is 6."""
    for policy in (TextPolicy(), TextPolicy(max_expansion=18)):
        text = "\ufdfa \u3316 jazz"
        cleaned = sanitize(text, policy)
        start = cleaned.text.index("jazz")
        assert cleaned.to_original(start, start + 4) == (4, 8)


def test_no_single_character_blows_the_text_up_beyond_the_cap() -> None:
    assert clean("\ufdfa").text == "\ufdfa"
    assert len(sanitize("\ufdfa", TextPolicy(max_expansion=18)).text) == 18
    text = "x" + "\ufdfa" * 7_999
    assert len(clean(text).text) == 8_000


def test_every_character_that_nfkc_blows_up_stays_within_the_cap() -> None:
    assert max(len(clean(char).text) for char in CHANGED_BY_NFKC) <= TextPolicy().max_expansion


def test_marks_are_not_stacked_without_end() -> None:
    cleaned = clean("z" + "\u0301\u0327" * 3_000 + "o")
    assert len(cleaned.text) == len("\u017a") + TextPolicy().max_marks + 1
    assert cleaned.to_original(len(cleaned.text) - 1, len(cleaned.text)) == (6_001, 6_002)


@pytest.mark.parametrize(
    "text",
    ["", "   ", "\u200b\u200b", "\x00" * 50, "!?!", "\U0001f525\U0001f525", "\ud83d", "\u3164", "\ufffd\ufffd", "___"],
)
def test_text_without_a_letter_or_digit_is_hopeless(text: str) -> None:
    assert clean(text).verdict is Cleanliness.HOPELESS


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("word " * 6, TextPolicy(max_words=5)),
        ("a.b.c.d", TextPolicy(max_words=6)),  # no space, and yet seven tokens
        ("a" * 11, TextPolicy(max_chars=10)),
        ("\xe9" * 11, TextPolicy(max_chars=10)),
        ("\u3316\u3316", TextPolicy(max_chars=10)),  # within the cap, but not once it is cleaned
        ("\xe9\xe9\xe9", TextPolicy(max_bytes=5)),
    ],
)
def test_text_over_a_cap_is_hopeless(text: str, policy: TextPolicy) -> None:
    assert sanitize(text, policy).verdict is Cleanliness.HOPELESS


def test_text_at_the_caps_is_not_hopeless() -> None:
    assert sanitize("\xe9\xe9 b", TextPolicy(max_chars=4, max_bytes=6, max_words=2)).verdict is Cleanliness.CLEAN


def test_text_over_the_cap_is_cut_for_the_ladder_before_any_work_is_done_on_it() -> None:
    cleaned = clean("\u200bplay " * 100_000)
    assert len(cleaned.text) <= 8_000
    assert cleaned.repairs["cut"] == 600_000 - 8_000
    assert cleaned.text.startswith("play play")


def test_words_of_other_scripts_are_readable_and_untouched() -> None:
    for text in (
        "\u043f\u0440\u0438\u0432\u0435\u0442",
        "\u4f60\u597d",
        "\uc548\ub155",
        "\u0646\u0639\u0645",
        "\u0928\u092e\u0938\u094d\u0924\u0947",
    ):
        cleaned = clean(text)
        assert (cleaned.verdict, cleaned.text is text) == (Cleanliness.CLEAN, True)


def test_no_character_outside_the_tables_merges_with_the_one_before() -> None:
    """What cuts text into clusters is computed for two planes; this looks at all of Unicode."""
    outside = (code for code in range(0x20000, sys.maxunicode + 1) if unicodedata.combining(chr(code)))
    assert list(outside) == []


def test_with_the_words_of_a_release_the_result_says_how_many_it_lacks() -> None:
    words = Vocabulary({"play", "jazz"})
    assert sanitize("play\U0001f525 some JAZZ", TextPolicy(), words).oov_share == 0.5
    assert sanitize("pl\u200bay jazz", TextPolicy(), words).oov_share == 0.0
    assert sanitize("", TextPolicy(), words).oov_share is None
    assert clean("play jazz").oov_share is None


def test_a_policy_survives_its_json() -> None:
    policy = TextPolicy(form="NFC", max_marks=2, split_emoji=False)
    assert TextPolicy.from_json(policy.to_json()) == policy


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        "null",
        '{"max_charz": 3}',
        '{"max_chars": "3"}',
        '{"max_chars": true}',
        '{"form": "NFX"}',
        '{"max_words": 0}',
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_in_words(text: str) -> None:
    with pytest.raises(ConfigError, match=r"text policy|form is|max_words is"):
        TextPolicy.from_json(text)
