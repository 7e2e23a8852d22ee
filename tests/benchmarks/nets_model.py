"""The small models that the nets are measured with: trained once, then kept below ``build/``."""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from pathlib import Path

import torch

from failsoft.models.corpus import Corpus
from failsoft.models.network import save_weights
from failsoft.models.predictor import IntentNerPredictor
from failsoft.models.recipe import RECIPES, Recipe
from tests.models.toys import train

KEPT = Path("build/nets")
EPOCHS = 8
_ROLES = ("weights.safetensors", "network.json", "codec.json", "labels.json")


def recipe() -> Recipe:
    """The project's own recipe for published corpora, a little shorter."""
    return replace(RECIPES["snips"], epochs=EPOCHS)


def trained(corpus: Corpus, how_to: Recipe) -> tuple[IntentNerPredictor, float | None]:
    """The model, and the seconds that its training took; None where it was kept from before."""
    torch.set_num_threads(1)
    name = hashlib.sha256(f"{corpus.name} {len(corpus.train)} {how_to}".encode()).hexdigest()[:12]
    folder = KEPT / f"{corpus.name}-{name}"
    paths = {role: folder / role for role in _ROLES}
    if (folder / "whole").exists():
        return IntentNerPredictor.load_roles(paths), None
    began_s = time.perf_counter()
    predictor = train(corpus, how_to)
    took_s = time.perf_counter() - began_s
    folder.mkdir(parents=True, exist_ok=True)
    save_weights(predictor.model, paths["weights.safetensors"])
    predictor.model.config.save(paths["network.json"])
    predictor.codec.save(paths["codec.json"])
    predictor.labels.save(paths["labels.json"])
    (folder / "whole").touch()
    return predictor, took_s
