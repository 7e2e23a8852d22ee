"""Train, validation and test never share a text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from failsoft.errors import CorpusError
from failsoft.models.corpus import Repairs, Utterance
from failsoft.models.splits import assemble, held_out, normalised


def said(*texts: str, split: str) -> list[Utterance]:
    return [Utterance(id=f"{split}#{n}", text=text, intent="go") for n, text in enumerate(texts)]


def test_a_double_leaves_train_and_stays_where_it_judges() -> None:
    corpus = assemble(
        "toy",
        (
            said("Play jazz!", "stop", "go on", split="train"),
            said("play  JAZZ", "walk", "run", split="validation"),
            said("Stop.", "run", split="test"),
        ),
        Repairs(),
    )
    assert [sample.text for sample in corpus.train] == ["go on"]
    assert [sample.text for sample in corpus.validation] == ["play  JAZZ", "walk"]
    assert [sample.text for sample in corpus.test] == ["Stop.", "run"]
    assert corpus.report.counts == {
        "removed from train, also in test": 1,
        "removed from train, also in validation": 1,
        "removed from validation, also in test": 1,
    }
    assert "train#1" in str(corpus.report)


def test_an_empty_split_is_refused_by_name() -> None:
    with pytest.raises(CorpusError, match="train split of corpus toy is empty"):
        assemble("toy", (said("a", split="train"), said("b", split="v"), said("a", split="t")), Repairs())


def test_an_intent_that_only_the_judging_splits_hold_is_refused_and_one_that_none_tests_is_counted() -> None:
    train, validation, test = said("a", split="train"), said("b", split="v"), said("c", split="t")
    odd = replace(test[0], intent="fly")
    with pytest.raises(CorpusError, match="t#0 has intent 'fly', which no training sample has"):
        assemble("toy", (train, validation, [odd]), Repairs())
    corpus = assemble("toy", ([*train, replace(odd, text="d")], validation, test), Repairs())
    assert corpus.report.counts == {"intents without a test sample": 1}


def test_texts_of_signs_alone_are_still_told_apart() -> None:
    assert normalised("🔥") != normalised("🎵")
    assert normalised("") == ""


def test_the_held_out_share_is_the_same_for_equal_texts_and_about_as_large_as_asked() -> None:
    assert held_out("Play Jazz", fraction=0.5) == held_out("play jazz!", fraction=0.5)
    share = sum(held_out(f"text {n}", fraction=0.1) for n in range(5000)) / 5000
    assert 0.08 < share < 0.12


def test_a_report_keeps_the_first_cases_and_counts_all() -> None:
    repairs = Repairs(notes_per_kind=2)
    for n in range(5):
        repairs.add("odd", f"case {n}")
    report = repairs.report()
    assert report.counts == {"odd": 5}
    assert report.notes == ("odd: case 0", "odd: case 1")
    assert str(Repairs().report()) == "nothing to repair"
    assert report.as_dict() == {"counts": {"odd": 5}, "notes": ["odd: case 0", "odd: case 1"]}
