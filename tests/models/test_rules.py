"""Rules: read strictly, answer always."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.models.corpus import Span, Utterance
from failsoft.models.rules import RulesEngine, rules_from_corpus
from failsoft.models.scoring import Prediction, evaluate
from tests.models.toys import toy_corpus

RULES = r"""
version: 1
default: {intent: unknown}
rules:
  - name: sky
    intent: weather
    words: {weather: 2.0, cold: 1.0}
    phrases: [do i need a coat]
    slots:
      - {slot: city, after: [in], until: [today]}
      - {slot: date, any_of: [today, tomorrow]}
  - name: sound
    intent: play
    words: [play, cold]
    regex: '\bput (?:it|that) on\b'
    slots:
      - {slot: rating, regex: '(\d) stars'}
"""
ENGINE = RulesEngine.parse(RULES)
DEFAULT = RulesEngine.default()


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("The WEATHER please", "sky"),
        ("do I need a coat?", "sky"),
        ("put that on", "sound"),
        ("play something cold", "sound"),
        ("cold", "sky"),
        ("hello", "default"),
        ("", "default"),
        ("weathers", "default"),
    ],
)
def test_the_rule_with_the_most_signs_answers_and_the_earlier_of_equals(text: str, rule: str) -> None:
    assert ENGINE.answer(text).rule == rule


def test_the_default_says_that_nothing_matched() -> None:
    answer = ENGINE.answer("hello")
    assert (answer.intent, answer.spans, answer.matched) == ("unknown", (), False)


def test_slots_are_found_in_the_text_as_given() -> None:
    text = "Weather in New York TODAY"
    assert ENGINE.answer(text).spans == (Span(11, 19, "city"), Span(20, 25, "date"))
    assert ENGINE.answer("play that with 5 stars").spans == (Span(15, 16, "rating"),)


def test_a_value_ends_at_a_sign() -> None:
    assert ENGINE.answer("weather in Rome, please").spans == (Span(11, 15, "city"),)


def test_a_pattern_is_not_tried_on_a_long_text() -> None:
    assert ENGINE.answer("put that on " + "x" * 600).rule == "default"


@given(st.text(st.characters(), max_size=300))
def test_any_string_gets_an_answer_with_spans_inside_it(text: str) -> None:
    for engine in (ENGINE, DEFAULT):
        answer = engine.answer(text)
        assert answer.intent
        assert all(0 <= span.start < span.end <= len(text) for span in answer.spans)


def test_a_huge_text_is_answered_too() -> None:
    assert ENGINE.answer("weather " * 100_000).intent == "weather"


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        ("version: 2\ndefault: {intent: x}", "version is 2"),
        ("version: 1\nrules: []", "has no default"),
        ("version: 1\ndefault: {}", "intent is None"),
        ("version: 1\ndefault: {intent: x}\nruels: []", r"unknown keys \['ruels'\]"),
        ("version: 1\ndefault: {intent: x}\nmin_score: 0", "min_score is 0"),
        ("version: 1\ndefault: {intent: x}\nrules: {a: b}", "give a list of rules"),
        ("version: 1\ndefault: {intent: x}\nrules: [{intent: y}]", "can never answer"),
        ("version: 1\ndefault: {intent: x}\nrules: [{intent: y, words: [a b]}]", "put them under phrases"),
        ("version: 1\ndefault: {intent: x}\nrules: [{intent: y, words: {a: -1}}]", "weight of 'a' is -1"),
        ("version: 1\ndefault: {intent: x}\nrules: [{intent: y, words: [on]}]", "in quotes"),
        ("version: 1\ndefault: {intent: x}\nrules: [{intent: y, regex: '('}]", "is not a pattern"),
        ("version: 1\ndefault: {intent: x}\nrules: [{intent: y, regex: '(a+)+b'}]", "can take for ever"),
        ("version: 1\ndefault: {intent: x}\nrules: [{intent: y, regex: '((\\w+)\\s*)+x'}]", "can take for ever"),
        ("version: 1\ndefault: {intent: x}\nrules: [{intent: y, regex: '.*a.*b'}]", "can take for ever"),
        ("version: 1\ndefault: {intent: x}\nrules: [{intent: y, regex: '(a|aa)+$'}]", "can take for ever"),
        ("version: 1\ndefault: {intent: x}\nrules: [{intent: y, regex: 'a{9999999999999}'}]", "is not a pattern"),
        (f"version: 1\ndefault: {{intent: x}}\nrules: [{{intent: y, regex: '{'(' * 600}a{')' * 600}'}}]", "pattern"),
        ("version: 1\ndefault: {intent: x}\nrules: [{intent: y, words: [a], slots: [{slot: s}]}]", "never be found"),
        ("version: 1\ndefault: {intent: x}\nrules: [{intent: y, words: [a], slots: 3}]", "give a list"),
        ("version: 1\ndefault: {intent: x}\nrules: [3]", "give a mapping"),
        ("{", "is not YAML"),
        ("", "give a mapping"),
        ("!!python/object/apply:os.system ['true']", "is not YAML"),
    ],
)
def test_what_is_no_rule_is_refused_with_the_place_and_the_mend(broken: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        RulesEngine.parse(broken)


def test_a_file_is_named_in_its_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rules\.yaml cannot be read"):
        RulesEngine.load(tmp_path / "rules.yaml")
    (tmp_path / "rules.yaml").write_text("version: 1", "utf-8")
    with pytest.raises(ConfigError, match=r"rules\.yaml has no default"):
        RulesEngine.load(tmp_path / "rules.yaml")


def accuracy(engine: RulesEngine) -> float:
    corpus = toy_corpus()
    answers = [engine.answer(sample.text) for sample in corpus.test]
    return evaluate(corpus.test, [Prediction(intent=answer.intent) for answer in answers]).intent_accuracy


def test_the_rules_that_come_with_the_package_fit_the_embedded_corpus() -> None:
    assert accuracy(DEFAULT) >= 0.8
    assert {rule.intent for rule in DEFAULT.rule_set.rules} == set(toy_corpus().intents)


def test_any_corpus_gets_rules_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(rules_from_corpus(toy_corpus()), "utf-8")
    engine = RulesEngine.load(tmp_path / "rules.yaml")
    assert accuracy(engine) >= 0.8
    assert Span(16, 22, "cuisine") in engine.answer("where can i eat KOREAN").spans


def test_intents_that_no_word_tells_apart_get_no_rule_and_break_none() -> None:
    said = [Utterance(id=f"{n}", text="the same words", intent=intent) for n in range(5) for intent in ("a", "b")]
    corpus = dataclasses.replace(toy_corpus(), train=tuple(said))
    assert RulesEngine.parse(rules_from_corpus(corpus)).answer("the same words").intent == "unknown"
