"""The page of drills: one line for each, those that never ran included, and what of the documents' commands ran."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.documented import Shown, shown_commands

_MARKS = {"drill", "soak"}
_TITLE = """# Drills

Made by the run: `make drill` writes down how each drill ended, on what, and when; a run of some renews their lines
only. A drill's name is its claim. They start real processes and break them on purpose (`tests/drills`); which of them
each change has to pass, `make landing` says. On another machine, times are other ones.

"""
_COMMANDS = """## Commands of the documents

Every command line of `README.md` and `docs` stands here, read off the documents by `tests/documented.py`. They are
typed as they stand, in a fresh clone on a machine of its own (namespaces of the kernel), or it is said why not. What
was put in for a placeholder, or added, is shown.

"""


@dataclass(frozen=True, kw_only=True)
class Drill:
    """One file of drills."""

    path: str
    stands_for: str
    """The first sentence that it says of itself."""
    names: tuple[str, ...]
    """Its drills, as ``path::function``, in its own order."""


def drills_of(root: Path) -> list[Drill]:
    """Every file of a tree that has drills, read without loading it."""
    found = (_drill(path, path.relative_to(root).as_posix()) for path in sorted((root / "tests").rglob("test_*.py")))
    return [drill for drill in found if drill.names]


def _drill(path: Path, name: str) -> Drill:
    tree = ast.parse(path.read_text("utf-8"))
    whole = any(isinstance(node, ast.Assign) and _marks(node.value) & _MARKS for node in tree.body)
    tests = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    own = [node.name for node in tests if whole or any(_marks(mark) & _MARKS for mark in node.decorator_list)]
    about = (ast.get_docstring(tree) or "").split("\n\n")[0]
    return Drill(path=name, stands_for=" ".join(about.split()), names=tuple(f"{name}::{one}" for one in own))


def _marks(node: ast.AST) -> set[str]:
    """Names of marks in an expression, as ``pytest.mark.drill``."""
    return {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}


def page(record: dict[str, Any], root: Path) -> str:
    """The page, as Markdown."""
    drills = drills_of(root)
    machines = sorted({said["machine"] for said in record["drills"].values()})
    letters = {machine: chr(ord("A") + place % 26) for place, machine in enumerate(machines)}
    legend = [f"Machine {letter}: {machine}.\n\n" for machine, letter in letters.items()]
    parts = [_TITLE, _sum(record["drills"], drills), *legend]
    parts += [part for drill in drills for part in _section(drill, record["drills"], letters)]
    return "".join([*parts, _COMMANDS, *_commands(record["commands"])])


def _sum(said: dict[str, Any], drills: Iterable[Drill]) -> str:
    names = [name for drill in drills for name in drill.names]
    ends = [said[name]["outcome"] if name in said else "never run" for name in names]
    counts = [f"{ends.count(end)} {end}" for end in ("passed", "failed", "skipped", "never run") if end in ends]
    return f"{len(names)} drills: {', '.join(counts)}.\n\n"


def _section(drill: Drill, said: dict[str, Any], letters: dict[str, str]) -> Iterator[str]:
    yield f"## {drill.path}\n\n{_cell(drill.stands_for)}\n\n"
    yield "| claim | outcome | s | date | machine | commit |\n|---|---|---|---|---|---|\n"
    for name in drill.names:
        claim = name.partition("::test_")[2].replace("_", " ")
        one = said.get(name)
        if one is None:
            yield f"| {claim} | never run | | | | |\n"
            continue
        outcome = one["outcome"] if one["cases"] == 1 else f"{one['outcome']} ({one['cases']} cases)"
        if one["why"]:
            outcome = f"{'**failed**' if one['outcome'] == 'failed' else outcome}: {_cell(one['why'])}"
        where = f"{one['date']} | {letters[one['machine']]} | {one['commit']}"
        yield f"| {claim} | {outcome} | {one['seconds']:.0f} | {where} |\n"
    yield "\n"


def _commands(said: dict[str, Any]) -> Iterator[str]:
    document = ""
    for shown in shown_commands():
        if shown.document != document:
            document = shown.document
            yield f"### {document}\n\n| command | outcome | s | date |\n|---|---|---|---|\n"
        yield _command(shown, said.get(f"{shown.document}: {shown.text}"))


def _command(shown: Shown, one: dict[str, Any] | None) -> str:
    command = f"`` {_cell(shown.text)} ``"  # so that prose is not searched for commands in here
    if shown.why_not is not None:
        return f"| {command} | not here: {_cell(shown.why_not)} | | |\n"
    if one is None:
        return f"| {command} | never run | | |\n"
    typed = "" if one["typed"] == shown.text else f", typed as `` {_cell(one['typed'])} ``"
    ended = "ran" if one["exit_code"] == 0 else f"ended with {one['exit_code']}"
    return f"| {command} | {ended}{typed} | {one['seconds']:.0f} | {one['date']} |\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("`", "'")
