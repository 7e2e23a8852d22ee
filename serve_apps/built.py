"""The example as an application that is built when it is imported: what ``serve build serve_apps.built:app`` asks for.

``serve build`` takes no function that makes one. The settings are the defaults, the home is ``$FAILSOFT_HOME``; what it
writes has ``host: 0.0.0.0``, so say 127.0.0.1 there before it is deployed. Where arguments are wanted,
``serve_apps:app`` is the import path, as deploy/serve.yaml has it.
"""

from __future__ import annotations

from failsoft.serving.settings import ServeSettings
from serve_apps.intent_ner import build

__all__ = ["app"]

app = build(ServeSettings())
