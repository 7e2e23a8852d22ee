"""Examples for the API's description. Tests hold them to the schemas, and to what the routes really say."""

from __future__ import annotations

from typing import Any

ABOUT = (
    "Answers come from the release in service, from one on trial, from the release before, or from a fallback that "
    "needs no model; each says which, and why. Errors are problems of RFC 9457. Orders need the operator's token."
)

PREDICT_REQUESTS: dict[str, Any] = {
    "one": {"summary": "One text", "value": {"text": "play some jazz in the kitchen", "key": "user-17"}},
    "several": {
        "summary": "Several texts, answered item by item",
        "value": {"texts": ["wake me at seven", "will it rain tomorrow"], "request_id": "b-1", "timeout_ms": 150.0},
    },
}

_ANSWER: dict[str, Any] = {
    "request_id": "7c0f",
    "intent": "PlayMusic",
    "confidence": 0.98,
    "entities": [{"start": 10, "end": 14, "slot": "genre", "text": "jazz", "confidence": 0.93}],
    "source": "primary",
    "degrade_reason": None,
    "refused_confidence": None,
    "release": "r-20260301",
    "stage": "serving",
    "epoch": 12,
    "latency_ms": 6.2,
}
_FROM_RULES: dict[str, Any] = {
    "request_id": "7c10",
    "intent": "unknown",
    "confidence": None,
    "entities": [],
    "source": "rules",
    "degrade_reason": "confidence 0.31 is below 0.65",
    "refused_confidence": 0.31,
    "release": None,
    "stage": "serving",
    "epoch": 12,
    "latency_ms": 6.9,
}
PREDICT_ANSWERS: dict[str, Any] = {
    "model": {"summary": "The model answers", "value": _ANSWER},
    "fallback": {"summary": "The model's answer would not do", "value": _FROM_RULES},
    "several": {"summary": "Several texts", "value": {"answers": [_ANSWER, _FROM_RULES]}},
}

FORCES: dict[str, Any] = {
    "for a time": {"value": {"for_s": 7200.0, "why": "the model answers oddly since 02:15", "by": "anna"}},
    "until restored": {"value": {"why": "maintenance of the model's node"}},
}
REASONS: dict[str, Any] = {"done": {"value": {"why": "the node is back"}}}
RELEASE_NAME = "r-20260301"

PLAN: dict[str, Any] = {
    "epoch": 13,
    "stage": "degraded",
    "subject": "blue",
    "stand_in": None,
    "releases": {"blue": "r-20260301", "green": None},
    "load_generation": {"blue": 1, "green": 0},
    "share": 0.0,
    "mirror_share": 0.0,
    "forced": True,
    "forced_remaining_s": 7200.0,
    "relapses": 0,
    "why": "SERVING → DEGRADED: the model answers oddly since 02:15",
}

DETAILS: dict[int, str] = {
    400: "no plan can be made of this order; see what it says and send another",
    401: "this route is the operator's: send 'Authorization: Bearer TOKEN'",
    404: "no release named 'r-20260301'; there: r-20260215",
    409: "release r-20260301 is damaged: weights do not fit their digest; publish it again",
    413: "the body is larger than 1048576 bytes; send fewer or shorter texts",
    422: "body: give either text or texts, not both and not none",
    429: "256 requests are being answered here, no more are taken; try again in 1 s",
    500: "the gateway failed at this request, which its log tells more of; try again",
    503: "the plan could not be stored: the disk is full; free some space and send the order again",
}
