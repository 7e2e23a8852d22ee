"""A sweep of hyper-parameters on plain Ray tasks, where the gates decide what may serve.

``python -m train_jobs.sweep --home build/sweep``: trains one model for each setting, in parallel as far as the cluster
reaches, and gives each to the gates against the first, which stands for what serves. Settings that regularise too much
make a model that is about as often right, and flatter: unsure of everything, so that nothing looks wrong to whoever
watches accuracy alone, and every threshold on confidence downstream means something else. That is what stops here.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import Tensor

from failsoft.artifacts.home import Home
from failsoft.errors import GateError
from failsoft.health.clock import Clock, SystemClock
from failsoft.models.corpus import Corpus
from failsoft.models.embedded import Sizes, embedded_corpus
from failsoft.models.encoding import encode_corpus
from failsoft.models.labels import LabelSet
from failsoft.models.learning import loss_of, make_optimizer, schedule, to_tensors
from failsoft.models.network import IntentNer, build, network_config
from failsoft.models.predictor import IntentNerPredictor, evaluate_predictor
from failsoft.models.recipe import Recipe, recipe_named
from failsoft.models.tokens import TextCodec
from failsoft.release.replica import Probe
from train_jobs.config import JobConfig
from train_jobs.connect import connected
from train_jobs.publish import FinishedRun, publish_run
from train_jobs.replica import probe_replica


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One point of the sweep; what is not named is the recipe's."""

    name: str
    label_smoothing: float | None = None
    weight_decay: float | None = None
    dropout: float | None = None

    def applied_to(self, recipe: Recipe) -> Recipe:
        """The recipe with this setting."""
        return replace(
            recipe,
            label_smoothing=_given_or(self.label_smoothing, recipe.label_smoothing),
            weight_decay=_given_or(self.weight_decay, recipe.weight_decay),
            shape=replace(recipe.shape, dropout=_given_or(self.dropout, recipe.shape.dropout)),
        )


SETTINGS = (
    Setting(name="served"),
    Setting(name="less-smoothing", label_smoothing=0.02),
    Setting(name="much-smoothing", label_smoothing=0.4),
    Setting(name="much-dropout", dropout=0.8),
    Setting(name="much-decay", weight_decay=30.0),
)
"""The first is the reference."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What to train on, and how long."""

    settings: tuple[Setting, ...] = SETTINGS
    sizes: Sizes = field(default_factory=lambda: Sizes(train=3000, validation=800, test=400))
    recipe: Recipe = field(default_factory=lambda: replace(recipe_named("demo"), epochs=5))
    seed: int = 7


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What came of one setting."""

    setting: Setting
    accuracy: float
    """Of intents, on the test split."""
    release: str | None
    """None: the gates stopped it."""
    why: str = ""
    """What stopped it, in words; empty when nothing did."""
    stopped_by: tuple[str, ...] = ()
    """Names of the gates that it failed."""


def train(setting: Setting, sweep: Sweep) -> dict[str, Tensor]:
    """The final weights of one setting: a pure function of setting, recipe and seed. Runs as a Ray task."""
    torch.set_num_threads(1)
    corpus, recipe = embedded_corpus(sizes=sweep.sizes), setting.applied_to(sweep.recipe)
    codec, labels = _codec(corpus, recipe), LabelSet.of(corpus)
    split = encode_corpus(corpus.train, codec, labels).for_training(recipe.distortion)
    with torch.random.fork_rng():
        torch.manual_seed(sweep.seed)
        model = build(network_config(recipe, codec, labels))
        optimizer = make_optimizer(model, recipe)
        rates, chance = schedule(optimizer, recipe, recipe.total_steps(len(split))), np.random.default_rng(sweep.seed)
        for _ in range(recipe.epochs):
            order = chance.permutation(len(split))
            for first in range(0, len(split), recipe.batch_size):
                optimizer.zero_grad()
                loss_of(model, to_tensors(split.take(order[first : first + recipe.batch_size])), recipe).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.max_grad_norm)
                optimizer.step()
                rates.step()
    return dict(model.state_dict())


def judge(
    trained: Mapping[str, Mapping[str, Tensor]], sweep: Sweep, *, home: Home, clock: Clock, probe: Probe | None
) -> list[Judged]:
    """Give each model to the gates, the first one first: the others are compared with it, and published if they pass.

    Raises:
        GateError: the first did not pass, so there is nothing to compare with.
    """
    corpus, judged = embedded_corpus(sizes=sweep.sizes), list[Judged]()
    for setting in sweep.settings:
        finished = _finished(setting, trained[setting.name], corpus, sweep)
        if judged:
            finished = replace(finished, against=judged[0].release)
        accuracy = float(finished.quality["intent_accuracy"])
        name = f"{setting.name}-{sweep.seed}"
        passed = Judged(setting=setting, accuracy=accuracy, release=name)
        try:
            publish_run(finished, home=home, clock=clock, name=name, probe=probe)
        except GateError as error:
            if not judged:
                raise
            judged.append(replace(passed, release=None, why=str(error), stopped_by=error.gates))
        else:
            judged.append(passed)
    return judged


def table(judged: Sequence[Judged]) -> Table:
    """What came of each setting."""
    made = Table("setting", "test accuracy", "release", "what stopped it", title="sweep", title_justify="left")
    for one in judged:
        stopped = "; ".join(one.stopped_by) or "–"
        made.add_row(one.setting.name, f"{one.accuracy:.1%}", escape(one.release or "–"), escape(stopped))
    return made


def run_on_ray(sweep: Sweep) -> dict[str, dict[str, Tensor]]:
    """Train each setting as a Ray task; Ray places them, and runs one again whose worker died."""
    import ray  # noqa: PLC0415 -- after its environment

    task = ray.remote(num_cpus=1)(train)
    waiting = {setting.name: task.remote(setting, sweep) for setting in sweep.settings}
    return {name: ray.get(found) for name, found in waiting.items()}


def _given_or(given: float | None, default: float) -> float:
    return default if given is None else given


def _codec(corpus: Corpus, recipe: Recipe) -> TextCodec:
    return TextCodec.train([utterance.text for utterance in corpus.train], recipe.codec)


def _finished(setting: Setting, weights: Mapping[str, Tensor], corpus: Corpus, sweep: Sweep) -> FinishedRun:
    recipe, labels = setting.applied_to(sweep.recipe), LabelSet.of(corpus)
    codec = _codec(corpus, recipe)
    model: IntentNer = build(network_config(recipe, codec, labels))
    model.load_state_dict(dict(weights))
    quality = evaluate_predictor(IntentNerPredictor(model, codec, labels), corpus.test).as_dict()
    return FinishedRun(
        corpus=corpus,
        codec=codec,
        labels=labels,
        model=model.eval(),
        quality=quality,
        provenance={"sweep": setting.name, "seed": sweep.seed},
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of ``python -m train_jobs.sweep``."""
    parser = argparse.ArgumentParser(prog="python -m train_jobs.sweep", description="Train settings, gate each.")
    parser.add_argument("--home", type=Path, help="root of all files ($FAILSOFT_HOME, else .failsoft here)")
    parser.add_argument("--seed", type=int, default=7, help="of weights, order and dropout")
    parser.add_argument("--workers", type=int, default=2, help="settings that are trained at once, without a cluster")
    given = parser.parse_args(arguments)
    home, sweep = Home.find(given.home), Sweep(seed=given.seed)
    with connected(JobConfig(home=home.root, run="sweep", workers=given.workers)):
        trained = run_on_ray(sweep)
    judged = judge(trained, sweep, home=home, clock=SystemClock(), probe=probe_replica)
    Console().print(table(judged))


if __name__ == "__main__":
    main()
