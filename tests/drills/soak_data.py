"""The embedded corpus in shards for the soak, 0.5 % of it spoilt in five ways, and a network that learns it quickly."""

# B samples, T places of words, D width

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from failsoft.models.embedded import embedded_corpus
from failsoft.models.encoding import EncodedSplit, encode_corpus
from failsoft.models.labels import LabelSet
from failsoft.models.recipe import CodecConfig
from failsoft.models.tokens import TextCodec
from failsoft.training.loading.checks import SampleChecks
from failsoft.training.loading.layout import ShardLayout, write_shards
from failsoft.training.loading.sample import BadKind

GLOBAL_BATCH = 16
PLACES = 21
"""Words of the longest text of the corpus."""
BAD_FRACTION = 0.005
KINDS = (BadKind.RAISED, BadKind.MALFORMED, BadKind.TOO_LONG, BadKind.NOT_FINITE, BadKind.CHECKSUM)
_SHARD = 500
_IGNORED = -100
Sample = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Both splits as numbers."""

    train: EncodedSplit
    validation: EncodedSplit
    words: int
    intents: int
    tags: int

    @classmethod
    def embedded(cls) -> Texts:
        """The corpus that comes with the package."""
        corpus = embedded_corpus()
        codec = TextCodec.train([text.text for text in corpus.train], CodecConfig())
        labels = LabelSet.of(corpus)
        train, validation = (encode_corpus(split, codec, labels) for split in (corpus.train, corpus.validation))
        sizes = {"words": codec.vocab_size, "intents": len(labels.intents), "tags": len(labels.tags)}
        return cls(train=train, validation=validation, **sizes)

    @cached_property
    def bad(self) -> dict[int, BadKind]:
        """What is wrong with which training samples; the same in each run."""
        count = round(BAD_FRACTION * len(self.train))
        chosen = random.Random(17).sample(range(len(self.train)), count)
        return {index: KINDS[place % len(KINDS)] for place, index in enumerate(chosen)}

    def checks(self) -> SampleChecks:
        """What samples must satisfy."""
        return SampleChecks(max_length=PLACES, length_of=_length, like=decoded(bytes_of(self.train, 0)), check=_check)

    def written(self, folder: Path, *, spoilt: bool) -> ShardLayout:
        """The training split in shards."""
        bad = self.bad if spoilt else {}
        samples = (_spoilt(bytes_of(self.train, index), bad.get(index)) for index in range(len(self.train)))
        layout = write_shards(samples, folder, samples_per_shard=_SHARD)
        for index in (index for index, kind in bad.items() if kind is BadKind.CHECKSUM):
            _change_a_byte(layout, index)
        return layout

    @cached_property
    def judged(self) -> Sample:
        """The whole validation split as one batch."""
        every = [decoded(bytes_of(self.validation, index)) for index in range(len(self.validation))]
        return {name: torch.stack([sample[name] for sample in every]) for name in every[0]}


def bytes_of(split: EncodedSplit, index: int) -> bytes:
    """One sample: intent, words, tags, and what each word counts in the text's mean."""
    count = int(split.lengths[index])
    numbers = [np.array([split.intent[index], count]), split.word_ids[index, :count], split.tags[index, :count]]
    return np.concatenate(numbers).astype(np.int16).tobytes() + np.full(count, 1.0 / count, np.float32).tobytes()


def decoded(data: bytes) -> Sample:
    """What :func:`bytes_of` wrote, padded to the longest text."""
    intent, count = np.frombuffer(data, np.int16, 2)
    size = max(PLACES, int(count))
    words, tags, shares = np.zeros(size, np.int64), np.full(size, _IGNORED), np.zeros(size, np.float32)
    words[:count] = np.frombuffer(data, np.int16, count, 4)
    tags[:count] = np.frombuffer(data, np.int16, count, 4 + 2 * count)
    shares[:count] = np.frombuffer(data, np.float32, count, 4 + 4 * count)
    return {
        "intent": torch.tensor(int(intent)),
        "words": torch.from_numpy(words),
        "tags": torch.from_numpy(tags),
        "shares": torch.from_numpy(shares),
    }


class Nonsense:
    """The synthetic tier: texts of the right form that would teach something wrong if they counted."""

    def make(self, index: int) -> bytes:
        """Ten words of chance, all outside of slots, of the first intent."""
        words = np.random.default_rng(index).integers(2, 1000, 10)
        numbers = np.concatenate([[0, 10], words, np.zeros(10)]).astype(np.int16)
        return numbers.tobytes() + np.full(10, 0.1, np.float32).tobytes()


class SmallReader(nn.Module):
    """Tags from each word and its neighbours, the intent from the mean of all; no part draws by chance."""

    def __init__(self, texts: Texts, *, width: int = 24) -> None:
        super().__init__()
        self.words = nn.Embedding(texts.words, width)
        self.join = nn.Linear(3 * width, 2 * width)
        self.tags = nn.Linear(2 * width, texts.tags)
        self.intent = nn.Linear(2 * width, texts.intents)

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Each sample's loss, (B,)."""
        words_BTD = self.words(batch["words"])
        around = [F.pad(words_BTD, (0, 0, 1, 0))[:, :-1], words_BTD, F.pad(words_BTD, (0, 0, 0, 1))[:, 1:]]
        hidden_BTD = torch.tanh(self.join(torch.cat(around, dim=-1)))
        shares_BT = batch["shares"]
        summary_BD = (hidden_BTD * shares_BT.unsqueeze(-1)).sum(1)
        intent_B = F.cross_entropy(self.intent(summary_BD), batch["intent"], reduction="none")
        tags_BT = F.cross_entropy(
            self.tags(hidden_BTD).transpose(1, 2), batch["tags"], ignore_index=_IGNORED, reduction="none"
        )
        return intent_B + (tags_BT * shares_BT).sum(1)


def _length(sample: Sample) -> int:
    return len(sample["words"])


def _check(sample: Sample) -> str | None:
    return None if sample["intent"] >= 0 else f"intent {int(sample['intent'])} is not one of the corpus"


def _spoilt(data: bytes, kind: BadKind | None) -> bytes:
    """With its fault in the bytes themselves; a changed checksum comes later, when the layout is written."""
    match kind:
        case BadKind.RAISED:
            return data[:-3]
        case BadKind.MALFORMED:
            return np.array([-7], np.int16).tobytes() + data[2:]
        case BadKind.NOT_FINITE:
            return data[:-4] + np.array([np.nan], np.float32).tobytes()
        case BadKind.TOO_LONG:
            many = np.concatenate([np.array([0, 3 * PLACES]), np.ones(6 * PLACES)]).astype(np.int16)
            return many.tobytes() + np.full(3 * PLACES, 0.01, np.float32).tobytes()
        case _:
            return data


def _change_a_byte(layout: ShardLayout, index: int) -> None:
    place = layout.place_of(index)
    with (layout.folder / place.shard).open("r+b") as shard:
        shard.seek(place.first)
        first = shard.read(1)
        shard.seek(place.first)
        shard.write(bytes([first[0] ^ 1]))
