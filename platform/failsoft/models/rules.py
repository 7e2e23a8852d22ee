r"""The last fallback: rules that people can read and change, with a default answer that can't fail.

A YAML file names an intent per rule and how to recognise it::

    version: 1
    default: {intent: unknown}
    rules:
      - name: weather words
        intent: get_weather
        words: {weather: 2.0, forecast: 2.0, rain: 1.0}   # or a list; each then weighs 1
        phrases: [do i need an umbrella]                   # weigh 3
        regex: '\bhow (?:cold|warm)\b'                       # weighs 3; only read in texts of up to 500 characters
        slots:
          - {slot: city, after: [in, for], until: [today, tomorrow]}
          - {slot: date, any_of: [today, tomorrow]}

The rule with the highest sum answers (the earlier one of equals) if it reaches ``min_score``; else the default does.
Words are found through one dictionary, so a thousand rules cost no more than ten.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import yaml

from failsoft.errors import ConfigError
from failsoft.models.corpus import Corpus, Span, Utterance
from failsoft.models.rules_file import MAX_REGEX_CHARS, VERSION, Rule, RuleSet, SlotRule, parse_rules

MAX_WORDS = 256
"""Words of a text that are read."""

_WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")
_PATTERN_SCORE = 3.0
_MAX_VALUE_WORDS = 6
_MIN_COUNT = 3
"""Texts that hold a word before rules are made of it."""
_PURITY = 0.9
"""Share of a word's texts in which it must be the whole value of a slot to become a slot rule."""

Place = tuple[str, int, int]
"""A word in lower case, and where it starts and ends in the text."""


class RuleAnswer(NamedTuple):
    """What the rules say."""

    intent: str
    spans: tuple[Span, ...]
    rule: str
    """Name of the rule that answered; ``default`` if none did."""
    matched: bool
    """False for the default answer."""


class RulesEngine:
    """A validated rule set, indexed by words."""

    def __init__(self, rule_set: RuleSet) -> None:
        self.rule_set = rule_set
        self._by_word: dict[str, list[tuple[int, float]]] = {}
        self._by_phrase_start: dict[str, list[tuple[tuple[str, ...], int]]] = {}
        for number, rule in enumerate(rule_set.rules):
            for word, weight in rule.words.items():
                self._by_word.setdefault(word.lower(), []).append((number, weight))
            for phrase in rule.phrases:
                tokens = tuple(word for word, _, _ in words_of(phrase))
                if tokens:
                    self._by_phrase_start.setdefault(tokens[0], []).append((tokens, number))
        self._with_regex = [(number, rule.regex) for number, rule in enumerate(rule_set.rules) if rule.regex]

    @classmethod
    def parse(cls, text: str, *, source: str = "rules") -> RulesEngine:
        """An engine for rules given as YAML.

        Raises:
            ConfigError: something in it is not a rule; the message says where and what would be right.
        """
        return cls(parse_rules(text, source=source))

    @classmethod
    def load(cls, path: Path) -> RulesEngine:
        """An engine for the rules in a file.

        Raises:
            ConfigError: the file is absent, or something in it is not a rule.
        """
        try:
            return cls.parse(path.read_text("utf-8"), source=str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} cannot be read as rules: {error}") from error

    @classmethod
    def default(cls) -> RulesEngine:
        """The rules that come with the package; they fit the embedded corpus."""
        text = files("failsoft.models").joinpath("default_rules.yaml").read_text("utf-8")
        return cls.parse(text, source="default_rules.yaml")

    def answer(self, text: str) -> RuleAnswer:
        """Answer any string; never raises, and never says nothing."""
        words = words_of(text)
        scores = self._scores(text, words)
        best = max(scores, key=lambda number: (scores[number], -number), default=None)
        if best is None or not scores[best] >= self.rule_set.min_score:
            return RuleAnswer(self.rule_set.default_intent, (), "default", matched=False)
        rule = self.rule_set.rules[best]
        return RuleAnswer(rule.intent, _slots(rule, text, words), rule.name, matched=True)

    def _scores(self, text: str, words: Sequence[Place]) -> dict[int, float]:
        scores: dict[int, float] = {}
        for word in {word for word, _, _ in words}:
            for number, weight in self._by_word.get(word, ()):
                scores[number] = scores.get(number, 0.0) + weight
        for number in self._said_phrases([word for word, _, _ in words]):
            scores[number] = scores.get(number, 0.0) + _PATTERN_SCORE
        if len(text) <= MAX_REGEX_CHARS:
            for number, regex in self._with_regex:
                if regex.search(text):
                    scores[number] = scores.get(number, 0.0) + _PATTERN_SCORE
        return scores

    def _said_phrases(self, words: list[str]) -> set[int]:
        return {
            number
            for place, word in enumerate(words)
            for tokens, number in self._by_phrase_start.get(word, ())
            if tuple(words[place : place + len(tokens)]) == tokens
        }


def words_of(text: str) -> list[Place]:
    """The first words of a text, with their places."""
    found: list[Place] = []
    for match in _WORD.finditer(text):
        if len(found) == MAX_WORDS:
            break
        found.append((match.group().lower(), match.start(), match.end()))
    return found


def rules_from_corpus(corpus: Corpus, *, words_per_intent: int = 25, words_per_slot: int = 40) -> str:
    """A rules file (YAML) for a corpus: the words that speak most clearly for each intent, and for each slot's value.

    A word's weight is how much likelier it is in this intent than elsewhere (log odds, one count added to each side);
    its worth for the choice is that times how many of the intent's texts hold it.
    """
    samples: dict[str, list[Utterance]] = {}
    for sample in corpus.train:
        samples.setdefault(sample.intent, []).append(sample)
    holds = {intent: Counter(word for u in said for word in _plain_words(u.text)) for intent, said in samples.items()}
    overall = sum(holds.values(), Counter())
    rules = []
    for intent, said in sorted(samples.items()):
        rest = len(corpus.train) - len(said)
        odds = {
            word: math.log((count + 1) / (len(said) + 2)) - math.log((overall[word] - count + 1) / (rest + 2))
            for word, count in holds[intent].items()
            if count >= _MIN_COUNT
        }
        ranked = sorted(odds, key=lambda word: (-odds[word] * holds[intent][word], word))[:words_per_intent]
        words = {word: round(odds[word], 2) for word in ranked if odds[word] >= 0.5}
        if words:
            slots = _slot_words(said, holds[intent], words_per_slot)
            rules.append({"name": f"words of {intent}", "intent": intent, "words": words, "slots": slots})
    body = {"version": VERSION, "default": {"intent": "unknown"}, "min_score": 1.5, "rules": rules}
    return str(yaml.safe_dump(body, sort_keys=False, allow_unicode=True))


def _plain_words(text: str) -> set[str]:
    return {word for word, _, _ in words_of(text) if word[0].isalnum()}


def _slot_words(samples: Sequence[Utterance], holds: Counter[str], limit: int) -> list[dict[str, object]]:
    """Words that by themselves are a slot's value nearly every time that a text of the intent holds them."""
    values: dict[str, Counter[str]] = {}
    for sample in samples:
        for start, end, slot in sample.spans:
            values.setdefault(slot, Counter())[sample.text[start:end].lower()] += 1
    found = {
        slot: [
            word
            for word, count in counts.most_common()
            if count >= max(_MIN_COUNT, _PURITY * holds[word]) and _plain_words(word) == {word}
        ]
        for slot, counts in sorted(values.items())
    }
    return [{"slot": slot, "any_of": words[:limit]} for slot, words in found.items() if words]


def _slots(rule: Rule, text: str, words: Sequence[Place]) -> tuple[Span, ...]:
    """The slots of a rule that are found, without overlaps: the rule's earlier slots come first."""
    spans: list[Span] = []
    for slot in rule.slots:
        span = _slot(slot, text, words)
        if span is not None and all(span.end <= other.start or span.start >= other.end for other in spans):
            spans.append(span)
    return tuple(sorted(spans))


def _slot(slot: SlotRule, text: str, words: Sequence[Place]) -> Span | None:
    if slot.regex is not None and len(text) <= MAX_REGEX_CHARS and (match := slot.regex.search(text)):
        group = 1 if slot.regex.groups else 0
        return Span(match.start(group), match.end(group), slot.slot) if match.end(group) > match.start(group) else None
    for place, (word, start, end) in enumerate(words):
        if word in slot.any_of:
            return Span(start, end, slot.slot)
        if word in slot.after and (value := _value(slot, words[place + 1 :])):
            return Span(value[0][1], value[-1][2], slot.slot)
    return None


def _value(slot: SlotRule, words: Sequence[Place]) -> list[Place]:
    """The words up to the first that ends the value: a stop word, or a sign."""
    value: list[Place] = []
    for word in words[:_MAX_VALUE_WORDS]:
        if word[0] in slot.until or not word[0][0].isalnum():
            break
        value.append(word)
    return value
