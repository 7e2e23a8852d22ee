"""Good forms of the files that are read, to be made odd."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from failsoft.artifacts.manifest import Manifest
from failsoft.serving.plan.planstore import RolloutState
from failsoft.training.letters.letter import DeadLetter
from tests.serving.fakes import plan

LETTER = asdict(DeadLetter(position=3, step=2, rank=0, reason="loss", sample_ids=(4, 5), sample_count=2))
PLAN = plan()
STATE = RolloutState(plan=PLAN, since_epoch=1).as_json()
MANIFEST_BODY: dict[str, Any] = json.loads(
    Manifest(kind="release", created_at_s=1.0, files={}, meta={"a": 1}).to_json()
)
SNIPS: dict[str, Any] = {"PlayMusic": [{"data": [{"text": "play "}, {"text": "jazz", "entity": "genre"}]}] * 3}
CLINC: dict[str, Any] = {
    key: [["play some jazz", "music"], ["hello there", "oos"]]
    for key in ("train", "val", "test", "oos_train", "oos_val", "oos_test")
}
NOTE: dict[str, Any] = {
    "owner": {"run": "r", "rank": 0, "world": 1, "bound": "b"},
    "moment": {"group": "g", "number": 1, "position": 2, "step": 2},
    "body": "a.bin",
    "size_bytes": 8,
    "checksum": "",
    "place": "each_rank",
    "parts": "[]",
    "scalars": {},
    "rng": {},
    "beside": {},
    "format": 1,
}
REPORT: dict[str, Any] = {
    "release": "r1",
    "results": [{"name": "slots", "passed": True, "why": "w", "value": 1.0}],
    "against": None,
    "notes": [],
    "facts": {},
}
SPAN = {
    "v": 1,
    "at_s": 1.0,
    "span_s": 5.0,
    "gateway": "g",
    "stage": "serving",
    "answers": {"rules": {"weak": 3}},
    "confidence": [0] * 10,
    "slowest_ms": 3.0,
}
