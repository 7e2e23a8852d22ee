"""A tiny corpus and network, trained in a second."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from failsoft.models.corpus import Corpus
from failsoft.models.embedded import Sizes, embedded_corpus
from failsoft.models.encoding import encode_corpus
from failsoft.models.labels import LabelSet
from failsoft.models.learning import loss_of, make_optimizer, schedule, to_tensors
from failsoft.models.network import build, network_config
from failsoft.models.predictor import IntentNerPredictor
from failsoft.models.recipe import Recipe, Shape
from failsoft.models.tokens import TextCodec

RECIPE = Recipe(
    name="toy",
    epochs=8,
    batch_size=16,
    learning_rate=1e-2,
    shape=Shape(
        word_width=32, char_width=8, char_filters=32, width=32, layers=1, heads=2, inner_width=64, dropout=0.05
    ),
)


@cache
def toy_corpus() -> Corpus:
    return embedded_corpus(seed=5, sizes=Sizes(train=1000, validation=100, test=200))


def train(corpus: Corpus, recipe: Recipe, *, seed: int = 0) -> IntentNerPredictor:
    """A plain loop in one process: what the guarded one must not be worse than."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    codec, labels = TextCodec.train([u.text for u in corpus.train], recipe.codec), LabelSet.of(corpus)
    split = encode_corpus(corpus.train, codec, labels).for_training(recipe.distortion)
    model = build(network_config(recipe, codec, labels))
    optimizer = make_optimizer(model, recipe)
    rates = schedule(optimizer, recipe, recipe.total_steps(len(split)))
    rng = np.random.default_rng(seed)
    for _ in range(recipe.epochs):
        order = rng.permutation(len(split))
        for first in range(0, len(split), recipe.batch_size):
            loss = loss_of(model, to_tensors(split.take(order[first : first + recipe.batch_size])), recipe)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.max_grad_norm)
            optimizer.step()
            rates.step()
    return IntentNerPredictor(model, codec, labels)


@cache
def toy_predictor() -> IntentNerPredictor:
    return train(toy_corpus(), RECIPE)
