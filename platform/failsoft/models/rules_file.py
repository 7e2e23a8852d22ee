"""Reads and validates a rules file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from failsoft.errors import ConfigError
from failsoft.models.patterns import may_take_for_ever

MAX_REGEX_CHARS = 500
"""Longer texts are not shown to regular expressions: what one costs grows with a power of it."""
VERSION = 1
_TOP_KEYS = {"version", "default", "min_score", "rules"}
_RULE_KEYS = {"name", "intent", "words", "phrases", "regex", "slots"}
_SLOT_KEYS = {"slot", "after", "until", "any_of", "regex"}
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""In C, where it is there, a sixteenth of the time: a gateway that read 7 kB of rules beside live answers held Python's
lock for 15 ms and more."""


@dataclass(frozen=True, kw_only=True)
class SlotRule:
    """How to find a slot's value: words after a marker, one of some words, or a pattern (its first group)."""

    slot: str
    after: frozenset[str] = frozenset()
    until: frozenset[str] = frozenset()
    any_of: frozenset[str] = frozenset()
    regex: re.Pattern[str] | None = None


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How to recognise an intent."""

    name: str
    intent: str
    words: Mapping[str, float]
    phrases: tuple[str, ...] = ()
    regex: re.Pattern[str] | None = None
    slots: tuple[SlotRule, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RuleSet:
    """All rules of a file."""

    default_intent: str
    min_score: float
    rules: tuple[Rule, ...]


def parse_rules(text: str, *, source: str) -> RuleSet:
    """Rules from YAML.

    Raises:
        ConfigError: something in it is not a rule; the message says where and what would be right.
    """
    try:
        body = yaml.load(text, _LOADER)  # noqa: S506 -- both are the safe one
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a number of 5,000 digits is a bare ValueError
        raise ConfigError(f"{source} is not YAML: {error}") from error
    top = _mapping(body, _TOP_KEYS, source)
    if top.get("version") != VERSION:
        raise ConfigError(f"{source}: version is {top.get('version')!r}; this code reads version {VERSION}")
    if "default" not in top:
        raise ConfigError(f"{source} has no default; add 'default: {{intent: unknown}}', the answer that can't fail")
    default = _mapping(top["default"], {"intent"}, f"{source}: default")
    min_score = top.get("min_score", 1.0)
    if not isinstance(min_score, (int, float)) or not 0.0 < min_score < math.inf:
        raise ConfigError(f"{source}: min_score is {min_score!r}; use a positive number")
    rules = top.get("rules", [])
    if not isinstance(rules, list):
        raise ConfigError(f"{source}: rules is {rules!r}; give a list of rules")
    return RuleSet(
        default_intent=_text(default, "intent", f"{source}: default"),
        min_score=float(min_score),
        rules=tuple(_rule(rule, f"{source}: rule {number}") for number, rule in enumerate(rules, start=1)),
    )


def _rule(body: Any, where: str) -> Rule:
    rule = _mapping(body, _RULE_KEYS, where)
    intent = _text(rule, "intent", where)
    slots = rule.get("slots", [])
    if not isinstance(slots, list):
        raise ConfigError(f"{where}: slots is {slots!r}; give a list")
    made = Rule(
        name=_text(rule, "name", where) if "name" in rule else intent,
        intent=intent,
        words=_weights(rule.get("words", []), where),
        phrases=_texts(rule, "phrases", where),
        regex=_regex(rule.get("regex"), where),
        slots=tuple(_slot_rule(slot, f"{where}: slot {number}") for number, slot in enumerate(slots, start=1)),
    )
    if not (made.words or made.phrases or made.regex):
        raise ConfigError(f"{where} ({made.name}) can never answer; give it words, phrases or a regex")
    return made


def _slot_rule(body: Any, where: str) -> SlotRule:
    slot = _mapping(body, _SLOT_KEYS, where)
    made = SlotRule(
        slot=_text(slot, "slot", where),
        after=frozenset(word.lower() for word in _texts(slot, "after", where)),
        until=frozenset(word.lower() for word in _texts(slot, "until", where)),
        any_of=frozenset(word.lower() for word in _texts(slot, "any_of", where)),
        regex=_regex(slot.get("regex"), where),
    )
    if not (made.after or made.any_of or made.regex):
        raise ConfigError(f"{where} ({made.slot}) can never be found; give it after, any_of or a regex")
    return made


def _mapping(body: Any, keys: set[str], where: str) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise ConfigError(f"{where} is {body!r}; give a mapping with {', '.join(sorted(keys))}")
    if unknown := sorted(str(key) for key in body.keys() - keys):
        raise ConfigError(f"{where} has unknown keys {unknown}; it may have {', '.join(sorted(keys))}")
    return body


def _text(body: Mapping[str, Any], key: str, where: str) -> str:
    value = body.get(key)
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{where}: {key} is {value!r}; give a text (in quotes if it reads like a number or yes/no)")
    return value


def _texts(body: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    values = body.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, str) and value.strip() for value in values):
        raise ConfigError(f"{where}: {key} is {values!r}; give a list of texts, in quotes if one reads like a number")
    return tuple(values)


def _weights(words: Any, where: str) -> dict[str, float]:
    if isinstance(words, list):
        words = dict.fromkeys(_texts({"words": words}, "words", where), 1.0)
    if not isinstance(words, dict) or not all(isinstance(word, str) for word in words):
        raise ConfigError(f"{where}: words is {words!r}; give a list of words, or a mapping of words to weights")
    if several := [word for word in words if len(word.split()) != 1]:
        raise ConfigError(f"{where}: {several} are no single words; put them under phrases")
    for word, weight in words.items():
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0.0 < weight < math.inf:
            raise ConfigError(f"{where}: the weight of {word!r} is {weight!r}; use a positive number")
    return {word: float(weight) for word, weight in words.items()}


def _regex(pattern: Any, where: str) -> re.Pattern[str] | None:
    if pattern is None:
        return None
    if not isinstance(pattern, str):
        raise ConfigError(f"{where}: regex is {pattern!r}; give a text")
    try:
        made = re.compile(pattern, re.IGNORECASE)
        endless = may_take_for_ever(pattern, chars=MAX_REGEX_CHARS)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"{where}: regex {pattern[:200]!r} is not a pattern: {error}") from error
    if endless:
        raise ConfigError(
            f"{where}: regex {pattern!r} can take for ever: a repeat within a repeat, or several that take the same "
            "characters; write it with fewer, or with words between them"
        )
    return made
