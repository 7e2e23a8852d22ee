"""``failsoft drill``: breaks somebody's train script or Serve app in every way of the suite, and says what survived."""

from __future__ import annotations

import json
import math
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from failsoft.cli.app import app, console
from failsoft.cli.drill_target import ServeAsked, WithOption
from failsoft.cli.said import JsonOption, print_json, progress
from failsoft.durations import parse_duration_s
from failsoft.errors import ConfigError
from failsoft.health.clock import SystemClock

if TYPE_CHECKING:
    from failsoft.drills.matrix import Matrix
    from failsoft.drills.subject import Subject
    from failsoft.drills.training.command import TrainCommand

LOST = 2
"""Exit code where something was lost or undecided."""
NOTHING_TRIED = 1
_TOY = "failsoft.drills.training.toy"
_SHORT_S = 285.0
"""Of failsoft's own training and app together: with what ending takes, five minutes."""
_TRAINING_COMBINATIONS, _SERVING_COMBINATIONS = 3, 0

TrainOption = Annotated[Path | None, typer.Option("--train", help="Train script, run unchanged by this Python.")]
ModuleOption = Annotated[str | None, typer.Option("--module", help="Train module, as in python -m NAME.")]
CommandOption = Annotated[
    str | None, typer.Option("--command", help="Any train command that ends in Python processes, as torchrun's.")
]
ServeOption = Annotated[str | None, typer.Option("--serve", help="Serve app, as serve run takes it: module:app.")]
AddressOption = Annotated[str | None, typer.Option("--address", help="Serve app that runs already: its address.")]
ArgumentsArgument = Annotated[
    list[str] | None, typer.Argument(help="After --: arguments of the script; {run} in them is the run's folder.")
]
FaultOption = Annotated[list[str] | None, typer.Option("--fault", help="Only this fault. Repeatable; see --list.")]
ResultOption = Annotated[
    list[str] | None,
    typer.Option("--result", help="File below the run's folder that must end as without a fault. Repeatable."),
]
CheckpointOption = Annotated[
    str | None, typer.Option("--checkpoint", help="Pattern of the files a restart reads. [dim]Else the newest.[/dim]")
]
FolderOption = Annotated[
    Path | None, typer.Option("--cwd", help="Working directory of the script. [dim]Else the run's own folder.[/dim]")
]
PayloadOption = Annotated[
    list[str] | None, typer.Option("--payload", help="JSON body of a request to the Serve app. Repeatable.")
]
ListOption = Annotated[bool, typer.Option("--list", help="Say which faults there are, and break nothing.")]
SeedOption = Annotated[int, typer.Option(min=0, help="The same one breaks the same.")]
CombinationsOption = Annotated[
    int | None, typer.Option(min=0, help="Sets of two or three faults. [dim]Else 3 in training.[/dim]")
]
PatienceOption = Annotated[
    float | None, typer.Option(min=1.0, help="Seconds without a sign of life. [dim]Else by the quiet run.[/dim]")
]
ColdOption = Annotated[bool, typer.Option("--cold", help="A new interpreter for each start, no forks.")]
RouteOption = Annotated[str | None, typer.Option(help="Route of the Serve app.")]
WithinOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="Begin nothing that would end later, as 10m. [dim]Else 5m of failsoft's own.[/dim]"
    ),
]
FullOption = Annotated[bool, typer.Option("--full", help="Serving: all faults in all phases.")]
OutOption = Annotated[
    Path | None, typer.Option("--out", help="Folder for matrix.json, matrix.html, junit.xml and what did not survive.")
]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is drilled, and how, as the options say."""

    command: TrainCommand | None
    results: tuple[str, ...]
    checkpoint: str | None
    cold: bool
    still_s: float | None
    served: ServeAsked
    full: bool
    faults: tuple[str, ...]
    seed: int
    combinations: int | None
    within_s: float
    """For all of it."""

    def subjects(self, folder: Path) -> list[Subject]:
        """Both of failsoft's own toys where nothing is named."""
        trains = self.command is not None
        serves = self.served.serve is not None or self.served.address is not None
        found: list[Subject] = []
        if trains or not serves:
            found.append(self._training(folder / "training"))
        if serves or not trains:
            found.append(self._serving())
        return found

    def _training(self, folder: Path) -> Subject:
        from failsoft.drills.training.command import TrainCommand
        from failsoft.drills.training.script import ScriptOptions, TrainScript

        options = ScriptOptions(
            results=self.results, checkpoint=self.checkpoint, warm=not self.cold, still_s=self.still_s
        )
        command = self.command or TrainCommand(module=_TOY, arguments=("{run}",))
        return TrainScript(command, folder, SystemClock(), options)

    def _serving(self) -> Subject:
        from failsoft.drills.serving.subject import ServeSubject

        return ServeSubject(self.served.target(), SystemClock(), full=self.full)


@app.command()
def drill(
    arguments: ArgumentsArgument = None,
    train: TrainOption = None,
    module: ModuleOption = None,
    command: CommandOption = None,
    serve: ServeOption = None,
    address: AddressOption = None,
    fault: FaultOption = None,
    list_: ListOption = False,
    seed: SeedOption = 0,
    combinations: CombinationsOption = None,
    result: ResultOption = None,
    checkpoint: CheckpointOption = None,
    cwd: FolderOption = None,
    patience: PatienceOption = None,
    cold: ColdOption = False,
    route: RouteOption = None,
    payload: PayloadOption = None,
    with_: WithOption = None,
    full: FullOption = False,
    within: WithinOption = None,
    out: OutOption = None,
    json_: JsonOption = False,
) -> None:
    """Break a train script or a Serve app on purpose, each fault in each phase, and say what survived.

    Without --train or --serve: failsoft's own small training and app, in at most five minutes on two cores.

    Exit code 0: all that was tried survived. 2: something was lost or undecided (also what a mistyped option gives).
    1: nothing could be tried: without any fault a subject is not well, or it has nothing that these faults could meet.
    """
    if list_:
        return _say_list(json_=json_)
    trains = _command(train, module, command, tuple(arguments or ()), cwd)
    how = {"results": tuple(result or ()), "checkpoint": checkpoint, "cold": cold, "still_s": patience}
    more, bodies = tuple(with_ or ()), _bodies(payload)
    served = ServeAsked(serve=serve, address=address, route=route, payloads=bodies, more=more)
    what = {"faults": tuple(fault or ()), "seed": seed, "combinations": combinations}
    what["full"] = full or bool(fault)  # whoever names a fault may name any
    short = within is None and not (what["full"] or trains or serve or address)
    what["within_s"] = _SHORT_S if short else math.inf if within is None else parse_duration_s(within)
    _carry_out(Asked(command=trains, served=served, **how, **what), out, json_=json_)  # type: ignore[arg-type]


def _carry_out(asked: Asked, out: Path | None, *, json_: bool) -> None:
    folder = out or Path(tempfile.mkdtemp(prefix="failsoft-drill-"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # else what the drill has started would outlive it
    matrices = _drilled(asked, _unused(folder))
    _write(matrices, folder, say=out is not None)
    if json_:
        print_json({"format": 1, "drills": [matrix.as_json() for matrix in matrices]})
    else:
        _show(matrices, folder)
    if not all(matrix.reference.good for matrix in matrices):
        raise typer.Exit(code=NOTHING_TRIED)
    if any(outcome.bad for matrix in matrices for outcome in matrix.outcomes):
        raise typer.Exit(code=LOST)
    if not all(matrix.was_tried for matrix in matrices):
        raise typer.Exit(code=NOTHING_TRIED)


def _unused(folder: Path) -> Path:
    """For the trials of this drill: those of one before, in the same folder, stay."""
    names = ("trials", *(f"trials-{number}" for number in range(2, 10_000)))
    return next(folder / name for name in names if not (folder / name).exists())


def _command(
    train: Path | None, module: str | None, command: str | None, arguments: tuple[str, ...], cwd: Path | None
) -> TrainCommand | None:
    import shlex

    from failsoft.drills.training.command import TrainCommand

    if train is None and module is None and command is None:
        if arguments:
            raise ConfigError(f"arguments {' '.join(arguments)} belong to no script; name it with --train or --module")
        return None
    program = tuple(shlex.split(command or ""))
    return TrainCommand(script=train, module=module, program=program, arguments=arguments, folder=cwd)


def _bodies(payloads: list[str] | None) -> tuple[Any, ...]:
    found = []
    for text in payloads or ():
        try:
            found.append(json.loads(text))
        except ValueError as error:
            raise ConfigError(f"--payload {text!r} is no JSON: {error}") from error
    return tuple(found)


def _drilled(asked: Asked, folder: Path) -> list[Matrix]:
    from failsoft.drills.device import device_in_words
    from failsoft.drills.fault import Side
    from failsoft.drills.plan import chosen
    from failsoft.drills.suite import Suite, SuitePlan

    subjects = asked.subjects(folder)
    known = {str(kind) for subject in subjects for kind in subject.kinds}
    if unknown := [name for name in asked.faults if name not in known]:
        raise ConfigError(f"--fault {unknown[0]} is none that is known here; use one of {', '.join(sorted(known))}")
    meant = [(subject, [name for name in asked.faults if name in map(str, subject.kinds)]) for subject in subjects]
    meant = [(subject, names) for subject, names in meant if names or not asked.faults]
    matrices, clock = [], SystemClock()
    ends_s = clock.monotonic_s() + asked.within_s
    for number, (subject, names) in enumerate(meant):
        usual = _TRAINING_COMBINATIONS if subject.side is Side.TRAINING else _SERVING_COMBINATIONS
        together = usual if asked.combinations is None else asked.combinations
        plan = SuitePlan(
            kinds=chosen(subject, names),
            seed=asked.seed,
            combinations=together,
            within_s=max(1.0, (ends_s - clock.monotonic_s()) / (len(meant) - number)),
        )
        with progress.status("drill") as line:
            suite = Suite(subject, folder / str(subject.side), clock, watch=lambda words: line.update(escape(words)))
            matrices.append(suite.run(plan, device=device_in_words()))
    return matrices


def _write(matrices: list[Matrix], folder: Path, *, say: bool) -> None:
    """Also where something was lost: that is when they are read."""
    from failsoft.artifacts.store import write_durably
    from failsoft.drills.junit import to_junit
    from failsoft.drills.matrix import to_text
    from failsoft.drills.page import to_html

    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (
        ("matrix.json", to_text(matrices)),
        ("matrix.html", to_html(matrices)),
        ("junit.xml", to_junit(matrices)),
    ):
        write_durably(folder / name, text.encode("utf-8", "replace"))  # names of files may be no text
        if say:
            typer.echo(f"written: {folder / name}", err=True)


def _show(matrices: list[Matrix], folder: Path) -> None:
    from failsoft.drills.table import print_matrix

    for matrix in matrices:
        print_matrix(matrix, console)
    console.print(f"page, JSON and JUnit, and the trials that did not survive: {escape(str(folder))}", soft_wrap=True)


def _say_list(*, json_: bool) -> None:
    from failsoft.drills.catalogue import listing

    found = listing()
    if json_:
        print_json([entry.as_json() for entry in found])
        return
    table = Table("side", "fault", "phases", "what is done", "what is asked")
    for entry in found:
        table.add_row(entry.side, entry.kind, ", ".join(entry.phases), entry.does, entry.asks)
    console.print(table)
