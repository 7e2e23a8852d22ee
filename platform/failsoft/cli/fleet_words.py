"""A simulated fleet in words, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from failsoft.cli.app import console
from failsoft.cli.plan_words import duration
from failsoft.cli.said import print_json
from failsoft.training.fleet.faults import GPUS_PER_NODE, Fault
from failsoft.training.fleet.setting import Part
from failsoft.training.fleet.study import PUBLISHED, Lever, Mean, Study


def print_study(study: Study, tried: Sequence[Lever], *, json_: bool) -> None:
    """As JSON alone, or as tables and sentences."""
    if json_:
        print_json(as_json(study, tried))
        return
    console.print(time_table(study))
    if tried:
        console.print(lever_table(tried))
    for line in words(study):
        console.print(line, highlight=False)


def time_table(study: Study) -> Table:
    """What the wall time went to, on average."""
    table = Table("what the time went to", "share", "in all", title="a run of the fleet")
    for part in Part:
        share = study.share(part)
        if share > 0.0:
            table.add_row(str(part), f"{share:.2%}", duration(share * study.setting.days * 86_400.0))
    return table


def lever_table(tried: Sequence[Lever]) -> Table:
    """What each change buys, the best first; in points of a hundred."""
    table = Table("with", "ETTR", "buys", "95 %", title="what buys most")
    for lever in tried:
        low, high = 100.0 * lever.buys.low, 100.0 * lever.buys.high
        table.add_row(
            lever.name, f"{lever.ettr.value:.2%}", f"{100.0 * lever.buys.value:+.2f}", f"{low:+.2f} to {high:+.2f}"
        )
    return table


def words(study: Study) -> list[str]:
    """What the numbers say."""
    setting, ettr = study.setting, study.ettr
    unplanned = study.faults() - study.faults(Fault.PLANNED)
    mtbf_s = setting.faults.mtbf_s(setting.nodes)
    published = "; ".join(f"{name}: {share:.0%}" for name, share in PUBLISHED.items())
    return [
        f"{setting.nodes * GPUS_PER_NODE} GPUs on {setting.nodes} nodes and {setting.spares} spares for "
        f"{setting.days:g} days, {len(study.runs)} runs: {unplanned:.0f} unplanned and "
        f"{study.faults(Fault.PLANNED):.0f} planned interruptions in each, one every {duration(mtbf_s)} at work.",
        f"ETTR {ettr.value:.2%} (95 %: {ettr.low:.2%} to {ettr.high:.2%}); published: {published}.",
        f"A checkpoint every {duration(study.interval_s)} of work; Daly's formula, which knows only checkpoints and "
        f"restarts, says {study.formula:.2%}.",
        f"People had to come {study.by_hand:.1f} times a run.",
        "Times of this fleet are given or guessed (failsoft fleet --help); machines of your own will differ.",
    ]


def as_json(study: Study, tried: Sequence[Lever]) -> dict[str, Any]:
    """All of it as plain data."""
    setting = study.setting
    return {
        "gpus": setting.nodes * GPUS_PER_NODE,
        "nodes": setting.nodes,
        "spares": setting.spares,
        "least": setting.workers.least,
        "days": setting.days,
        "faults": setting.faults.name,
        "times": asdict(setting.times),
        "mtbf_s": setting.faults.mtbf_s(setting.nodes),
        "interval_s": study.interval_s,
        "ettr": asdict(study.ettr),
        "ettr_by_seed": [run.ettr for run in study.runs],
        "formula": study.formula,
        "published": dict(PUBLISHED),
        "shares": {str(part): study.share(part) for part in Part},
        "interruptions": {str(kind): study.faults(kind) for kind in Fault},
        "by_hand": study.by_hand,
        "levers": [{"name": one.name, "ettr": _mean(one.ettr), "buys": _mean(one.buys)} for one in tried],
    }


def _mean(mean: Mean) -> dict[str, float]:
    return asdict(mean)
