"""Tables about dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from failsoft.cli.checkpoint_tables import at
from failsoft.cli.run_tables import age

if TYPE_CHECKING:
    from failsoft.models.corpus import Utterance
    from failsoft.training.letters.letter import DeadLetter
    from failsoft.training.letters.letterbook import Burst
    from failsoft.training.letters.replay import Replay
    from failsoft.training.loading.sample_letters import SampleLetter

_FOLDED_ABOVE = 3
_TEXT = 100
_ROWS = (
    "position",
    "step",
    "world",
    "reason",
    "why",
    "loss",
    "mean_loss",
    "grad_norm",
    "spike_limit",
    "bad_tensor",
    "threads",
)
_DIGESTS = ("model_digest", "generators_digest", "payload")


def listing(run: str, found: Sequence[Burst], states: Mapping[int, str], *, now_s: float, unfold: bool) -> Table:
    """One line for each batch; bursts are set apart, and long ones folded into one line."""
    heads = ("position", "step", "rank", "reason", "loss", "norm", "bad tensor", "sources", "age", "since then")
    table = Table(*heads, title=f"dead letters of run {escape(run)}")
    for burst in found:
        groups = _by_position(burst)
        rows = [groups] if len(groups) > _FOLDED_ABOVE and not unfold else [[group] for group in groups]
        for row in rows:
            table.add_row(*_cells([letter for group in row for letter in group], states, now_s))
        table.add_section()
    return table


def left_out(letters: Sequence[SampleLetter], *, most: int, now_s: float) -> Table:
    """The newest letters of single samples, one line each; the title says how many there are."""
    newest = _newest(letters, most)
    shown = "" if len(newest) == len(letters) else f", the newest {len(newest)} of them"
    heads = ("sample", "source", "position", "rank", "kind", "why", "in its place", "age")
    table = Table(*heads, title=f"{len(letters):,} letters of single samples that were left out{shown}")
    for one in newest:
        instead = "synthetic" if one.synthetic else "a copy"
        words = (str(one.index), one.source or "-", str(one.position), str(one.rank), str(one.kind), one.why[:_TEXT])
        table.add_row(*(escape(_printable(word)) for word in words), f"{instead}, weight 0", age(now_s - one.at_s))
    return table


def left_out_as_json(letters: Sequence[SampleLetter], *, most: int) -> dict[str, Any]:
    """The newest letters of single samples as plain JSON, and how many there are in all."""
    return {"samples": [asdict(one) for one in _newest(letters, most)], "samples_in_all": len(letters)}


def _newest(letters: Sequence[SampleLetter], most: int) -> list[SampleLetter]:
    return sorted(letters, key=lambda one: one.at_s)[max(0, len(letters) - most) :]


def _printable(text: str) -> str:
    """Errors of foreign code may hold what moves a terminal's cursor or no terminal can show."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def as_json(letter: DeadLetter, state: str) -> dict[str, Any]:
    """A letter as plain JSON, without the packed generators."""
    said = {name: getattr(letter, name) for name in letter.__dataclass_fields__ if name != "generators"}
    return said | {"sample_ids": list(letter.sample_ids), "sources": dict(letter.sources), "since_then": state}


def full(letters: Sequence[DeadLetter], state: str) -> Iterator[Table]:
    """Everything that the letters of one batch say: what is the same on all ranks, then rank by rank."""
    first = letters[0]
    table = Table("", "", title=f"batch at position {first.position}", show_header=False)
    for name in _ROWS:
        if getattr(first, name) not in {None, ""}:
            table.add_row(name.replace("_", " "), _said(getattr(first, name)))
    table.add_row("met", at(first.at_s))
    if first.undone_at is not None:
        table.add_row("undone at position", str(first.undone_at))
    table.add_row("since then", state or "-")
    for name in _DIGESTS:
        table.add_row(name.replace("_", " "), _said(getattr(first, name) or "not kept"))
    table.add_row("generators", "kept: a replay draws the same" if first.generators else "not kept")
    yield table
    if len(letters) > 1:
        ranks = Table("rank", "reason", "loss", "norm", "samples", title="rank by rank")
        for letter in letters:
            count = str(letter.sample_count or len(letter.sample_ids))
            ranks.add_row(
                str(letter.rank), escape(letter.reason), _number(letter.loss), _number(letter.grad_norm), count
            )
        yield ranks


def samples(indices: Sequence[int], known: Sequence[Utterance], *, most: int) -> Table:
    """The samples with their texts, as far as they are known; the first ``most`` of them."""
    table = Table("id", "name", "intent", "text", title=f"{min(most, len(indices))} of {len(indices)} samples")
    for place, index in enumerate(indices[:most]):
        if place < len(known):
            one = known[place]
            table.add_row(str(index), escape(one.id), escape(one.intent), escape(one.text[:_TEXT]))
        else:
            table.add_row(str(index), "", "", "")
    return table


def replayed(found: Replay) -> Iterator[Table]:
    """What was tried and what it showed."""
    table = Table("trial", "it is", "loss", "norm", "why", title=f"batch at position {found.position}, met again")
    colours = {"bad": "[red]bad[/red]", "fine": "[green]fine[/green]"}
    for trial in found.trials:
        seen = colours.get(trial.seen, "[yellow]unknown[/yellow]")
        table.add_row(trial.name, seen, _number(trial.loss), _number(trial.grad_norm), escape(trial.why or "-"))
    yield table


def _by_position(burst: Burst) -> list[list[DeadLetter]]:
    groups: dict[int, list[DeadLetter]] = {}
    for letter in burst.letters:
        groups.setdefault(letter.position, []).append(letter)
    return list(groups.values())


def _cells(letters: Sequence[DeadLetter], states: Mapping[int, str], now_s: float) -> list[str]:
    first, last = letters[0], letters[-1]
    batches = len({letter.position for letter in letters})
    place = str(first.position) if batches == 1 else f"{first.position}–{last.position} ({batches} batches)"
    sources: dict[str, int] = {}
    for letter in letters:
        for name, count in letter.sources.items():
            sources[name] = sources.get(name, 0) + count
    return [
        place,
        str(first.step),
        _several(str(letter.rank) for letter in letters),
        escape(_several(letter.reason for letter in letters)),
        _number(first.loss) if batches == 1 else "",
        _number(first.grad_norm) if batches == 1 else "",
        escape(_several(letter.bad_tensor for letter in letters if letter.bad_tensor)),
        escape(_several(name for name, _ in sorted(sources.items(), key=lambda entry: -entry[1]))),
        age(now_s - first.at_s, bare=True),
        _several(states.get(letter.position, "") for letter in letters if states.get(letter.position)),
    ]


def _several(values: Any) -> str:
    distinct = list(dict.fromkeys(values))
    more = f" +{len(distinct) - 2}" if len(distinct) > 2 else ""
    return ", ".join(distinct[:2]) + more


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _said(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else escape(str(value))
