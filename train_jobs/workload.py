"""What the job learns: the corpus, made ready once by the driver and read by every worker from the run's folder.

It is published there as checkpoints are: whole, with digests, verified by each reader.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from failsoft.artifacts.home import Home
from failsoft.artifacts.manifest import digest_bytes
from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import IncompatibleArtifactError
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Ledger, Side
from failsoft.models.corpora import load_corpus
from failsoft.models.corpus import Corpus, Span, Unreadable, Utterance
from failsoft.models.encoding import EncodedSplit, encode_corpus
from failsoft.models.labels import LabelSet
from failsoft.models.learning import WHOLE, Share, loss_of, to_tensors
from failsoft.models.network import NetworkConfig, network_config
from failsoft.models.recipe import Recipe, recipe_for, recipe_named
from failsoft.models.tokens import TextCodec
from failsoft.training.loading.feed import Feed
from failsoft.training.memory.micro_batches import Distortion
from train_jobs.config import JobConfig
from train_jobs.prepared import CORPUS, prepared_corpus

_SHRINK_LEVELS = 2
_TRAIN, _VALIDATION, _UNREADABLE = "train.json", "validation.json", "unreadable.json"


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A corpus, encoded for one recipe."""

    recipe: Recipe
    codec: TextCodec
    labels: LabelSet
    train: EncodedSplit
    validation: EncodedSplit | None
    """To be judged on while it trains; None where nobody asked for it, or in a folder from before there was one."""
    identity: dict[str, Any]
    """What makes a run this run; a checkpoint of another identity is refused."""
    unreadable: tuple[Unreadable, ...] = ()
    """Entries of the training files that are no samples; their indices follow those of ``train``."""

    @property
    def num_samples(self) -> int:
        """Samples of an epoch, those that are left out included."""
        return len(self.train) + len(self.unreadable)

    @cached_property
    def usable(self) -> NDArray[np.bool_]:
        """Whether each sample can be trained on: it is readable, and no longer than is read."""
        return np.concatenate([self.train.beyond == 0, np.zeros(len(self.unreadable), dtype=np.bool_)])

    def source_of(self, index: int) -> str:
        """The file that a sample is in."""
        known = len(self.train)
        return source_of(self.train.ids[index] if index < known else self.unreadable[index - known].id)

    @property
    def network(self) -> NetworkConfig:
        """Shape of the model."""
        return network_config(self.recipe, self.codec, self.labels)

    @property
    def total_batches(self) -> int:
        """Global batches of the run."""
        return int(self.identity["total_batches"])


class IntentNerTask:
    """Joint intent and slot loss of some training samples. Those that can't be trained on count as if not asked for.

    Args:
        model: as the loss sees it, in its wrapper where there are several ranks.
        workload: the samples.
        device: of the model.
        feed: counts what is left out and writes its letters; without one the task is no run's, but a replay's.
    """

    def __init__(self, model: nn.Module, workload: Workload, device: torch.device, feed: Feed | None = None) -> None:
        self._model = model
        self._workload = workload
        self._train = workload.train
        self._longest = int(workload.train.lengths.max(initial=1))
        self.shrink_levels = min(_SHRINK_LEVELS, self._longest.bit_length() - 1)
        self._device = device
        if feed is not None:
            self.load_samples = feed.load_samples
            self.take_skipped = feed.take_skipped
            self.take_synthetic = feed.take_synthetic
            self.ahead = feed.ahead
            self.follow = feed.follow

    def weight(self, indices: NDArray[np.int64]) -> float:
        """How many of these can be trained on."""
        return float(np.count_nonzero(self._workload.usable[indices]))

    def loss(self, indices: NDArray[np.int64]) -> Tensor:
        """Mean loss over the samples; 0 where none can be trained on."""
        kept = self._usable(indices)
        return self._mean(kept) if len(kept) else self._motions()

    def partial_loss(self, piece: NDArray[np.int64], whole: NDArray[np.int64]) -> Tensor:
        """What a piece adds to the loss over ``whole``, which is a mean over texts and another over their words.

        Which words are distorted to teach doubt is drawn for each piece anew.
        """
        piece, whole = self._usable(piece), self._usable(whole)
        if not len(piece):
            return self._motions()
        lengths = self._train.lengths
        words = float(lengths[piece].sum() / lengths[whole].sum())
        return self._mean(piece, Share(texts=len(piece) / len(whole), words=words))

    def shrink(self, level: int) -> Distortion:
        """Read texts only up to half the longest one's words, or a quarter of them, when memory runs out."""
        train, most = self._workload.train, max(1, self._longest >> level)
        self._train = replace(train, lengths=np.minimum(train.lengths, most)) if level else train
        fraction = float((train.lengths > most).mean())
        return Distortion(
            said=f"texts are cut to {most} words, which shortens {fraction:.1%} of them", fraction=fraction
        )

    def sources(self, indices: NDArray[np.int64]) -> list[str]:
        """The file that each sample came from."""
        return [self._workload.source_of(index) for index in indices.tolist()]

    def payload(self, indices: NDArray[np.int64]) -> dict[str, Tensor]:
        """The batch as the model gets it; empty where none of it can be trained on."""
        kept = self._usable(indices)
        return to_tensors(self._train.take(kept)) if len(kept) else {}

    def _usable(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        return indices[self._workload.usable[indices]]

    def _motions(self) -> Tensor:
        """A pass that adds nothing: no rank may stay away from the backward pass of the others."""
        return self._mean(np.flatnonzero(self._workload.usable)[:1]) * 0.0

    def _mean(self, indices: NDArray[np.int64], share: Share = WHOLE) -> Tensor:
        batch = to_tensors(self._train.take(indices), self._device)
        return loss_of(self._model, batch, self._workload.recipe, share)


def source_of(sample_name: str) -> str:
    """The file in a sample's name: ``snips/train_PlayMusic_full.json`` of ``snips/train_PlayMusic_full.json#17``."""
    return sample_name.partition("#")[0]


def recipe_of(config: JobConfig, corpus: Corpus) -> Recipe:
    """The preset's recipe, else the one that fits the corpus; over as many epochs as asked for."""
    recipe = recipe_for(corpus.name) if config.preset is None else recipe_named(config.preset)
    return recipe if config.epochs is None else replace(recipe, epochs=config.epochs)


def batches_of(config: JobConfig, recipe: Recipe, num_samples: int) -> int:
    """Global batches that the job consumes."""
    whole = recipe.total_steps(num_samples)
    return whole if config.max_batches is None else min(whole, config.max_batches)


def prepare(config: JobConfig) -> tuple[Corpus, Workload]:
    """Make the run's folder ready, or find it ready; only the driver calls it. What is torn there is made again.

    The ledger learns what was repaired while reading the corpus.

    Raises:
        CorpusError: the data can't be read.
        IncompatibleArtifactError: the folder belongs to another corpus or recipe.
    """
    corpus = load_corpus(config.data)
    _tell_repairs(config, corpus)
    recipe = recipe_of(config, corpus)
    identity = _identity(config, recipe, corpus)
    store = _prepared(config)
    store.sweep_orphans()
    found = store.newest()
    if found is None:
        store.publish(CORPUS, lambda folder: _fill(folder, corpus, recipe), meta=identity)
    else:
        _refuse_other(config.run, dict(found.manifest.meta), identity)
    return corpus, read_workload(config)


def _tell_repairs(config: JobConfig, corpus: Corpus) -> None:
    ledger = Ledger(Home.find(config.home).ledger, SystemClock(), side=Side.TRAINING, subject=config.run)
    ledger.record("corpus_read", str(corpus.report), corpus=corpus.name, repairs=dict(corpus.report.counts))


def _prepared(config: JobConfig) -> ArtifactStore:
    return prepared_corpus(Home.find(config.home), config.run, SystemClock())


def _fill(folder: Path, corpus: Corpus, recipe: Recipe) -> None:
    codec, labels = TextCodec.train([utterance.text for utterance in corpus.train], recipe.codec), LabelSet.of(corpus)
    codec.save(folder / "codec.json")
    labels.save(folder / "labels.json")
    parts = ((_TRAIN, corpus.train), (_VALIDATION, corpus.validation), (_UNREADABLE, corpus.unreadable))
    for name, split in parts:
        (folder / name).write_text(json.dumps([asdict(utterance) for utterance in split]), "utf-8")


def read_workload(config: JobConfig) -> Workload:
    """What :func:`prepare` left, without the corpus itself.

    Raises:
        ArtifactError: it is not there, or torn since.
    """
    prepared = _prepared(config).open(CORPUS)
    folder, identity = prepared.path, dict(prepared.manifest.meta)
    utterances = _utterances(folder, _TRAIN)
    codec, labels = TextCodec.load(folder / "codec.json"), LabelSet.load(folder / "labels.json")
    recipe = replace(recipe_named(identity["recipe"]["name"]), epochs=int(identity["recipe"]["epochs"]))
    looks = config.validation.looks and (folder / _VALIDATION).exists()
    unreadable = (folder / _UNREADABLE).read_text("utf-8") if (folder / _UNREADABLE).exists() else "[]"
    return Workload(
        recipe=recipe,
        codec=codec,
        labels=labels,
        train=encode_corpus(utterances, codec, labels).for_training(recipe.distortion),
        validation=encode_corpus(_utterances(folder, _VALIDATION), codec, labels) if looks else None,
        identity=identity,
        unreadable=tuple(Unreadable(**record) for record in json.loads(unreadable)),
    )


def read_utterances(config: JobConfig) -> list[Utterance]:
    """The training samples themselves, by their index.

    Raises:
        ArtifactError: they are not there, or torn since.
    """
    return _utterances(_prepared(config).open(CORPUS).path, _TRAIN)


def _utterances(folder: Path, name: str) -> list[Utterance]:
    return [_utterance(record) for record in json.loads((folder / name).read_text("utf-8"))]


def _utterance(record: dict[str, Any]) -> Utterance:
    return Utterance(**(record | {"spans": tuple(Span(*span) for span in record["spans"])}))


def _identity(config: JobConfig, recipe: Recipe, corpus: Corpus) -> dict[str, Any]:
    identity = {
        "corpus": corpus.name,
        "corpus_digest": _digest(corpus),
        "num_samples": corpus.num_samples,
        "recipe": asdict(recipe),
        "seed": config.seed,
        "total_batches": batches_of(config, recipe, corpus.num_samples),
    }
    return dict(json.loads(json.dumps(identity)))


def _digest(corpus: Corpus) -> str:
    lines = [json.dumps([u.text, u.intent, u.spans], ensure_ascii=True) for u in corpus.train]
    lines += [json.dumps([entry.id]) for entry in corpus.unreadable]
    return digest_bytes("\n".join(lines).encode())


def _refuse_other(run: str, there: dict[str, Any], wanted: dict[str, Any]) -> None:
    keys = [key for key in sorted(there.keys() | wanted.keys()) if there.get(key) != wanted.get(key)]
    if keys:
        said = "; ".join(f"{key} was {there.get(key)!r}, now {wanted.get(key)!r}" for key in keys)
        raise IncompatibleArtifactError(
            f"run {run!r} was begun otherwise: {said}; use the same settings to go on, or another run name"
        )
