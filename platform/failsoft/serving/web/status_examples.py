"""Examples of what gateways and the controller say of themselves. Tests hold them to the schemas."""

from __future__ import annotations

from typing import Any

from failsoft import __version__

_RELEASE = "r-20260301"
PLAN_IN_SERVICE: dict[str, Any] = {
    "epoch": 12,
    "stage": "serving",
    "subject": "blue",
    "stand_in": None,
    "releases": {"blue": _RELEASE, "green": None},
    "load_generation": {"blue": 1, "green": 0},
    "share": 1.0,
    "mirror_share": 0.0,
    "forced": False,
    "forced_remaining_s": None,
    "relapses": 0,
    "why": "ramp_50 → serving: 412 answers, 3 bad",
}
_HEALTH: dict[str, Any] = {
    "status": "healthy",
    "bad": 1,
    "total": 100,
    "limit": 0.2,
    "reason": "1 bad of 100 (1.00%), below 20.00%",
    "rule": "degrade when at least 20.00% of the last 100 outcomes are bad (no verdict below 20)",
    "not_armed": None,
    "signals": {
        "rule": "quality, error, late, latency may trip; label_mix, oov, shed, bad_input, repaired may warn",
        "warnings": {},
        "outcomes": {"good": 99, "weak": 1},
        "latency": "0 of 99 slow",
        "feedback": "no late label yet",
        "drift": {"label_mix": "too few answers yet", "oov": "too few answers yet"},
        "not_judged": {},
        "callers_apart": {},
        "beside_baseline": {
            "answers": 100,
            "oov": {"live": 0.04, "healthy": 0.05},
            "words": {"live": 8.1, "healthy": 8.4},
            "label_mix": {
                "distance": 0.07,
                "by_chance": 0.08,
                "most_moved": {"PlayMusic": {"live": 0.2, "healthy": 0.14}},
            },
            "in_words": "unknown words 4% (healthy 5%); words a text 8.1 (healthy 8.4); on 100 answers",
        },
    },
}
STATUS: dict[str, Any] = {
    "gateway": "gateway-1f0c2d3e",
    "pid": 4711,
    "torch_loaded": False,
    "starting": [],
    "controller_silent_s": 0.2,
    "tripped_locally": None,
    "texts_at_models": {"blue": 2, "green": 0},
    "stand_ins_resting": {},
    "shared_window_lag": {"last_ms": 41.0, "p95_ms": 56.0, "max_ms": 59.0, "reports": 100},
    "traces": None,
    "events_not_recorded": 0,
    "epoch": 12,
    "stage": "serving",
    "plan": PLAN_IN_SERVICE,
    "health": _HEALTH,
    "fallback": {"release": _RELEASE, "refusal": None},
    "release_lacks": [],
    "rungs_resting": {},
    "mirror": {"sent": 0, "waiting": 0, "dropped": {}, "error": None},
    "late_labels": {"answers_remembered": 100, "waiting": 0},
    "counts": {
        "answers_by_source": {"primary": 99, "gbdt": 1},
        "outcomes": {"subject_good": 99, "subject_weak": 1},
        "stale_answers": {},
        "reports_given_up": 0,
    },
}
ROLLOUT: dict[str, Any] = {
    "plan": PLAN_IN_SERVICE,
    "waits_for": "nothing: the subject serves",
    "needs": {"stages": {"canary": {"answers": 100, "seconds": 300.0, "share": 0.05}}, "answers_to_compare": 158},
    "rest_remaining_s": 0.0,
    "trips": 0,
    "order": "",
    "held": "",
    "slots": 2,
    "evidence": {"in_stage": [1, 100], "on_trial": [4, 812], "stand_in": [0, 0], "active_s": 61.5},
    "health": {"status": "healthy", "reason": "1 bad of 100 (1.00%), below 20.00%"},
    "mirror": {"agree": 0, "compared": 0, "pairs": 0},
    "ready_fraction": 1.0,
    "gateways": 2,
    "dropped_reports": 0,
    "store_error": None,
    "rejected": {},
    "pid": 4712,
    "version": __version__,
    "events_not_recorded": 0,
    "profile": "production",
    "settings_error": None,
    "replicas": {"gateway-1f0c2d3e": {"epoch": 12, "silent_s": 0.2}},
    "models": {"blue-9a1b2c3d": {"pid": 4713, "release": _RELEASE, "load_generation": 1, "refusal": None}},
}
