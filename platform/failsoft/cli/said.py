"""How every command answers: in words, or with ``--json`` as one JSON value and nothing else on standard output.

Whatever tells of progress goes to standard error, so that a pipe gets the answer alone.
"""

from __future__ import annotations

import json
import math
from typing import Annotated, Any

import typer
from rich.console import Console

from failsoft.cli.app import console

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, to standard output.")]
progress = Console(stderr=True)
"""For what goes on while a command works."""


def print_json(data: Any, *, lines: bool = False) -> None:
    """Print one JSON value; ``lines``: a list as one value a line.

    Numbers that are none, as NaN, become null: JSON has no word for them, and most readers refuse Python's.
    """
    for value in data if lines else (data,):
        typer.echo(json.dumps(_plain(value), indent=None if lines else 1, allow_nan=False, default=str))


def answer(json_: bool, data: Any, *words: str) -> None:
    """The answer of a command that did something: the value, or the sentences, shown as they are."""
    if json_:
        print_json(data)
        return
    for line in words:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple | set | frozenset) else value
