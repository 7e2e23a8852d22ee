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

SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Argument name=value for the Serve app's builder, as serve run takes it. Repeatable."),
]
ModelOption = Annotated[
    list[str] | None,
    typer.Option("--model", help="Deployment that is a model. Repeatable. [dim]Else all behind the first one.[/dim]"),
]
BundleOption = Annotated[
    list[Path] | None,
    typer.Option("--bundle", help="File that the model loads; one byte is flipped, and put back. Repeatable."),
]
HeaderOption = Annotated[
    list[str] | None, typer.Option("--header", help="Header 'name: value' of each request. Repeatable.")
]
MethodOption = Annotated[str, typer.Option("--method", help="GET, POST or PUT.")]
RateOption = Annotated[float, typer.Option("--rate", help="Steady requests a second.")]
PatienceOption = Annotated[float, typer.Option("--wait", help="Seconds a caller of the Serve app waits at most.")]


@dataclass(frozen=True, kw_only=True)
class ServeAsked:
    """The options as they were typed."""

    serve: str | None = None
    address: str | None = None
    route: str | None = None
    payloads: tuple[Any, ...] = ()
    home: Path | None = None
    arguments: Sequence[str] = ()
    models: Sequence[str] = ()
    bundle: Sequence[Path] = ()
    headers: Sequence[str] = ()
    method: str = "POST"
    rate_hz: float = 40.0
    wait_s: float = 5.0

    def target(self) -> ServeTarget:
        """The app; failsoft's own small one where none is named. Of a home only a copy of its newest release is used.

        Raises:
            ConfigError: an option can't be meant.
        """
        from failsoft.artifacts.home import Home
        from failsoft.drills.serving.target import ServeTarget
        from failsoft.drills.serving.toy import PAYLOADS

        own = self.serve is None and self.address is None
        return ServeTarget(
            app=OWN_APP if own else self.serve,
            address=self.address,
            route=self.route,
            payloads=self.payloads or (PAYLOADS if own else ()),
            home=None if own else Home.find(self.home).root,
            arguments=dict(_pair(one, "=", "--set name=value") for one in self.arguments),
            headers=dict(_pair(one, ":", "--header 'name: value'") for one in self.headers),
            models=tuple(self.models),
            model_files=tuple(self.bundle),
            method=self.method.upper(),
            rate_hz=self.rate_hz,
            patience_s=self.wait_s,
        )


def _pair(text: str, sign: str, form: str) -> tuple[str, str]:
    name, found, value = text.partition(sign)
    if not (name.strip() and found):
        raise ConfigError(f"{text!r} is no pair; write {form}")
    return name.strip(), value.strip()
