"""A project's ``stages.toml``: what it changes of a profile's stages. Taken whole, or refused whole in a sentence.

.. code-block:: toml

    [production]                 # or by-hand, drill; what is not named stays as the profile has it
    margin = 0.04
    by_hand = true

    [production.rest]
    first_s = 120.0

    [production.shadow]          # also canary, ramp_20, ramp_50
    min_time_s = 1800.0
    min_samples = 900
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from failsoft.errors import ConfigError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.toml_object import toml_object
from failsoft.serving.plan.plan import Stage
from failsoft.serving.rollout.stages import NEXT, StagePolicy, StageRule, stage_policy

FILE_NAME = "stages.toml"
"""In the root of a home it holds for every app that is served from there."""
MadeT = TypeVar("MadeT")
PartT = TypeVar("PartT", StageRule, BackoffPolicy)
_NO_SETTINGS = ("rules", "rest", "health", "signals")  # tables of their own, or judged by gateways too
_VALUES = [known.name for known in fields(StagePolicy) if known.name not in _NO_SETTINGS]
_TABLES: Mapping[str, Iterable[str]] = {
    "rest": [known.name for known in fields(BackoffPolicy)],
    **{str(stage): [known.name for known in fields(StageRule)] for stage in NEXT},
}


class StageSettings:
    """What a home says about one profile, looked at again when its file changes.

    Args:
        root: the home.
        profile: name of the policy that the file changes.
    """

    def __init__(self, root: Path, profile: str) -> None:
        self.root, self.profile = root, profile
        self._path = root / FILE_NAME
        self._seen: bytes | OSError | None = None
        self.refusal: str | None = None
        """Why the file as it is now was not taken; None: it was, or there is none."""

    def read(self) -> StagePolicy:
        """The policy as the file has it now.

        Raises:
            ConfigError: the file can't be read, or something in it can't be meant; the sentence names it.
        """
        self._seen = _content(self._path)
        try:
            policy = _policy(self._seen, self._path, self.profile)
        except ConfigError as error:
            self.refusal = str(error)
            raise
        self.refusal = None
        return policy

    def read_or_by_hand(self) -> StagePolicy:
        """The same; while the file can't be meant the profile's own policy, under which nothing rises by itself."""
        try:
            return self.read()
        except ConfigError:
            return replace(stage_policy(self.profile), by_hand=True)

    def has_changed(self) -> bool:
        """Whether the file is another one than when it was last read."""
        now = _content(self._path)
        return repr(now) != repr(self._seen)  # of two errors the words count


def policy_at(root: Path, profile: str) -> StagePolicy:
    """The policy of a profile in a home; the profile's own without a file. Raises as :meth:`StageSettings.read`."""
    return StageSettings(root, profile).read()


def _content(path: Path) -> bytes | OSError | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        return error


def _policy(content: bytes | OSError | None, path: Path, profile: str) -> StagePolicy:
    if content is None:
        return stage_policy(profile)
    try:
        if isinstance(content, OSError):
            raise content
        body = toml_object(content.decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} can't be read as stage settings ({error}); give a TOML file") from error
    try:
        policies = {name: _changed(stage_policy(name), table, within=name) for name, table in body.items()}
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    return policies.get(profile) or stage_policy(profile)


def _changed(policy: StagePolicy, table: object, *, within: str) -> StagePolicy:
    """The policy with what one profile's table changes of it."""
    given = _table(table, within=within, known=[*_VALUES, *_TABLES])
    changes: dict[str, Any] = {
        name: _value(f"{within}.{name}", given[name], getattr(policy, name)) for name in _VALUES if name in given
    }
    rules = {stage: _part(rule, given, str(stage), within=within) for stage, rule in policy.rules.items()}
    changes |= {"rules": rules, "rest": _part(policy.rest, given, "rest", within=within)}
    return _within(within, lambda: replace(policy, **changes))


def _part(part: PartT, given: Mapping[str, Any], name: str, *, within: str) -> PartT:
    """One stage's rule, or the rest, with what its own table changes of it."""
    if name not in given:
        return part
    place = f"{within}.{name}"
    table = _table(given[name], within=place, known=_TABLES[name])
    changes: dict[str, Any] = {key: _value(f"{place}.{key}", value, getattr(part, key)) for key, value in table.items()}
    return _within(place, lambda: replace(part, **changes))


def _within(place: str, make: Callable[[], MadeT]) -> MadeT:
    try:
        return make()
    except ConfigError as error:
        raise ConfigError(f"in [{place}] {error}") from error


def _table(value: object, *, within: str, known: Iterable[str]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{within} is {value!r}; give a table, which begins with [{within}]")
    names = list(known)
    for name in value:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            meant = f"; did you mean {near[0]}?" if near else "."
            raise ConfigError(f"{within}.{name} is no setting of stages{meant} Known: {', '.join(sorted(names))}")
    return value


def _value(name: str, value: object, before: object) -> object:
    """Of the kind that the profile has: yes or no, a whole number, or a number."""
    if isinstance(before, bool):
        kind, fits = "true or false", isinstance(value, bool)
    elif isinstance(before, int):
        kind, fits = "a whole number", isinstance(value, int) and not isinstance(value, bool)
    else:
        kind, fits = "a number", isinstance(value, int | float) and not isinstance(value, bool)
    if not fits:
        raise ConfigError(f"{name} is {value!r}; give {kind}, the profile has {before}")
    return value


def stages_in_words(policy: StagePolicy) -> str:
    """A policy's way up, as ``shadow 1 % copied 900 s, canary 5 % 300 s, …``."""
    words = [
        f"{stage} {policy.mirror_share if stage is Stage.SHADOW else rule.share:.2%}"
        f"{' copied' if stage is Stage.SHADOW else ''} for {rule.min_time_s:g} s and {rule.min_samples} answers"
        for stage, rule in policy.rules.items()
    ]
    return f"{', '.join(words)}{'; each by hand' if policy.by_hand else ''}"
