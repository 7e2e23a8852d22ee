"""Runs benchmarks: ``python -m tests.benchmarks [NAME …]``, all of them without a name; ``--quick`` for a glance.

A benchmark is a module ``bench_NAME.py`` here with a function ``measure(quick: bool) -> Outcome``. That of the race
takes ``full``, too: ``make bench NAME="race --full"``.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tests.benchmarks.outcome import Outcome

HERE = Path(__file__).parent
PREFIX = "bench_"
OUT = Path("build/bench")


def names() -> list[str]:
    """Every benchmark there is."""
    return sorted(path.stem.removeprefix(PREFIX) for path in HERE.glob(f"{PREFIX}*.py"))


def measured(name: str, *, quick: bool, full: bool = False) -> Outcome:
    """Run one benchmark; ``full`` is for those that know a shorter form of themselves."""
    more = {"full": True} if full else {}
    outcome = importlib.import_module(f"tests.benchmarks.{PREFIX}{name}").measure(quick=quick, **more)
    if not isinstance(outcome, Outcome):
        raise TypeError(f"measure() of {PREFIX}{name}.py returned {type(outcome).__name__}; it returns an Outcome")
    return outcome


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for, print and write each; 2 for a name that is not there."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(names())}; all without")
    parser.add_argument("--quick", action="store_true", help="few rounds: shows that it works, proves nothing")
    parser.add_argument("--full", action="store_true", help="the race's long form; the others know no shorter one")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for NAME.json")
    given = parser.parse_args(arguments)
    console = Console()
    if unknown := sorted(set(given.names) - set(names())):
        console.print(f"no benchmark named {', '.join(unknown)}; there are: {', '.join(names())}")
        return 2
    for name in given.names or names():
        with console.status(f"measuring {name}"):
            outcome = measured(name, quick=given.quick, full=given.full and name == "race")
        for table in outcome.tables():
            console.print(table)
        for note in outcome.notes:
            console.print(f"· {note}", highlight=False)
        console.print(f"written to {outcome.write(given.out)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
