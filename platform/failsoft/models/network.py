"""A small transformer that reads words and their characters, and answers with an intent and a tag per word."""

# B texts, T words of the longest text, N words of all texts together, U different words, K characters of the longest
# word, D width, H heads, C intents, S tags, F character filters

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from failsoft.errors import ConfigError, IncompatibleArtifactError
from failsoft.health.json_object import json_value
from failsoft.models.labels import LabelSet
from failsoft.models.recipe import Recipe, Shape
from failsoft.models.tokens import PAD, UNKNOWN, TextCodec


class Scores(NamedTuple):
    """What the network says; logits, not probabilities."""

    intent_logits_BC: Tensor
    slot_logits_BTS: Tensor


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """All that is needed to build the network again around its weights."""

    vocab_size: int
    """Rows of the table of words."""
    char_vocab_size: int
    """Rows of the table of characters."""
    num_intents: int
    """Classes of a text."""
    num_tags: int
    """Classes of a word, in BIO."""
    max_words: int
    """Words of a text that are read."""
    shape: Shape
    """Width, depth, heads and dropout."""

    def __post_init__(self) -> None:
        """Refuse empty tables."""
        for name in ("vocab_size", "char_vocab_size", "num_intents", "num_tags", "max_words"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; use 1 or more")

    def save(self, path: Path) -> None:
        """Write as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1, sort_keys=True), "utf-8")

    @classmethod
    def load(cls, path: Path) -> NetworkConfig:
        """Read what :meth:`save` wrote.

        Raises:
            IncompatibleArtifactError: the file is absent or not such a file.
        """
        try:
            body = json_value(path.read_text("utf-8"))
            return cls(**(body | {"shape": Shape(**body["shape"])}))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise IncompatibleArtifactError(f"{path} does not describe a network of this code ({error!r})") from error


def network_config(recipe: Recipe, codec: TextCodec, labels: LabelSet) -> NetworkConfig:
    """The network that fits a codec and labels, in the shape of a recipe."""
    return NetworkConfig(
        vocab_size=codec.vocab_size,
        char_vocab_size=codec.char_vocab_size,
        num_intents=len(labels.intents),
        num_tags=len(labels.tags),
        max_words=codec.config.max_words,
        shape=recipe.shape,
    )


def network_matches(config: NetworkConfig, codec: TextCodec, labels: LabelSet) -> bool:
    """Whether codec and labels have the sizes that the network was built for."""
    sizes = (codec.vocab_size, codec.char_vocab_size, codec.config.max_words, len(labels.intents), len(labels.tags))
    return sizes == (
        config.vocab_size,
        config.char_vocab_size,
        config.max_words,
        config.num_intents,
        config.num_tags,
    )


class Packing(NamedTuple):
    """The words of a batch without its padding: half of the work, since most texts are shorter than the longest."""

    mask_BT: Tensor
    places_N: Tensor
    """Where each word lies in the flattened (B, T) grid, in rising order."""
    has_left_N1: Tensor
    """1.0 where the word has a left neighbour in its text, else 0.0."""

    @classmethod
    def of(cls, mask_BT: Tensor, places_N: Tensor) -> Packing:
        """The packing of a batch."""
        return cls(mask_BT, places_N, (places_N % mask_BT.shape[1] > 0).float().unsqueeze(-1))

    def pack(self, rows: Tensor) -> Tensor:
        """(B, T, ...) to (N, ...)."""
        return rows.flatten(0, 1)[self.places_N]

    def unpack(self, rows_N: Tensor) -> Tensor:
        """(N, D) to (B, T, D), zero at the padding."""
        batch, length = self.mask_BT.shape
        grid = rows_N.new_zeros(batch * length, rows_N.shape[-1])
        return grid.index_copy(0, self.places_N, rows_N).view(batch, length, -1)

    def around(self, rows_ND: Tensor) -> Tensor:
        """Each word with its two neighbours, zeros beyond the ends of the text: (N, D) to (N, 3 D)."""
        gate_N1 = self.has_left_N1.to(rows_ND.dtype)
        left_ND = F.pad(rows_ND[:-1], (0, 0, 1, 0)) * gate_N1
        right_ND = F.pad(rows_ND[1:] * gate_N1[1:], (0, 0, 0, 1))
        return torch.cat([left_ND, rows_ND, right_ND], dim=-1)


class IntentNer(nn.Module):
    """Words and characters in, intent and BIO tags out."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        shape = config.shape
        self.config = config
        self.words = nn.Embedding(config.vocab_size, shape.word_width, padding_idx=PAD)
        self.spelling = Spelling(config.char_vocab_size, shape)
        self.join = nn.Linear(shape.word_width + shape.char_filters, shape.width)
        self.join_norm = nn.LayerNorm(shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.attend = nn.Linear(shape.width, 1)
        self.intent = nn.Sequential(
            nn.Linear(2 * shape.width, shape.width),
            nn.GELU(),
            nn.Dropout(shape.dropout),
            nn.Linear(shape.width, config.num_intents),
        )
        self.intent_hint = nn.Linear(config.num_intents, shape.width)
        self.slots = nn.Sequential(
            nn.Linear(shape.width, shape.width),
            nn.GELU(),
            nn.Dropout(shape.dropout),
            nn.Linear(shape.width, config.num_tags),
        )
        self.dropout = nn.Dropout(shape.dropout)
        nn.init.normal_(self.words.weight, std=0.3)

    def forward(self, batch: Mapping[str, Tensor]) -> Scores:
        """Score one batch of :meth:`failsoft.models.encoding.EncodedSplit.take` (the labels in it are not read)."""
        packing = Packing.of(batch["mask"], batch["places"])
        hidden_ND = self._read(packing.pack(batch["word_ids"]), packing.pack(batch["surface"]), batch["char_ids"])
        for block in self.blocks:
            hidden_ND = block(hidden_ND, packing)
        hidden_ND = self.norm(hidden_ND)
        intent_logits_BC = self.intent(self._summary(packing.unpack(hidden_ND), packing.mask_BT))
        hint_BTD = (
            self.intent_hint(intent_logits_BC.detach().softmax(-1)).unsqueeze(1).expand(*packing.mask_BT.shape, -1)
        )
        return Scores(intent_logits_BC, packing.unpack(self.slots(hidden_ND + packing.pack(hint_BTD))))

    def _read(self, word_ids_N: Tensor, surface_N: Tensor, char_ids_UK: Tensor) -> Tensor:
        if self.training and self.config.shape.word_dropout > 0.0:
            hidden_N = torch.rand(word_ids_N.shape, device=word_ids_N.device) < self.config.shape.word_dropout
            word_ids_N = torch.where(hidden_N, UNKNOWN, word_ids_N)
        spelling_NF = F.embedding(surface_N, self.spelling(char_ids_UK))
        joined_ND = self.join(torch.cat([self.words(word_ids_N), spelling_NF], dim=-1))
        return self.dropout(self.join_norm(joined_ND))  # type: ignore[no-any-return]

    def _summary(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """What the text says as a whole: the mean weighted by attention, and the strongest sign of each feature."""
        padding_BT1 = ~mask_BT.unsqueeze(-1)
        weight_BT1 = hidden_where(padding_BT1, self.attend(hidden_BTD)).softmax(dim=1)
        strongest_BD = hidden_where(padding_BT1, hidden_BTD).amax(dim=1)
        return torch.cat([(weight_BT1 * hidden_BTD).sum(dim=1), strongest_BD], dim=-1)


class Spelling(nn.Module):
    """What a word looks like: three-character patterns, the strongest of each kind over the word."""

    def __init__(self, char_vocab_size: int, shape: Shape) -> None:
        super().__init__()
        self.chars = nn.Embedding(char_vocab_size, shape.char_width, padding_idx=PAD)
        self.patterns = nn.Linear(3 * shape.char_width, shape.char_filters)

    def forward(self, char_ids_UK: Tensor) -> Tensor:
        """(U, K) characters to (U, F) features."""
        chars = self.chars(char_ids_UK)
        padded = F.pad(chars, (0, 0, 1, 1))
        windows = torch.cat([padded[:, :-2], chars, padded[:, 2:]], dim=-1)
        features = self.patterns(windows).masked_fill((char_ids_UK == PAD).unsqueeze(-1), 0.0)
        return F.relu(features).amax(dim=1)


class Block(nn.Module):
    """Attention over all words, then a look at both neighbours."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads, self.max_distance, self.drop = shape.heads, shape.max_distance, shape.dropout
        self.attention_norm = nn.LayerNorm(shape.width)
        self.query_key_value = nn.Linear(shape.width, 3 * shape.width)
        self.distance = nn.Embedding(2 * shape.max_distance + 1, shape.heads)
        self.mix = nn.Linear(shape.width, shape.width)
        self.inner_norm = nn.LayerNorm(shape.width)
        self.widen = nn.Linear(3 * shape.width, shape.inner_width)
        self.narrow = nn.Linear(shape.inner_width, shape.width)
        self.dropout = nn.Dropout(shape.dropout)
        nn.init.zeros_(self.distance.weight)

    def forward(self, hidden_ND: Tensor, packing: Packing) -> Tensor:
        """One round of reading; no word looks beyond its own text."""
        hidden_ND = hidden_ND + self.dropout(self._attend(self.attention_norm(hidden_ND), packing))
        windows = packing.around(self.inner_norm(hidden_ND))
        return hidden_ND + self.dropout(self.narrow(F.gelu(self.widen(windows))))  # type: ignore[no-any-return]

    def _attend(self, hidden_ND: Tensor, packing: Packing) -> Tensor:
        batch, length = packing.mask_BT.shape
        parts = packing.unpack(self.query_key_value(hidden_ND)).view(batch, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        place_T = torch.arange(length, device=hidden_ND.device)
        apart_TT = (place_T[None] - place_T[:, None]).clamp(-self.max_distance, self.max_distance) + self.max_distance
        near_HTT = self.distance(apart_TT).permute(2, 0, 1).to(query.dtype)
        bias_BHTT = hidden_where(~packing.mask_BT[:, None, None, :], near_HTT.unsqueeze(0))
        seen_BHTD = F.scaled_dot_product_attention(query, key, value, attn_mask=bias_BHTT)
        return self.mix(packing.pack(seen_BHTD.transpose(1, 2).flatten(2)))  # type: ignore[no-any-return]


def hidden_where(padding: Tensor, values: Tensor) -> Tensor:
    """The values, with the lowest number of their own precision where there is padding."""
    return values.masked_fill(padding, torch.finfo(values.dtype).min)


def build(config: NetworkConfig) -> IntentNer:
    """A new network; its weights come from torch's global generator, so seed that first."""
    return IntentNer(config)


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """The half precision to train in: bfloat16 where the device computes it, else float16 on CUDA, else none."""
    if device.type != "cuda":
        return None  # a small model gains nothing from bfloat16 on a CPU, and would no longer be comparable bit by bit
    return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16


def save_weights(model: IntentNer, path: Path) -> None:
    """Write all weights as safetensors."""
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}, path)


def load_weights(model: IntentNer, path: Path) -> None:
    """Fill the network with saved weights.

    Raises:
        IncompatibleArtifactError: the file holds no tensors, or one is absent, unknown or of another shape; nothing was
            changed then.
    """
    try:
        weights = load_file(path)
    except (OSError, SafetensorError) as error:
        raise IncompatibleArtifactError(f"{path} holds no weights: {error}") from error
    own = model.state_dict()
    if odd := sorted(weights.keys() ^ own.keys()):
        raise IncompatibleArtifactError(f"{path}: tensors {odd} are not both in the file and in the network")
    for name, tensor in weights.items():
        if tensor.shape != own[name].shape:
            raise IncompatibleArtifactError(
                f"{path}: {name} has shape {tuple(tensor.shape)}, the network has {tuple(own[name].shape)}"
            )
    model.load_state_dict(weights)
