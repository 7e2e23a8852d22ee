"""Serving that gives less instead of stopping, and finds its way back.

``failsoft.serving.build_app`` and what it takes are here by name; nothing is loaded before it is asked for, so that the
pure parts stay free of Ray.
"""

from typing import TYPE_CHECKING

from failsoft.serving.public import found_later

if TYPE_CHECKING:
    from failsoft.serving.app import build_app as build_app
    from failsoft.serving.fallback.plain_rungs import ConstantRung as ConstantRung
    from failsoft.serving.fallback.plain_rungs import FunctionRung as FunctionRung
    from failsoft.serving.fallback.rungs import trees_and_rules as trees_and_rules
    from failsoft.serving.intake.inputs import Instances as Instances
    from failsoft.serving.intake.inputs import Texts as Texts
    from failsoft.serving.publishing import Labelled as Labelled
    from failsoft.serving.publishing import publish_own as publish_own
    from failsoft.serving.quality.classes import Classification as Classification
    from failsoft.serving.quality.intents import IntentsAndEntities as IntentsAndEntities
    from failsoft.serving.quality.numbers import Regression as Regression
    from failsoft.serving.quality.own import OwnConfidence as OwnConfidence
    from failsoft.serving.quality.own import same_top as same_top
    from failsoft.serving.quality.tags import Tagging as Tagging
    from failsoft.serving.seam import Judged as Judged
    from failsoft.serving.seam import Predictor as Predictor
    from failsoft.serving.seam import Quality as Quality
    from failsoft.serving.seam import Rung as Rung
    from failsoft.serving.seam import RungAnswer as RungAnswer
    from failsoft.serving.settings import ServeSettings as ServeSettings
    from failsoft.serving.task import AppSpec as AppSpec
    from failsoft.serving.web.forms import AnswerForm as AnswerForm

__getattr__ = found_later
