"""Which Serve app ``failsoft drill`` is pointed at, and how it is asked: the options of its serving side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from failsoft.errors import ConfigError

if TYPE_CHECKING:
    from failsoft.drills.serving.target import ServeTarget

OWN_APP = "failsoft.drills.serving.toy:app"
_NAMES = ("home", "method", "rate", "wait", "slots", "model", "bundle", "header.NAME", "argument.NAME")
WithOption = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        help="Serve app: name=value, of home (its newest release is copied), method, rate (requests/s), wait (s that a "
        "caller waits), slots (of Ray), model (deployment), bundle (file that the model loads), header.NAME, "
        "argument.NAME (of its builder). Repeatable.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class ServeAsked:
    """The options as they were typed."""

    serve: str | None = None
    address: str | None = None
    route: str | None = None
    payloads: tuple[Any, ...] = ()
    more: Sequence[str] = ()
    """Each ``name=value``, of the names that the option's help lists."""

    def target(self) -> ServeTarget:
        """The app; failsoft's own small one where none is named. Of a home only a copy of its newest release is used.

        Raises:
            ConfigError: an option can't be meant.
        """
        from failsoft.artifacts.home import Home
        from failsoft.drills.serving.target import ServeTarget
        from failsoft.drills.serving.toy import PAYLOADS

        own = self.serve is None and self.address is None
        given: dict[str, Any] = {
            "app": OWN_APP if own else self.serve,
            "address": self.address,
            "route": self.route,
            "payloads": self.payloads or (PAYLOADS if own else ()),
            "home": None if own else Home.find().root,
        }
        for text in self.more:
            _take(given, *_pair(text))
        return ServeTarget(**given)


def _pair(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not (name.strip() and found):
        raise ConfigError(f"--with {text!r} is no pair; write --with name=value, of {', '.join(_NAMES)}")
    return name.strip(), value.strip()


def _take(given: dict[str, Any], name: str, value: str) -> None:
    """One of them, by the name of the target's own field."""
    group, _, inner = name.partition(".")
    if inner and group in {"header", "argument"}:
        given.setdefault(f"{group}s", {})[inner] = value
    elif name in {"model", "bundle"}:
        field = "models" if name == "model" else "model_files"
        given[field] = (*given.get(field, ()), value if name == "model" else Path(value))
    elif name in {"rate", "wait", "slots"}:
        given[{"rate": "rate_hz", "wait": "patience_s", "slots": "slots"}[name]] = _number(name, value)
    elif name in {"home", "method"}:
        given[name] = Path(value).absolute() if name == "home" else value.upper()
    else:
        raise ConfigError(f"--with {name}=… is none that is known; use one of {', '.join(_NAMES)}")


def _number(name: str, value: str) -> float | int:
    try:
        return int(value) if name == "slots" else float(value)
    except ValueError as error:
        raise ConfigError(f"--with {name}={value!r} is no number: {error}") from error
