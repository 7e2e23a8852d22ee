"""Where the rollout stands, in rows for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Rows = tuple[tuple[str, str], ...]


def rollout_rows(gateway: Mapping[str, Any], rollout: Mapping[str, Any]) -> Rows:
    """What the controller knows, and what of this gateway replica is out of order.

    Args:
        gateway: its own status.
        rollout: the controller's, or ``{"error": …}`` when it is away.
    """
    known = _away(rollout, gateway) if "error" in rollout else _known(rollout)
    return (*known, *_this_replica(gateway))


def _away(rollout: Mapping[str, Any], gateway: Mapping[str, Any]) -> Rows:
    silent_s = gateway.get("controller_silent_s")
    heard = "never heard" if silent_s is None else f"silent for {silent_s:.1f} s"
    return (("controller", f"{heard}; the last plan holds, and replicas trip alone: {rollout['error']}"),)


def _known(rollout: Mapping[str, Any]) -> Rows:
    plan, evidence = rollout["plan"], rollout["evidence"]
    bad, total = evidence["in_stage"]
    rows = [
        ("waits for", str(rollout["waits_for"])),
        ("shared window", f"{rollout['health']['status']}: {rollout['health']['reason']}"),
        ("answers of the subject in this stage", f"{total}, {bad} of them bad, in {evidence['active_s']:.0f} s"),
        ("rest", f"{rollout['rest_remaining_s']:.0f} s left" if rollout["rest_remaining_s"] else "none"),
        ("relapses", str(plan["relapses"])),
        ("replicas", _replicas(rollout.get("replicas", {}), epoch=plan["epoch"])),
        ("gateways that report", str(rollout["gateways"])),
    ]
    rows += _copies(rollout.get("mirror", {}), plan.get("mirror_share", 0.0))
    rows += _needed(rollout.get("needs", {}))
    rows += _order(rollout)
    rows += [("given up", f"{name}: {why}") for name, why in rollout["rejected"].items()]
    rows += _models(rollout.get("models", {}))
    rows += [("storage", str(rollout["store_error"]))] if rollout["store_error"] else []
    rows += [("stage settings", str(rollout["settings_error"]))] if rollout.get("settings_error") else []
    return (*rows, *_unrecorded("controller", rollout))


def _copies(mirror: Mapping[str, Any], share: float) -> list[tuple[str, str]]:
    """How copies compare with the live answers that they were made of."""
    compared, words = mirror.get("compared"), [f"{share:.1%} of the traffic"] if share else []
    words += [f"{mirror['agree']} of {compared} agree"] if compared else []
    if mirror.get("pairs"):
        shift, kl = mirror["confidence_shift"], mirror["confidence_kl"]
        words.append(f"confidence {shift:+.3f} (KL {kl:.3f})")
        words.append(f"{mirror['latency_ms']:.1f} ms against {mirror['live_latency_ms']:.1f} ms")
    return [("copies beside live answers", ", ".join(words))] if words else []


def _needed(needs: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not needs:
        return []
    stages = [f"{name} {asks['answers']} in {asks['seconds']:.0f} s or more" for name, asks in needs["stages"].items()]
    compare = needs["answers_to_compare"]
    enough = f"{compare} since shadow" if compare else "no number of them yet: too little is known of what stands in"
    return [("answers that stages need", ", ".join(stages)), ("answers that a comparison needs", enough)]


def _order(rollout: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(what, str(rollout[what])) for what in ("order", "held") if rollout.get(what)]


def _replicas(replicas: Mapping[str, Mapping[str, Any]], *, epoch: int) -> str:
    """Those at the plan's epoch are counted, those behind are named."""
    behind = [f"{name} at {seen['epoch']}" for name, seen in replicas.items() if seen["epoch"] < epoch]
    at = f"{len(replicas) - len(behind)} of {len(replicas)} at epoch {epoch}"
    return f"{at}; behind: {', '.join(behind)}" if behind else at


def _models(models: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    return [(f"model {name}", _model(held)) for name, held in models.items()]


def _model(held: Mapping[str, Any]) -> str:
    """What a model replica has loaded; with one slot also the last swap, and what there is to go back to."""
    words = [f"{held['release']}, load {held['load_generation']}" if held["release"] else "nothing"]
    words += ["reading"] if held.get("loading") else []
    words += [str(held[what]) for what in ("swap", "refusal") if held.get(what)]
    if held.get("in_host_memory"):
        words.append(f"in host memory: {', '.join(held['in_host_memory'])}")
    words += [f"{name} is not: {why}" for name, why in held.get("not_in_host_memory", {}).items()]
    return "; ".join(words)


def _this_replica(gateway: Mapping[str, Any]) -> Rows:
    resting = {**gateway.get("rungs_resting", {}), **gateway.get("stand_ins_resting", {})}
    rows = [("arms that rest here", ", ".join(f"{arm}: {why}" for arm, why in resting.items()) or "none")]
    if gateway.get("tripped_locally"):
        rows.append(("held back by this replica", str(gateway["tripped_locally"])))
    lag = gateway.get("shared_window_lag") or {}
    if lag.get("reports"):
        words = f"{lag['last_ms']:.0f} ms now, {lag['max_ms']:.0f} ms at most in {lag['reports']} reports"
        rows.append(("shared window is behind by", words))
    return (*rows, *_unrecorded("this replica", gateway))


def _unrecorded(whose: str, status: Mapping[str, Any]) -> Rows:
    count = status.get("events_not_recorded", 0)
    return ((f"events of {whose} not in the ledger", f"{count}; see that its disk can be written"),) if count else ()
