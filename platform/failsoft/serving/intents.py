"""The example's task, ready to be asked: intent and entities of a text."""

from __future__ import annotations

from failsoft.serving.fallback.rungs import trees_and_rules
from failsoft.serving.quality.intents import IntentsAndEntities
from failsoft.serving.task import Task
from failsoft.serving.web.forms import AnswerForm
from failsoft.serving.web.messages import PredictAnswer

INTENT_ANSWERS = AnswerForm(field="intent", output=str, example="PlayMusic", entities=True, model=PredictAnswer)
INTENTS = Task(rungs=trees_and_rules, quality=IntentsAndEntities(), answers=INTENT_ANSWERS)
