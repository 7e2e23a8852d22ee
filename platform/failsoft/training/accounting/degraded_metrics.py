"""What was degraded in a run, in Prometheus' text format."""

from __future__ import annotations

from failsoft.training.accounting.degraded import Degraded, Standing


def as_metrics(found: Degraded, *, run: str) -> str:
    """In Prometheus' text format, for a textfile collector; what isn't known is left out."""
    name = _quoted(run)
    head = "failsoft_run_degraded"
    lines = [f"# HELP {head}_fraction Part of a run that was degraded in any way.", f"# TYPE {head}_fraction gauge"]
    for unit, value in (("batches", found.fraction_of_batches), ("time", found.fraction_of_time)):
        if value is not None:
            lines.append(f'{head}_fraction{{run="{name}",of="{unit}"}} {value}')
    for what, help_ in (
        ("batches", "Batches worked on"),
        ("seconds", "Time at work"),
        ("open", "1 where it holds now"),
    ):
        lines += [f"# HELP {head}_{what} {help_}, by kind of degradation.", f"# TYPE {head}_{what} gauge"]
        for kind, one in found.kinds.items():
            lines.append(f'{head}_{what}{{run="{name}",kind="{kind}"}} {float(getattr(one, what))}')
    return "\n".join(lines + _standing(found, name)) + "\n"


def _standing(found: Degraded, run: str) -> list[str]:
    """Since when each holds, and how many times longer a slow rank takes."""
    since, factor = "failsoft_run_degraded_since_seconds", "failsoft_run_slow_rank_factor"
    lines = [f"# HELP {since} Wall time since which it holds.", f"# TYPE {since} gauge"]
    for one in found.standing:
        lines.append(f'{since}{{run="{run}",kind="{_quoted(one.kind)}",name="{_quoted(one.name)}"}} {one.since_s}')
    slow = [one for one in found.standing if isinstance(one.data.get("factor"), float) and "host" in one.data]
    lines += [f"# HELP {factor} Its time over the others' median.", f"# TYPE {factor} gauge"]
    return [*lines, *(f'{factor}{{run="{run}",{_whose(one)}}} {one.data["factor"]}' for one in slow)]


def _whose(one: Standing) -> str:
    return f'rank="{_quoted(str(one.data.get("rank")))}",host="{_quoted(str(one.data["host"]))}"'


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
