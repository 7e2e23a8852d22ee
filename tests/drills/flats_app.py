"""A small app of an own model for drills of whole clusters; in a Serve config: ``tests.drills.flats_app:app``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ray.serve import Application

from failsoft.artifacts.bundle import Bundle
from failsoft.serving import AppSpec, ConstantRung, FunctionRung, Instances, Regression, Rung, build_app, publish_own

FLATS = [[70.0, 3.0], [45.0, 2.0], [110.0, 4.0]]
"""What callers ask."""


class Prices:
    """Square metres and rooms in, a price and its uncertainty out."""

    def __init__(self, weights: np.ndarray) -> None:
        self.weights = weights

    @classmethod
    def load(cls, bundle: Bundle) -> Prices:
        return cls(np.load(bundle.file("weights.npy"), allow_pickle=False))

    def predict(self, batch: list[tuple[float, float]]) -> dict[str, np.ndarray]:
        return {"mean": np.asarray(batch) @ self.weights, "std": np.full(len(batch), 9.0)}

    def break_weights(self) -> None:
        """A planned fault."""
        self.weights = self.weights * float("nan")


def rungs(_bundle: Bundle) -> list[Rung]:
    return [FunctionRung("by_size", lambda flat: 4.0 * flat[0]), ConstantRung(300.0, name="mean_price")]


SPEC = AppSpec(
    predictor="tests.drills.flats_app:Prices",
    quality=Regression(tolerance=20.0),
    rungs=rungs,
    inputs=Instances(schema=tuple[float, float], examples=[[70.0, 3.0]]),
)


def publish_flats(home: Path) -> str:
    """A release of it; its name."""
    (home / "model").mkdir(parents=True, exist_ok=True)
    np.save(home / "model/weights.npy", np.array([3.5, 20.0]))
    healthy: list[Any] = [[30.0 + metres, 1.0 + metres // 25] for metres in range(100)]
    return publish_own(SPEC, home / "model", healthy=healthy, home=home).name


def app(args: Mapping[str, Any]) -> Application:
    """The builder that Serve calls."""
    return build_app(SPEC, args)


def right(body: Mapping[str, Any], flat: list[float]) -> bool:
    """Whether an answer is what the model or a rung really says of this flat: the oracle."""
    rungs_say = {"by_size": 4.0 * flat[0], "mean_price": 300.0}
    by_a_model = 3.5 * flat[0] + 20.0 * flat[1]  # in service, or on trial
    return bool(abs(float(body["output"]) - rungs_say.get(str(body["source"]), by_a_model)) < 1e-6)
