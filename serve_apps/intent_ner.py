"""The example app: intent and entities behind the gateway. All of it but the model is the product's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.serve import Application

from failsoft.serving.app import build_app
from failsoft.serving.fallback.rungs import trees_and_rules
from failsoft.serving.intents import INTENT_ANSWERS
from failsoft.serving.quality.intents import IntentsAndEntities
from failsoft.serving.settings import ServeSettings, settings_of
from failsoft.serving.task import AppSpec, app_named

__all__ = ["APP_NAME", "ServeSettings", "app", "build", "settings_of"]

APP_NAME = "failsoft"
"""Name of the Serve application when failsoft starts it; ``serve run`` uses its own."""

SPEC = AppSpec(
    predictor="serve_apps.predictor:ServedPredictor",  # a path: only model replicas import it, and torch with it
    quality=IntentsAndEntities(),
    rungs=trees_and_rules,
    answers=INTENT_ANSWERS,
)


def build(settings: ServeSettings) -> Application:
    """The app for some settings; raises what :func:`failsoft.serving.app.build_app` does."""
    return build_app(SPEC, settings)


def app(args: Mapping[str, Any]) -> Application:
    """Builder for ``serve run serve_apps:app [home=… release=… profile=drill gateways=2 … app=module:config]``."""
    own = args.get("app")
    settings = settings_of({name: value for name, value in args.items() if name != "app"})
    return build_app(SPEC if own is None else app_named(own), settings)
