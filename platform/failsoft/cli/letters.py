"""``failsoft dlq``: the batches that training refused or undid, listed, shown, exported, replayed and requeued."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from failsoft.artifacts.home import Home, run_names
from failsoft.cli import letter_tables as tables
from failsoft.cli.app import HomeOption, app, console
from failsoft.cli.completion import complete_run
from failsoft.cli.letter_words import in_words
from failsoft.cli.said import JsonOption, answer, print_json, progress
from failsoft.errors import ArtifactMissingError, ConfigError
from failsoft.health.clock import SystemClock

if TYPE_CHECKING:
    from failsoft.training.letters.letterbook import LetterBook
    from failsoft.training.loading.sample_letters import SampleLetter
    from train_jobs.letters import JobLetters

dlq = typer.Typer(
    help="Look at batches that training refused, find out why, and train on them again.", no_args_is_help=True
)
app.add_typer(dlq, name="dlq")

RunArgument = Annotated[
    str | None, typer.Argument(help="Name of the run; the newest one without it.", autocompletion=complete_run)
]
WhereArgument = Annotated[
    list[str],
    typer.Argument(metavar="[RUN] POSITION", help="A run (else the newest), a position.", autocompletion=complete_run),
]


@dlq.command()
def ls(
    run: RunArgument = None,
    all_: Annotated[bool, typer.Option("--all", help="One line for each batch, also in long bursts.")] = False,
    samples: Annotated[int, typer.Option(min=0, help="Single samples shown at most, the newest.")] = 20,
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """List dead batches by position, those in a row together; then single samples that were left out of theirs."""
    from failsoft.training.letters.letterbook import bursts

    place = Home.find(home)
    name = _run(place, run)
    book, states = _book(place, name)
    if json_:
        told = [tables.as_json(one, states.get(one.position, "")) for one in (*book.letters, *book.overtaken)]
        left_out = _left_out(place, name)
        print_json({"letters": told} | tables.left_out_as_json(left_out, most=samples))
        return
    found = sorted((*book.letters, *book.overtaken), key=lambda one: (one.position, one.rank))
    if not found:
        none = "every batch so far was trained on" if not book.torn_lines else "none that can be read"
        console.print(f"run {name} has no dead letters: {none}", markup=False)
    else:
        console.print(tables.listing(name, bursts(found), states, now_s=SystemClock().wall_s(), unfold=all_))
    if book.torn_lines:
        console.print(f"{book.torn_lines} torn lines were passed over")
    _list_samples(place, name, most=samples)
    if found:
        console.print(
            f"next: failsoft dlq show {name} {found[0].position}", markup=False, highlight=False, soft_wrap=True
        )


def _left_out(place: Home, run: str) -> tuple[SampleLetter, ...]:
    from failsoft.training.letters.letterbook import LETTERS_FOLDER
    from failsoft.training.loading.sample_letters import read_sample_letters

    return read_sample_letters(place.run(run) / LETTERS_FOLDER)


def _list_samples(place: Home, run: str, *, most: int) -> None:
    left_out = _left_out(place, run)
    if left_out and most:
        console.print(tables.left_out(left_out, most=most, now_s=SystemClock().wall_s()))


@dlq.command()
def show(
    where: WhereArgument,
    samples: Annotated[int, typer.Option(min=0, help="Samples shown at most.")] = 16,
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Say all that is known of one dead batch, with the texts of its samples."""
    job, (position,) = _job_and_positions(Home.find(home), where, most=1)
    letters = job.book.of_batch(position)
    state = _states(job.book, job.folder).get(position, "")
    ids = job.global_indices(position) if job.is_known else [one for letter in letters for one in letter.sample_ids]
    texts = job.samples(ids[:samples])
    if json_:
        told = [tables.as_json(letter, state) for letter in letters]
        print_json({"letters": told, "samples": [_sample(one) for one in texts]})
        return
    for table in tables.full(letters, state):
        console.print(table)
    console.print(tables.samples(ids, texts, most=samples))
    console.print(f"next: failsoft dlq replay {job.run} {position}", markup=False, highlight=False, soft_wrap=True)


@dlq.command()
def export(
    out: Annotated[Path, typer.Option(help="File to write: JSON, one letter a line, with its samples.")],
    run: RunArgument = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Write all dead letters of a run, with the texts of their samples, into one file: whole, or not at all."""
    from failsoft.artifacts.store import write_durably

    if out.exists() and not force:
        raise ConfigError(f"{out} is there already; give another name, or add --force to replace it")
    place = Home.find(home)
    job = _job(place, _run(place, run))
    states = _states(job.book, job.folder)
    found = sorted((*job.book.letters, *job.book.overtaken), key=lambda one: (one.position, one.rank))
    lines = [
        tables.as_json(one, states.get(one.position, ""))
        | {"samples": [_sample(sample) for sample in job.samples(one.sample_ids)]}
        for one in found
    ]
    write_durably(out, "".join(json.dumps(line) + "\n" for line in lines).encode())
    told = {"run": job.run, "letters": len(lines), "file": out}
    answer(json_, told, f"{len(lines)} letters of run {job.run}: {out}")


@dlq.command()
def replay(
    where: WhereArgument,
    walk: Annotated[int, typer.Option(min=0, help="Batches that may be trained again to reach its state.")] = 10_000,
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Meet a dead batch again: was it the data, the numerics, the model state, or the hardware?"""
    job, (position,) = _job_and_positions(Home.find(home), where, most=1)
    with progress.status(f"batch at position {position}") as line:
        found = job.replay(
            position,
            max_walk=walk,
            watch=lambda done, total: line.update(f"walking to the state that it met: batch {done} of {total}"),
            say=line.update,
        )
    if json_:
        print_json(found.as_data())
        return
    for table in tables.replayed(found):
        console.print(table)
    for text in in_words(job.run, found):
        console.print(text, highlight=False, markup=False, soft_wrap=True)


@dlq.command()
def requeue(
    where: Annotated[
        list[str],
        typer.Argument(
            metavar="[RUN] POSITION...", help="A run (else the newest), positions.", autocompletion=complete_run
        ),
    ],
    without: Annotated[
        list[str] | None, typer.Option(help="Leave this sample out (id or name); may be repeated.")
    ] = None,
    why: Annotated[str, typer.Option("--why", help="Reason, kept in the list.")] = "",
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Put dead batches on the run's list: it trains on them after its planned batches, once."""
    job, positions = _job_and_positions(Home.find(home), where)
    if without and len(positions) > 1:
        raise ConfigError("--without is about one batch; requeue the positions one by one")
    for position in positions:
        job.book.of_batch(position)  # a position without a letter is refused before any other goes on the list
    done = [job.requeue(position, without=without or (), why=why, clock=SystemClock()) for position in positions]
    words = [
        f"position {entry.position_of_letter}: {len(entry.sample_indices)} samples requeued"
        + (f", {len(entry.without)} left out" if entry.without else "")
        for entry in done
    ]
    way = f"next: {job.way_to_start} (with the settings that it was started with)"
    answer(json_, {"run": job.run, "requeued": [asdict(entry) for entry in done]}, *words, way)


def _run(place: Home, run: str | None) -> str:
    """The run asked for, else the one whose progress was written last."""
    from failsoft.training.progress import read_progress

    there = run_names(place.runs)
    if not there:
        raise ArtifactMissingError(f"no runs in {place.runs}; start one with: failsoft train")
    if run is not None and run not in there:
        raise ArtifactMissingError(f"no run {run!r} in {place.runs}; there: {', '.join(there)}. See: failsoft runs")
    if run is not None:
        return run
    looks = {name: read_progress(place.run(name)) for name in there}
    return max(there, key=lambda name: 0.0 if (look := looks[name]) is None else look.updated_at_s)


def _job(place: Home, run: str) -> JobLetters:
    from train_jobs.letters import JobLetters

    return JobLetters(place, run)


def _job_and_positions(place: Home, where: list[str], *, most: int | None = None) -> tuple[JobLetters, list[int]]:
    """``[RUN] POSITION...``: the first word is a run unless it is a number and no run is called so."""
    first_is_run = not where[0].isdecimal() or (len(where) > 1 and place.run(where[0]).is_dir())
    run, positions = (where[0], where[1:]) if first_is_run else (None, where)
    name = _run(place, run)
    odd = [word for word in positions if not word.isdecimal()]
    if odd or not positions or (most is not None and len(positions) > most):
        wanted = "one position" if most == 1 else "positions"
        raise ConfigError(
            f"give {wanted} of run {name}, not {' '.join(positions) or 'none'!r}; see: failsoft dlq ls {name}"
        )
    return _job(place, name), [int(word) for word in positions]


def _book(place: Home, run: str) -> tuple[LetterBook, dict[int, str]]:
    from failsoft.training.letters.letterbook import LETTERS_FOLDER, read_letter_book

    book = read_letter_book(place.run(run) / LETTERS_FOLDER)
    return book, _states(book, place.run(run))


def _states(book: LetterBook, run_folder: Path) -> dict[int, str]:
    """What became of dead batches since, by position."""
    from failsoft.training.letters.requeue import read_requeue

    overtaken = {letter.position: "met again after a restart" for letter in book.overtaken}
    requeued = {
        entry.position_of_letter: f"requeued as entry {number}" for number, entry in enumerate(read_requeue(run_folder))
    }
    return overtaken | requeued


def _sample(one: Any) -> dict[str, Any]:
    return {"name": one.id, "text": one.text, "intent": one.intent, "spans": [list(span) for span in one.spans]}
