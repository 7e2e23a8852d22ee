"""Tables about checkpoints."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from failsoft.training.checkpoints.inspection import Change, Difference, Finding
    from failsoft.training.checkpoints.remote_inspection import BothPlaces

_MAX_NAMES = 12
_COLUMNS = frozenset({"position", "step"})
"""Metrics that have a column of their own."""


def listing(run: str, places: BothPlaces) -> Table:
    """One line for each checkpoint."""
    table = Table(
        "checkpoint", "position", "step", "healthy", "size", "published", "safe", "metrics", title=f"run {escape(run)}"
    )
    for one in places.seen:
        meta = one.manifest.meta
        table.add_row(
            escape(one.name),
            str(meta.get("position", "?")),
            str(meta.get("step", "?")),
            "yes" if meta.get("healthy") is True else "[red]no[/red]",
            in_bytes(sum(entry.size_bytes for entry in one.manifest.files.values())),
            at(one.manifest.created_at_s),
            " + ".join(one.where) + ("" if one.damage is None else f" [red]({escape(one.damage)})[/red]"),
            metrics({name: value for name, value in one.metrics.items() if name not in _COLUMNS}),
        )
    if places.remote is not None:
        table.caption = _in_words(places)
    return table


def _in_words(places: BothPlaces) -> str:
    """What would be left of the run without this disk."""
    copies = [one for one in places.seen if one.there and one.damage is None]
    lost = [one for one in places.seen if one.here and not one.there]
    if places.unreadable is not None:
        said = "what is there is not known"
    elif not copies:
        said = "nothing is there yet: without this disk the run begins anew"
    else:
        said = f"without this disk the run goes on from position {copies[-1].manifest.meta.get('position', '?')}"
        said += f"; {len(lost)} of these would be lost" if lost else ""
    more = f"; {len(places.unfinished)} unfinished there" if places.unfinished else ""
    return escape(f"remote: {places.remote}: {said}{more}")


def findings(found: Sequence[Finding]) -> Table:
    """Whole or damaged, and how."""
    table = Table("checkpoint", "every byte read", title="verified")
    for finding in found:
        said = "[green]whole[/green]" if finding.damage is None else f"[red]damaged[/red]: {escape(finding.damage)}"
        table.add_row(escape(finding.name), said)
    return table


def description(told: Mapping[str, Any]) -> Iterator[Table]:
    """One checkpoint, from what ``described`` gave."""
    table = Table("", "", title=escape(str(told["name"])), show_header=False)
    for key, value in told["meta"].items():
        table.add_row(escape(str(key)), escape(metrics(value) if isinstance(value, dict) else str(value)))
    table.add_row("published", at(told["created_at_s"]))
    table.add_row("format", str(told["format"]))
    table.add_row("files", "\n".join(f"{name}  {in_bytes(size)}" for name, size in told["files"].items()))
    table.add_row("learning rates", ", ".join(f"{rate:.4g}" for rate in told["learning_rates"]))
    table.add_row("workers", str(told["world"]))
    for key in ("identity", "versions"):
        table.add_row(key, escape("\n".join(f"{name}: {value}" for name, value in (told[key] or {}).items())))
    yield table
    parts = Table("part of the state", "tensors", "size")
    for group, entry in told["tensors"].items():
        parts.add_row(group, str(entry["tensors"]), in_bytes(entry["bytes"]))
    yield parts


def difference(found: Difference) -> Iterator[Table]:
    """Names and shapes first, since nothing else matters while they differ."""
    if found.only_a or found.only_b or found.reshaped:
        table = Table("tensor", "in a", "in b", title="names and shapes that differ")
        for name in found.only_a[:_MAX_NAMES]:
            table.add_row(escape(name), "there", "[red]missing[/red]")
        for name in found.only_b[:_MAX_NAMES]:
            table.add_row(escape(name), "[red]missing[/red]", "there")
        for name, (left, right) in list(found.reshaped.items())[:_MAX_NAMES]:
            table.add_row(escape(name), escape(left), escape(right))
        rows = len(found.only_a) + len(found.only_b) + len(found.reshaped)
        table.caption = f"{rows} in all" if rows > table.row_count else None
        yield table
    yield _changes(found.changes)
    table = Table("small value", "a", "b", title="small values that differ")
    for name, (left, right) in found.scalars.items():
        table.add_row(escape(name), escape(_short(left)), escape(_short(right)))
    yield table


def _changes(changes: Sequence[Change]) -> Table:
    table = Table("part of the state", "tensors", "equal", "largest relative change", "in", title="how far it moved")
    for change in changes:
        moved = "–" if change.largest == 0.0 else f"{change.largest:.3g}"
        table.add_row(change.group, str(change.tensors), str(change.equal), moved, change.tensor)
    return table


def difference_as_json(found: Difference) -> dict[str, Any]:
    """A difference that JSON can say: a change that is no number becomes a word."""
    plain = asdict(found)
    for change in plain["changes"]:
        change["largest"] = change["largest"] if math.isfinite(change["largest"]) else str(change["largest"])
    return plain


def pruning(stays: Sequence[str], going: Sequence[str], *, done: bool) -> Table:
    """What goes and what stays, each oldest first."""
    table = Table("checkpoint", "", title="pruned" if done else "nothing is removed without --yes")
    for name in going:
        table.add_row(escape(name), "[red]removed[/red]" if done else "[yellow]would go[/yellow]")
    for name in stays:
        table.add_row(escape(name), "[green]stays[/green]")
    return table


def in_bytes(size: int) -> str:
    """A size in the unit that suits it."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000.0:
            return f"{value:.3g} {unit}"
        value /= 1000.0
    return f"{value:.3g} TB"


def at(wall_s: float) -> str:
    """A wall time in UTC."""
    return datetime.fromtimestamp(wall_s, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def metrics(values: Mapping[str, Any]) -> str:
    """Small numbers by name."""
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items()
    )


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
