"""What the console says at a glance, from what a gateway and the controller know. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import ceil, floor
from typing import Any

_LONGEST_STEPS = 100
_GOOD, _FLAWS = ("none",), ("weak", "late", "error")
_STAGE_WORDS = {
    "serving": "answers everything",
    "degraded": "is out of service",
    "shadow": "is out of service; it gets copies",
    "canary": "is on trial",
    "ramp_20": "is coming back",
    "ramp_50": "is coming back",
    "rejected": "was given up",
}

_NOTHING = "nothing"
_BUT = {"overload": "only a part: it has no room for the rest", "bad_input": "what can be read"}


def now_of(
    status: Mapping[str, Any],
    rollout: Mapping[str, Any],
    waves: Collection[str] = (),
    told: Collection[str] = (),
) -> dict[str, Any]:
    """Release, stage, share, verdict in words, who answers; and the mood: good, warn or bad.

    Args:
        status: of a gateway.
        rollout: of the controller; ``{"error": …}`` when it is away.
        waves: kinds of the waves that go on: a model that gets everything does not answer everything then.
        told: reasons that stand beside this already; in the night nobody wants to read them twice. Why a model is in
            service is not told in a wave either: it has nothing to do with it.
    """
    plan, health = status["plan"], status["health"]
    stage, release = str(status["stage"]), str(plan["releases"].get(plan["subject"]) or "no release")
    share, away = float(plan["share"]), rollout.get("error")
    return {
        "glance": f"{release} {_does(stage, waves)}{_share(share)}. {_who(status, share)}",
        "mood": _mood(stage, health, is_calm=not (away or waves)),
        "why": _why(plan, health, rollout, [plan["why"]] if stage == "serving" and waves else told),
        "stage": stage,
        "release": release,
        "share": share,
        "epoch": plan["epoch"],
        "gateway": status["gateway"],
    }


def releases_of(status: Mapping[str, Any]) -> list[str]:
    """Those of the plan: the subject's and the stand-in's."""
    plan = status["plan"]
    return [
        release for colour in (plan["subject"], plan["stand_in"]) if colour and (release := plan["releases"][colour])
    ]


def arms_of(
    status: Mapping[str, Any], rollout: Mapping[str, Any], gates: Callable[[str | None], str] = lambda _release: "–"
) -> list[list[str]]:
    """Rows of what is known of the subject beside its stand-in; ``gates`` says how a release's gates ended."""
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
    beside = plan["releases"].get(plan["stand_in"]) if plan["stand_in"] else None
    rows.append(["gates", gates(plan["releases"].get(plan["subject"])), gates(beside)])
    health = rollout.get("health") or status["health"]
    rows.append(["verdict", f"{health['status']}: {health['reason']}", "–"])
    return rows


def history_of(
    spans: Sequence[Mapping[str, Any]], *, now_s: float, history_s: float, step_s: float
) -> list[dict[str, Any]]:
    """Answers a second by source, and the bad share of the model's, in equal steps; a span fills the time it took.

    The share is None where the model was not asked.

    The last step ends with the last span that was heard of: what is being counted just now would look like a fall. When
    that is longer ago than two steps, nobody was answered, and the steps end now.

    Args:
        spans: lines of the answer history; of any gateway, in any order. One that does not say how long it took is
            taken for a step.
        now_s: wall time.
        history_s: how far back.
        step_s: width of a step.
    """
    count = int(history_s / step_s)
    newest_s = max((float(span["at_s"]) for span in spans if span["at_s"] <= now_s), default=now_s)
    end_s = newest_s if now_s - newest_s < 2 * step_s else now_s
    steps, asked, bad = [dict[str, float]() for _ in range(count)], [0.0] * count, [0.0] * count
    for span in spans:
        sources = {source: sum(whys.values()) for source, whys in span["answers"].items()}
        good, flawed = (sum(whys.get(w, 0) for whys in span["answers"].values() for w in ws) for ws in (_GOOD, _FLAWS))
        for place, part in _parts(span, end_s - history_s, step_s):
            if 0 <= place < count:
                asked[place] += part * (good + flawed)
                bad[place] += part * flawed
                for source, answers in sources.items():
                    steps[place][source] = steps[place].get(source, 0.0) + part * answers / step_s
    shares = [round(flawed / total, 4) if total > 0.0 else None for flawed, total in zip(bad, asked, strict=True)]
    return [
        {"rates": {source: round(rate, 3) for source, rate in step.items()}, "bad": share}
        for step, share in zip(steps, shares, strict=True)
    ]


def window_of(status: Mapping[str, Any]) -> dict[str, Any]:
    """The gateway's own window over the model's answers, in numbers; what is not known is None."""
    health = status["health"]
    return {name: health.get(name) for name in ("bad", "total", "limit")}


def _parts(span: Mapping[str, Any], start_s: float, step_s: float) -> list[tuple[int, float]]:
    """In which steps the span lies, and with which part of it."""
    took_s = float(span.get("span_s", step_s))
    if not 0.0 < took_s <= _LONGEST_STEPS * step_s:
        took_s = step_s
    end = (float(span["at_s"]) - start_s) / step_s
    begin = end - took_s / step_s
    inside = ((place, min(end, place + 1) - max(begin, place)) for place in range(floor(begin), ceil(end)))
    return [(place, steps * step_s / took_s) for place, steps in inside]


def _share(share: float) -> str:
    return f" with {share:.0%} of the traffic" if 0.0 < share < 1.0 else ""


def _who(status: Mapping[str, Any], share: float) -> str:
    plan = status["plan"]
    if share >= 1.0:
        return "Weak answers are replaced one by one."
    stand_in = plan["releases"].get(plan["stand_in"]) if plan["stand_in"] else None
    return f"{stand_in or 'The fallback'} answers {'the rest' if share else 'everybody'}."


def _does(stage: str, waves: Collection[str]) -> str:
    if stage == "serving" and waves:
        return "answers " + " and ".join(_BUT[kind] for kind in sorted(waves))
    return _STAGE_WORDS.get(stage, stage)


def _mood(stage: str, health: Mapping[str, Any], *, is_calm: bool) -> str:
    if stage in {"degraded", "rejected"}:
        return "bad"
    if not is_calm or stage != "serving" or health["not_armed"]:
        return "warn"
    return {"healthy": "good", "degraded": "bad"}.get(str(health["status"]).lower(), "warn")


def _why(plan: Mapping[str, Any], health: Mapping[str, Any], rollout: Mapping[str, Any], told: Collection[str]) -> str:
    parts = [f"Because: {plan['why']}."] if plan["why"] and plan["why"] not in told else []
    if rollout.get("error"):
        parts.append(f"The controller is away ({rollout['error']}); the last plan holds, and gateways trip alone.")
    elif not str(rollout.get("waits_for") or _NOTHING).startswith(_NOTHING):
        parts.append(f"It waits for: {rollout['waits_for']}.")
    parts.append(f"This gateway's window: {health['status']}, {health['reason']}.")
    warnings = health.get("signals", {}).get("warnings")
    if warnings:
        parts.append(f"It warns of {'; '.join(f'{signal}: {why}' for signal, why in warnings.items())}.")
    apart = health.get("signals", {}).get("callers_apart") or {}
    parts += [f"Caller {caller} is judged alone: {why}." for caller, why in apart.items()]
    if health["not_armed"]:
        parts.append(f"Its health is not watched: {health['not_armed']}.")
    return " ".join(parts)


def _tally(tally: Sequence[int] | None) -> str:
    return f"{tally[0]} of {tally[1]}" if tally and tally[1] else "none counted"
