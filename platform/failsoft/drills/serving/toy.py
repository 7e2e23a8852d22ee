"""The app that is drilled when no other is named: failsoft's nets around a model of four numbers, up in seconds.

``failsoft drill --serve failsoft.drills.serving.toy:app``. It needs no training and no torch; its release is published
into the drill's own home when the app is built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from failsoft.artifacts.bundle import Bundle
from failsoft.artifacts.home import Home
from failsoft.health.clock import SystemClock
from failsoft.serving.fallback.plain_rungs import ConstantRung, FunctionRung
from failsoft.serving.intake.inputs import Instances
from failsoft.serving.publishing import publish_own
from failsoft.serving.quality.classes import Classification
from failsoft.serving.seam import Rung
from failsoft.serving.settings import settings_of
from failsoft.serving.task import AppSpec

# B points, C corners, D = 2 coordinates

CORNERS = ("south-west", "south-east", "north-west", "north-east")
_SIGNS_DC = np.array([[-1.0, 1.0, -1.0, 1.0], [-1.0, -1.0, 1.0, 1.0]])
_SHARP = 8.0
_FILE = "weights.npy"
_SPREAD = 0.01


class Corners:
    """Points in a square in, which corner is nearest out."""

    only_computes = True

    def __init__(self, weights_DC: np.ndarray) -> None:
        self._weights_DC = weights_DC

    @classmethod
    def load(cls, bundle: Bundle) -> Corners:
        """From the release."""
        return cls(np.load(bundle.file(_FILE), allow_pickle=False))

    def predict(self, batch: Sequence[tuple[float, float]]) -> np.ndarray:
        """Logits of shape (B, C)."""
        logits_BC: np.ndarray = np.asarray(batch, dtype=np.float64) @ self._weights_DC
        return logits_BC

    def break_weights(self) -> None:
        """Noise instead of weights: a drill's planned fault."""
        self._weights_DC = np.random.Generator(np.random.PCG64(0)).normal(0.0, _SPREAD, self._weights_DC.shape)


def _rungs(_bundle: Bundle) -> list[Rung]:
    return [FunctionRung("halves", _half), ConstantRung(CORNERS[0], name="any_corner")]


def _half(point: Sequence[float]) -> str:
    """Only the north half is told apart: worse than the model, and better than nothing."""
    return "north-east" if point[1] > 0.0 else "south-east"


SPEC = AppSpec(
    predictor="failsoft.drills.serving.toy:Corners",
    quality=Classification(labels=CORNERS),
    rungs=_rungs,
    inputs=Instances(schema=tuple[float, float], examples=[[0.8, 0.7]]),
)
PAYLOADS: tuple[Any, ...] = tuple({"instance": [x, y]} for x, y in ((0.8, 0.7), (-0.6, 0.9), (0.7, -0.8), (-0.9, -0.5)))
"""What the drill asks: one point for each corner."""


def publish(home: Path) -> None:
    """The release, once."""
    root = Home.find(home)
    if root.releases(SystemClock()).newest() is not None:
        return
    files = root.root / "model"
    files.mkdir(parents=True, exist_ok=True)
    np.save(files / _FILE, _SHARP * _SIGNS_DC)
    chance = np.random.Generator(np.random.PCG64(1))
    points_BD = np.sign(chance.uniform(-1.0, 1.0, (200, 2))) * chance.uniform(0.5, 1.0, (200, 2))
    publish_own(SPEC, files, healthy=[tuple(map(float, point)) for point in points_BD], home=root.root)


def app(args: Mapping[str, Any]) -> Any:
    """Builder of the application, for ``serve run failsoft.drills.serving.toy:app home=FOLDER``."""
    from failsoft.serving.app import build_app  # noqa: PLC0415 -- Ray is loaded by whoever serves

    settings = settings_of(args)
    publish(Home.find(settings.home).root)
    return build_app(SPEC, settings)
