"""What the console says at a glance, from what a gateway and the controller know. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_STAGE_WORDS = {
    "serving": "answers everything",
    "degraded": "is out of service",
    "shadow": "is out of service; it gets copies",
    "canary": "is on trial",
    "ramp_20": "is coming back",
    "ramp_50": "is coming back",
    "rejected": "was given up",
}


def now_of(status: Mapping[str, Any], rollout: Mapping[str, Any]) -> dict[str, Any]:
    """Release, stage, share, verdict in words, who answers; and the mood: good, warn or bad.

    Args:
        status: of a gateway.
        rollout: of the controller; ``{"error": …}`` when it is away.
    """
    plan, health = status["plan"], status["health"]
    stage, release = str(status["stage"]), str(plan["releases"].get(plan["subject"]) or "no release")
    share, away = float(plan["share"]), rollout.get("error")
    return {
        "glance": f"{release} {_STAGE_WORDS.get(stage, stage)}{_share(share)}. {_who(status, share)}",
        "mood": _mood(stage, health, away=bool(away)),
        "why": _why(plan, health, rollout),
        "stage": stage,
        "release": release,
        "share": share,
        "epoch": plan["epoch"],
        "gateway": status["gateway"],
    }


def arms_of(status: Mapping[str, Any], rollout: Mapping[str, Any]) -> list[list[str]]:
    """Rows of what is known of the subject beside its stand-in."""
    plan, evidence = status["plan"], rollout.get("evidence") or {}
    stand_in = plan["releases"].get(plan["stand_in"]) if plan["stand_in"] else "the fallback"
    rows = [
        ["release", str(plan["releases"].get(plan["subject"])), str(stand_in)],
        ["share of the traffic", f"{plan['share']:.0%}", f"{1.0 - plan['share']:.0%}"],
    ]
    if evidence:
        rows.append(["bad answers since shadow", _tally(evidence.get("on_trial")), _tally(evidence.get("stand_in"))])
        rows.append(["bad answers in this stage", _tally(evidence.get("in_stage")), "–"])
    mirror = rollout.get("mirror") or {}
    if mirror.get("compared"):
        rows.append(["copies that agree", f"{mirror['agree']} of {mirror['compared']}", "–"])
    health = rollout.get("health") or status["health"]
    rows.append(["verdict", f"{health['status']}: {health['reason']}", "–"])
    return rows


def history_of(
    spans: Sequence[Mapping[str, Any]], *, now_s: float, history_s: float, step_s: float
) -> list[dict[str, Any]]:
    """Answers a second by source, in equal steps that end now.

    Args:
        spans: lines of the answer history; of any gateway, in any order.
        now_s: wall time.
        history_s: how far back.
        step_s: width of a step.
    """
    count = int(history_s / step_s)
    steps: list[dict[str, float]] = [{} for _ in range(count)]
    for span in spans:
        place = count - 1 - int((now_s - float(span["at_s"])) / step_s)
        if 0 <= place < count:
            for source, whys in span["answers"].items():
                steps[place][source] = steps[place].get(source, 0.0) + sum(whys.values()) / step_s
    return [{"rates": {source: round(rate, 3) for source, rate in step.items()}} for step in steps]


def _share(share: float) -> str:
    return f" with {share:.0%} of the traffic" if 0.0 < share < 1.0 else ""


def _who(status: Mapping[str, Any], share: float) -> str:
    plan = status["plan"]
    if share >= 1.0:
        return "Weak answers are replaced one by one."
    stand_in = plan["releases"].get(plan["stand_in"]) if plan["stand_in"] else None
    return f"{stand_in or 'The fallback'} answers {'the rest' if share else 'everybody'}."


def _mood(stage: str, health: Mapping[str, Any], *, away: bool) -> str:
    if stage in {"degraded", "rejected"}:
        return "bad"
    if away or stage != "serving" or health["not_armed"]:
        return "warn"
    return {"healthy": "good", "degraded": "bad"}.get(str(health["status"]).lower(), "warn")


def _why(plan: Mapping[str, Any], health: Mapping[str, Any], rollout: Mapping[str, Any]) -> str:
    parts = [f"Because: {plan['why']}."] if plan["why"] else []
    if rollout.get("error"):
        parts.append(f"The controller is away ({rollout['error']}); the last plan holds, and gateways trip alone.")
    elif rollout.get("waits_for"):
        parts.append(f"It waits for: {rollout['waits_for']}.")
    parts.append(f"This gateway's window: {health['status']}, {health['reason']}.")
    if health["not_armed"]:
        parts.append(f"Its health is not watched: {health['not_armed']}.")
    return " ".join(parts)


def _tally(tally: Sequence[int] | None) -> str:
    return f"{tally[0]} of {tally[1]}" if tally and tally[1] else "none counted"
