"""Own model, own quality, own fallback behind all nets: ``python docs/own_model.py [HOME]``. No part needs torch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from ray import serve

from failsoft.artifacts.bundle import Bundle
from failsoft.serving import AppSpec, ConstantRung, FunctionRung, Instances, Regression, Rung, build_app, publish_own


class Prices:
    """Square metres and rooms in, the price of a flat and its uncertainty out."""

    def __init__(self, weights: np.ndarray) -> None:
        self.weights = weights

    @classmethod
    def load(cls, bundle: Bundle) -> Prices:
        """Runs in each model replica; raise, and the release before goes on."""
        return cls(np.load(bundle.file("weights.npy"), allow_pickle=False))

    def predict(self, batch: list[tuple[float, float]]) -> dict[str, np.ndarray]:
        """Scores of a batch: arrays, rows in the order asked."""
        return {"mean": np.asarray(batch) @ self.weights, "std": np.full(len(batch), 9.0)}


def rungs(_bundle: Bundle) -> list[Rung]:
    """Who answers instead, in the gateway process: the last one answers anything, or the app does not start."""
    return [FunctionRung("by_size", lambda flat: 4.0 * flat[0]), ConstantRung(300.0, name="mean_price")]


def publish(home: Path) -> Bundle:
    """A folder of files becomes a release: measured by what will judge it in service."""
    (home / "model").mkdir(parents=True, exist_ok=True)
    np.save(home / "model/weights.npy", np.array([3.5, 20.0]))
    healthy: list[Any] = [[30.0 + metres, 1.0 + metres // 25] for metres in range(100)]
    return publish_own(config, home / "model", healthy=healthy, home=home)


flats = Instances(schema=tuple[float, float], examples=[[70.0, 3.0]])
config = AppSpec(predictor=Prices, quality=Regression(tolerance=20.0), rungs=rungs, inputs=flats)

if __name__ == "__main__":
    root = Path(sys.argv[1] if sys.argv[1:] else "work")
    print("published", publish(root).name)
    serve.run(build_app(config, {"home": root}), blocking=True)
