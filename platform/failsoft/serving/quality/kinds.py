"""The quality kinds by the names that a config may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from failsoft.errors import ConfigError
from failsoft.serving.quality.classes import Classification
from failsoft.serving.quality.intents import IntentsAndEntities
from failsoft.serving.seam import Quality

KINDS: Mapping[str, Callable[[], Quality]] = {
    "classification": Classification,
    "intents": IntentsAndEntities,
}
"""Kinds that need no settings of their own; the others are given as objects."""


def quality_named(name: str) -> Quality:
    """The kind of this name, with its defaults.

    Raises:
        ConfigError: there is none.
    """
    if name not in KINDS:
        raise ConfigError(f"there is no quality kind {name!r}; use one of {sorted(KINDS)}, or give an object")
    return KINDS[name]()
