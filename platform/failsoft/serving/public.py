"""The names that ``failsoft.serving`` hands on, and where they are; each is loaded when it is first asked for."""

from __future__ import annotations

import importlib
from typing import Any

_WHERE = {
    "AnswerForm": "web.forms",
    "AppSpec": "task",
    "Classification": "quality.classes",
    "ConstantRung": "fallback.plain_rungs",
    "FunctionRung": "fallback.plain_rungs",
    "Instances": "intake.inputs",
    "IntentsAndEntities": "quality.intents",
    "Judged": "seam",
    "Labelled": "publishing",
    "OwnConfidence": "quality.own",
    "Predictor": "seam",
    "Quality": "seam",
    "Regression": "quality.numbers",
    "Rung": "seam",
    "RungAnswer": "seam",
    "ServeSettings": "settings",
    "Tagging": "quality.tags",
    "Texts": "intake.inputs",
    "build_app": "app",
    "publish_own": "publishing",
    "same_top": "quality.own",
    "trees_and_rules": "fallback.rungs",
}
PUBLIC = sorted(_WHERE)


def found_later(name: str) -> Any:
    """The public thing of this name; Python asks when ``failsoft.serving`` does not have it yet.

    Raises:
        AttributeError: nothing public has it.
    """
    if name not in _WHERE:
        raise AttributeError(f"failsoft.serving hands on no {name!r}; it has {', '.join(PUBLIC)}")
    return getattr(importlib.import_module(f"failsoft.serving.{_WHERE[name]}"), name)
