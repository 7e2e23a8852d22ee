"""Tables about runs: where they stand, where their time went, what they consumed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from failsoft.cli.plan_words import duration

if TYPE_CHECKING:
    from failsoft.health.ledger import Event
    from failsoft.training.accounting.degraded import Degraded
    from failsoft.training.accounting.exactness import Verification
    from failsoft.training.accounting.goodput import Account, Incident
    from failsoft.training.accounting.whereabouts import Whereabouts


def runs(looks: Sequence[Whereabouts]) -> Table:
    """One line for each run."""
    columns = ("run", "state", "batches", "step", "loss", "refused", "rollbacks", "restarts", "ETTR", "last word")
    table = Table(*columns)
    for look in looks:
        counts = (str(look.refused), str(look.rollbacks), str(look.restarts))
        of = f"{look.position} of {look.total}" if look.total else str(look.position)
        head = (escape(look.run), _state(look), of, str(look.step), _loss(look.loss))
        table.add_row(*head, *counts, _fraction(look.account.ettr), age(look.age_s))
    return table


def detail(look: Whereabouts, events: Sequence[Event], *, now_s: float) -> Iterator[Table]:
    """One run: its numbers, its time, its last events."""
    table = Table("what", "now", title=f"run {escape(look.run)}")
    done = f" ({look.position / look.total:.1%})" if look.total else ""
    table.add_row("state", _state(look))
    table.add_row("last word", age(look.age_s))
    table.add_row("batches", f"{look.position} of {look.total or 'an unknown number'}{done}")
    table.add_row("steps applied", str(look.step))
    table.add_row("loss, running mean", _loss(look.loss))
    table.add_row("refused batches", str(look.refused))
    table.add_row("rollbacks", f"{look.rollbacks} ({look.summary.steps_undone} steps undone)")
    table.add_row("restarts", f"{look.restarts} ({look.summary.batches_repeated} batches worked on again)")
    table.add_row("checkpoints", f"{look.summary.checkpoints} published, {look.summary.quarantined} quarantined")
    if look.summary.copied or look.summary.copies_failed:
        tried = f"{look.summary.copied} copied to the remote store, {look.summary.copies_failed} tries failed"
        table.add_row("copies", tried)
    table.add_row("degraded", look.summary.degraded.in_words())
    yield table
    yield from goodput(look.account)
    if look.summary.degraded.kinds:
        yield degraded(look.summary.degraded)
    if not events:
        return
    last = Table("ago", "event", "why", title="its last events")
    for event in events:
        last.add_row(age(now_s - event.at_s, bare=True), escape(event.kind), escape(event.why[:160]))
    yield last


def goodput(account: Account) -> Iterator[Table]:
    """Parts of the wall time, and what each incident cost."""
    title = f"run {escape(account.run)}: {seconds(account.wall_s)} of wall time, ETTR {_fraction(account.ettr)}"
    table = Table("where the time went", "time", "share", title=title)
    for part, micros in account.micros.items():
        if micros != 0:
            share = "–" if micros is None else f"{micros / account.wall_micros:.2%}"
            table.add_row(str(part), "not known" if micros is None else seconds(micros / 1e6), share)
    table.add_row("all of it", seconds(account.wall_s), "100 %" if account.wall_micros else "–", style="bold")
    for name, apart_s in (("stood still between an end and the next start", account.stood_s),):
        if apart_s:
            table.add_row(f"{name} (not counted)", seconds(apart_s), "")
    if account.clock_set_back_s:
        table.add_row("the clock was set back by (not counted)", seconds(account.clock_set_back_s), "")
    yield table
    if account.incidents:
        yield _incidents(account.incidents)


def degraded(found: Degraded) -> Table:
    """What was less than asked, for how long, how far it went and why."""
    title = f"degraded: {_fraction(found.fraction_of_batches)} of batches, {_fraction(found.fraction_of_time)} of work"
    table = Table("what", "times", "batches", "time", "how far", "which", "latest cause", title=title)
    for kind, one in found.kinds.items():
        counts = (f"{one.times}{', open' if one.open else ''}", str(one.batches), seconds(one.seconds))
        words = (", ".join(one.levels[:6]), ", ".join(one.names[:6]), one.why[:120])
        table.add_row(kind.replace("_", " "), *counts, *(escape(word) for word in words))
    return table


def exactness(found: Verification) -> Table:
    """What became of the samples, epoch by epoch."""
    columns = ("epoch", "once", "twice", "never", "dead letters", "undone by rollback", "not yet", "verdict")
    table = Table(*columns, title=f"run {escape(found.run)}: samples in each epoch, {found.reached} batches on record")
    for epoch in found.epochs:
        counts = {str(fate): f"{count}" for fate, count in epoch.counts.items()}
        verdict = "[green]exact[/green]" if epoch.sound else "[red]not exact[/red]"
        if not epoch.judged:
            verdict = "not judged: its record is incomplete"
        shown = [counts[fate] for fate in ("once", "twice", "never", "dead", "undone", "not yet")]
        table.add_row(str(epoch.epoch), *shown, verdict)
    return table


def odd_ids(found: Verification) -> Iterator[str]:
    """The samples that were not seen exactly once, a line for each kind in each epoch."""
    for epoch in found.epochs:
        for fate, ids in epoch.odd_ids.items():
            if ids and epoch.judged:
                more = epoch.counts[fate] - len(ids)
                yield f"epoch {epoch.epoch}, {fate}: {', '.join(map(str, ids))}{f' and {more} more' if more else ''}"


def seconds(value: float) -> str:
    """A time in the unit that suits it; short ones in milliseconds."""
    return f"{value * 1000:.3g} ms" if 0.0 < value < 1.0 else duration(value)


def age(age_s: float | None, *, bare: bool = False) -> str:
    """How long ago, also for clocks that differ."""
    if age_s is None:
        return "never"
    if age_s < -1.0:
        return f"{seconds(-age_s)} ahead of this clock"
    return seconds(max(0.0, age_s)) + ("" if bare else " ago")


def _incidents(incidents: Sequence[Incident]) -> Table:
    table = Table("after", "incident", "at batch", "batches", "cost", "of it", "why", title="incidents")
    for one in incidents:
        split = ", ".join(
            f"{part} {'not known' if micros is None else seconds(micros / 1e6)}"
            for part, micros in one.micros.items()
            if micros != 0
        )
        batches = "–" if one.batches is None else str(one.batches)
        head = (seconds(one.after_s), one.kind, str(one.position), batches, seconds(one.cost_s))
        table.add_row(*head, split, escape(one.why[:120]))
    return table


def _state(look: Whereabouts) -> str:
    return f"[red]{look.state}[/red]" if look.silent or look.phase == "stopped" else look.state


def _loss(loss: float | None) -> str:
    return "–" if loss is None else f"{loss:.4g}"


def _fraction(fraction: float | None) -> str:
    return "–" if fraction is None else f"{fraction:.2%}"
