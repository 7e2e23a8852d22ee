"""A project's ``gates.toml`` (or YAML): limits and waivers, read once and refused whole when something can't be meant.

.. code-block:: toml

    max_latency_p95_ms = 50.0
    widths = ["bf16", "int8"]

    [bootstrap]
    rounds = 2000

    [[waivers]]
    gate = "quantization KL: slot in int8"
    reason = "int8 is not served in this project, asked for by the search team"
    until = 2027-01-31
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from failsoft.errors import ConfigError
from failsoft.health.toml_object import refuse_huge, toml_object
from failsoft.models.narrow import Width
from failsoft.release.policy import GatePolicy
from failsoft.release.spread import Bootstrap
from failsoft.release.waivers import Waiver

FILE_NAME = "gates.toml"
"""In the root of a home it holds for every release that is made or judged there."""
_YAML = (".yaml", ".yml")


@dataclass(frozen=True, kw_only=True)
class GateSettings:
    """What a project asks of its releases."""

    policy: GatePolicy = field(default_factory=GatePolicy)
    """The limits."""
    waivers: tuple[Waiver, ...] = ()
    """Gates that are let go, each with its reason."""


def read_settings(path: Path | None) -> GateSettings:
    """The settings in a file; the defaults without one.

    Raises:
        ConfigError: the file can't be read, a key is unknown, or a value can't be meant; the sentence names it.
    """
    if path is None:
        return GateSettings()
    body = _parsed(path)
    try:
        return _settings(body)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def project_settings(given: Path | None, root: Path) -> GateSettings:
    """The settings in the file that was named, else in ``gates.toml`` of the home, else the defaults.

    Raises:
        ConfigError: as :func:`read_settings`.
    """
    own = root / FILE_NAME
    return read_settings(given or (own if own.exists() else None))


def _read_yaml(text: str) -> Any:
    """Refuses a key of the file that is given twice, as TOML does; YAML's readers take the last one without a word."""
    root = yaml.compose(text, yaml.SafeLoader)
    for node in (root, *(value for _key, value in root.value)) if isinstance(root, yaml.MappingNode) else ():
        keys = [key.value for key, _value in node.value] if isinstance(node, yaml.MappingNode) else []
        twice = [key for number, key in enumerate(keys) if key in keys[:number]]
        if twice:
            raise yaml.YAMLError(f"{twice[0]} is given twice")
    body = yaml.safe_load(text)
    refuse_huge(body)
    return body


def _parsed(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text("utf-8")
        body = _read_yaml(text) if path.suffix in _YAML else toml_object(text)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:  # a date of month 13 is a bare ValueError
        raise ConfigError(f"{path} can't be read as gate settings ({error}); give a TOML or YAML file") from error
    if body is None:  # an empty YAML file
        return {}
    if not isinstance(body, dict):
        raise ConfigError(f"{path} holds a {type(body).__name__}; give keys with values, such as: max_kl = 0.02")
    return body


def _settings(body: Mapping[str, Any]) -> GateSettings:
    limits = {known.name: known.default for known in fields(GatePolicy) if known.name != "bootstrap"}
    _refuse_unknown(body, [*limits, "bootstrap", "waivers"])
    given: dict[str, Any] = {name: _limit(name, body[name], limits[name]) for name in limits if name in body}
    if "bootstrap" in body:
        given["bootstrap"] = _bootstrap(body["bootstrap"])
    waivers = body.get("waivers", [])
    if not isinstance(waivers, list):
        raise ConfigError("waivers is no list; begin each with [[waivers]]")
    return GateSettings(policy=GatePolicy(**given), waivers=tuple(_waiver(entry) for entry in waivers))


def _limit(name: str, value: object, default: object) -> object:
    if name == "widths":
        return _widths(value)
    wanted = (int,) if isinstance(default, int) else (int, float)
    if isinstance(value, bool) or not isinstance(value, wanted):
        kind = "a whole number" if isinstance(default, int) else "a number"
        raise ConfigError(f"{name} is {value!r}; give {kind}, the default is {default}")
    return value


def _widths(value: object) -> tuple[Width, ...]:
    if not isinstance(value, list) or not all(name in list(Width) for name in value):
        raise ConfigError(f"widths is {value!r}; give a list of some of {', '.join(Width)}")
    return tuple(Width(name) for name in value)


def _bootstrap(value: object) -> Bootstrap:
    if not isinstance(value, dict):
        raise ConfigError(f"bootstrap is {value!r}; give a table with rounds, confidence or seed")
    defaults = {known.name: known.default for known in fields(Bootstrap)}
    _refuse_unknown(value, defaults, within="bootstrap.")
    given: dict[str, Any] = {name: _limit(f"bootstrap.{name}", value[name], defaults[name]) for name in value}
    return Bootstrap(**given)


def _waiver(entry: object) -> Waiver:
    if not isinstance(entry, dict):
        raise ConfigError(f"a waiver is {entry!r}; give it a gate and a reason")
    _refuse_unknown(entry, ["gate", "reason", "until"], within="waivers.")
    gate, reason, until = entry.get("gate"), entry.get("reason"), entry.get("until")
    if not isinstance(gate, str) or not isinstance(reason, str):
        raise ConfigError(f"a waiver has gate {gate!r} and reason {reason!r}; give both in words")
    if until is not None and type(until) is not date:
        raise ConfigError(f"the waiver of {gate!r} ends on {until!r}; give a date such as 2027-01-31, without quotes")
    return Waiver(gate=gate, reason=reason, until=until)


def _refuse_unknown(given: Mapping[str, Any], known: Iterable[str], *, within: str = "") -> None:
    names: Sequence[str] = list(known)
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, n=1)
            meant = f"; did you mean {within}{near[0]}?" if near else ""
            raise ConfigError(f"{within}{name} is no setting of the gates{meant} Known: {', '.join(sorted(names))}")
