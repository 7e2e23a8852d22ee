"""Numbers as tables: for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table as RichTable

from failsoft.demo.answers import PhaseNumbers, Seen, stage_timeline
from failsoft.demo.incident import IncidentNumbers
from failsoft.demo.report import Table
from failsoft.demo.serving_act import Script
from failsoft.training.summary import RunSummary


def training_table(summary: RunSummary, quality: Mapping[str, Any]) -> Table:
    """What the faults cost the training run, and how good its model is."""
    resumed = ", ".join(f"{seconds:.1f} s" for seconds in summary.resume_times_s) or "–"
    rows = (
        ("batches dropped", f"{summary.batches_refused} of {summary.batches_total} ({summary.dropped_fraction:.2%})"),
        ("rollbacks to the RAM snapshot", f"{summary.rollbacks} ({summary.steps_undone} good steps undone)"),
        ("workers lost", f"{summary.worker_deaths}"),
        ("batches repeated after the restart", f"{summary.batches_repeated}"),
        ("time from the worker's death to the next new step", resumed),
        ("productive time of all training time (ETTR)", "–" if summary.ettr is None else f"{summary.ettr:.1%}"),
        ("steps applied", f"{summary.steps_applied}"),
        ("intent accuracy, test split", f"{quality['intent_accuracy']:.3f}"),
        ("slot F1 (exact span), test split", f"{quality['slot_f1']:.3f}"),
        ("training time, faults included", f"{summary.took_s:.0f} s"),
    )
    return Table(title="The training run", columns=("what", "measured"), rows=rows)


def quality_table(quality: Mapping[str, Any]) -> Table:
    """Scores on the test split, with one row for each intent."""
    overall = (
        ("intent accuracy", f"{quality['intent_accuracy']:.4f}"),
        ("slot precision", f"{quality['slot_precision']:.4f}"),
        ("slot recall", f"{quality['slot_recall']:.4f}"),
        ("slot F1 (exact span)", f"{quality['slot_f1']:.4f}"),
        ("texts", f"{quality['samples']}"),
    )
    by_intent = tuple((f"  {name}", f"{one['accuracy']:.4f}") for name, one in sorted(quality["per_intent"].items()))
    return Table(title="Quality on the test split", columns=("what", "measured"), rows=overall + by_intent)


def incident_table(numbers: IncidentNumbers, seen: Sequence[Seen], script: Script) -> Table:
    """What the incident cost the users."""
    during = [one for one in seen if one.phase == "incident"]
    lost = sum(one.lost for one in during)
    rows = (
        ("first bad answer → first replica on the fallback", _ms(numbers.until_first_switch_ms)),
        ("first bad answer → last replica on the fallback", _ms(numbers.until_last_replica_ms)),
        ("bad answers replaced one by one before the switch", f"{numbers.replaced_before_switch}"),
        ("answers of the broken model that reached users", f"{numbers.model_answers_let_through}"),
        ("of these, wrong", f"{numbers.wrong_let_through}"),
        ("requests during the incident", f"{len(during)}"),
        ("requests lost (no 200)", f"{lost}"),
        ("success rate during the incident", f"{1 - lost / max(1, len(during)):.2%}"),
        ("cause removed → back at 100 %", f"{script.returned_at_s - script.mended_at_s:.1f} s (drill profile)"),
    )
    return Table(title="The incident", columns=("what", "measured"), rows=rows)


def phases_table(phases: Sequence[PhaseNumbers]) -> Table:
    """Who answered, how fast, how right, phase by phase."""
    columns = ("phase", "requests", "lost", "right intent", "model's confidence", "answered by", "p50 ms", "p99 ms")
    return Table(title="Answers by phase", columns=columns, rows=tuple(_phase_row(phase) for phase in phases))


def stages_table(seen: Sequence[Seen]) -> Table:
    """When each stage began, as the clients saw it."""
    timeline = stage_timeline(seen)
    start_s = min(one.sent_s for one in seen)
    rows = tuple((f"{at_s - start_s:6.1f} s", stage.upper()) for at_s, stage in timeline)
    return Table(title="Stages", columns=("traffic time", "stage"), rows=rows)


def to_rich(table: Table) -> RichTable:
    """The same table for the terminal."""
    rich = RichTable(title=table.title, title_justify="left", header_style="bold")
    for index, column in enumerate(table.columns):
        rich.add_column(column, justify="left" if index == 0 else "right", overflow="fold")
    for row in table.rows:
        rich.add_row(*row)
    return rich


def status_table(answer: Mapping[str, Any]) -> RichTable:
    """A gateway's status for people."""
    plan, health = answer["plan"], answer["health"]
    rows = [
        ("stage", f"{answer['stage']} (plan epoch {answer['epoch']})"),
        ("why", str(plan.get("why", ""))),
        ("subject", f"{plan['subject']}: {plan['releases'].get(plan['subject'])}"),
        ("share of live traffic", f"{plan['share']:.0%}, mirrored {plan['mirror_share']:.0%}"),
        ("verdict of this replica's window", f"{health['status']}: {health['reason']}"),
        ("rule", str(health["rule"])),
        ("answers by source", _mix(answer["counts"]["answers_by_source"])),
    ]
    if health.get("not_armed"):
        rows.append(("monitor", str(health["not_armed"])))
    signals = health.get("signals", {})
    if signals.get("beside_baseline"):
        rows.append(("beside its validation texts", str(signals["beside_baseline"]["in_words"])))
    rows += [(f"warning: {signal}", str(why)) for signal, why in signals.get("warnings", {}).items()]
    rows += [(f"caller {caller}, judged alone", str(why)) for caller, why in signals.get("callers_apart", {}).items()]
    return to_rich(Table(title=f"Gateway {answer['gateway']}", columns=("what", "now"), rows=tuple(rows)))


def _phase_row(phase: PhaseNumbers) -> tuple[str, ...]:
    confidence = "–" if phase.mean_confidence is None else f"{phase.mean_confidence:.2f}"
    sources = ", ".join(f"{source} {share:.0%}" for source, share in phase.sources.items())
    right = f"{phase.right_fraction:.1%}"
    head = (phase.phase, f"{phase.requests}", f"{phase.lost}", right, confidence, sources)
    return (*head, f"{phase.p50_ms:.0f}", f"{phase.p99_ms:.0f}")


def _mix(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{source} {count}" for source, count in counts.items()) or "none yet"


def _ms(value: float | None) -> str:
    return "none: see the stages" if value is None else f"{value:.0f} ms"
