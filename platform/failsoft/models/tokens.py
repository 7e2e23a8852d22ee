"""Text to numbers: words by a trained Rust tokenizer, with their place in the text, and the characters of each word.

A word that training never saw has no number of its own and is read by its characters; it still counts as unknown, since
a model knows little about it. What is glued to a word (an emoji) is part of it, unless it is punctuation. A sign that
stands alone and that no training text had, an emoji between two words, is passed over and counted: as one more unknown
word it would only tear apart what belongs together. SNIPS with emoji beside 70 % of the words: slot F1 is 0.58 with
them in the way and as good as without them when they are passed over.
"""

# B texts, T words of the longest text, U different words (as spelt), K characters of the longest word

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.trainers import WordLevelTrainer

from failsoft.errors import CorpusError
from failsoft.health.json_object import json_value
from failsoft.models.recipe import CodecConfig
from failsoft.models.vocabulary import SPECIAL, ascii_words

PAD, UNKNOWN = 0, 1
"""Numbers of the padding word and of every unknown word; the same numbers among the characters."""
BEGIN, END, FIRST_CHAR = 2, 3, 4
"""Character numbers of the marks around a word, and the first one of a real character."""
_FORMAT = 1
_SURROGATES = re.compile("[\ud800-\udfff]")
_KEYCAP = "\u20e3"


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """A batch of texts as numbers. A text without words holds one unknown word at (0, 0)."""

    word_ids_BT: NDArray[np.int32]
    surface_BT: NDArray[np.int32]
    """Row of ``char_ids_UK`` that spells the word."""
    char_ids_UK: NDArray[np.int32]
    mask_BT: NDArray[np.bool_]
    """True where there is a word."""
    offsets: list[list[tuple[int, int]]]
    """Start and end of each word, in characters of the text as given."""
    counts_B: NDArray[np.int32]
    """Words read of each text; 0 for a text without words."""
    skipped_B: NDArray[np.int32]
    """Signs that stand alone and that training never saw: passed over."""
    oov_fraction_B: NDArray[np.float32]
    """Share of the words and skipped signs that the training texts did not hold; 1 for a text without either."""
    left_out_B: NDArray[np.int32]
    """Words beyond ``max_words``, which were not read."""


class TextCodec:
    """Turns texts into :class:`Encoded` batches; made by :meth:`train` or :meth:`load`."""

    def __init__(self, tokenizer: Tokenizer, *, embedded_words: int, chars: Sequence[str], config: CodecConfig) -> None:
        self.tokenizer = tokenizer
        """The trained Rust tokenizer."""
        self.config = config
        self.vocab_size = embedded_words
        """Words with a number of their own, padding and unknown included; valid ids are below it."""
        self.char_vocab_size = FIRST_CHAR + len(chars)
        self._chars = {char: number for number, char in enumerate(chars, start=FIRST_CHAR)}
        self._numbers = {word: number for word, number in tokenizer.get_vocab().items() if word not in SPECIAL}

    @classmethod
    def train(cls, texts: Sequence[str], config: CodecConfig | None = None) -> TextCodec:
        """A codec for texts like these.

        Raises:
            CorpusError: the texts hold no word.
        """
        config = config or CodecConfig()
        clean = [_without_surrogates(text) for text in texts]
        tokenizer = _trained(clean, min_count=1)
        if tokenizer.get_vocab_size() <= len(SPECIAL):
            raise CorpusError(f"{len(texts)} training texts hold no word; the codec needs at least one")
        embedded_words = _trained(clean, min_count=config.min_count).get_vocab_size()
        counts = Counter(char for text in clean for char in text if not char.isspace())
        chars = sorted(char for char, count in counts.items() if count >= config.min_count)
        return cls(tokenizer, embedded_words=embedded_words, chars=chars, config=config)

    @cached_property
    def known_words(self) -> frozenset[str]:
        """Every word of the training texts, in lower case."""
        return frozenset(self._numbers)

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Any strings, empty ones and lone surrogates included."""
        found = [self.words(text) for text in texts]
        rows = [self._without_signs(text, *row) for text, row in zip(texts, found, strict=True)]
        width = max((len(ids) for ids, _ in rows), default=0)
        width = min(max(width, 1), self.config.max_words)
        word_ids_BT = np.full((len(texts), width), PAD, dtype=np.int32)
        surface_BT = np.zeros((len(texts), width), dtype=np.int32)
        mask_BT = np.zeros((len(texts), width), dtype=np.bool_)
        surfaces: dict[str, int] = {}
        offsets = []
        for b, (ids, places) in enumerate(rows):
            kept = places[:width] or [(0, 0)]
            word_ids_BT[b, : len(kept)] = [
                number if number < self.vocab_size else UNKNOWN for number in ids[:width] or [UNKNOWN]
            ]
            spelt = [texts[b][start:end] for start, end in kept]
            surface_BT[b, : len(kept)] = [surfaces.setdefault(word, len(surfaces)) for word in spelt]
            mask_BT[b, : len(kept)] = True
            offsets.append(kept)
        return Encoded(
            word_ids_BT=word_ids_BT,
            surface_BT=surface_BT,
            char_ids_UK=self._spell(list(surfaces)),
            mask_BT=mask_BT,
            offsets=offsets,
            counts_B=np.array([min(len(ids), width) for ids, _ in rows], dtype=np.int32),
            skipped_B=np.array(
                [len(before) - len(ids) for (before, _), (ids, _) in zip(found, rows, strict=True)], dtype=np.int32
            ),
            oov_fraction_B=np.array([_unknown_share(ids) for ids, _ in found], dtype=np.float32),
            left_out_B=np.array([max(0, len(ids) - width) for ids, _ in rows], dtype=np.int32),
        )

    def oov_fraction(self, texts: Iterable[str]) -> float:
        """Share of all words of these texts that the training texts did not hold; 1 when there is no word at all."""
        return _unknown_share([number for text in texts for number in self.words(text)[0]])

    def type_coverage(self, texts: Iterable[str]) -> float:
        """Share of the different words of these texts that the training texts held; 0 when there is no word at all."""
        types = {self._fold(word) for text in texts for word in self._split(text)}
        return sum(word in self.known_words for word in types) / len(types) if types else 0.0

    def save(self, path: Path) -> None:
        """Write as JSON."""
        chars = sorted(self._chars, key=self._chars.__getitem__)
        body = {
            "format": _FORMAT,
            "config": asdict(self.config),
            "embedded_words": self.vocab_size,
            "chars": chars,
            "tokenizer": json.loads(self.tokenizer.to_str()),
        }
        path.write_text(json.dumps(body, ensure_ascii=True), "utf-8")

    @classmethod
    def load(cls, path: Path) -> TextCodec:
        """Read what :meth:`save` wrote.

        Raises:
            CorpusError: the file is absent or not such a file.
        """
        try:
            body = json_value(path.read_text("utf-8"))
            if body["format"] != _FORMAT:
                raise CorpusError(f"{path} has codec format {body['format']}, this code reads {_FORMAT}; train again")
            tokenizer = _tokenizer_of(body["tokenizer"])
            config = CodecConfig(**({"skip_unknown_signs": False} | body["config"]))  # absent: made before there was it
            return cls(tokenizer, embedded_words=int(body["embedded_words"]), chars=body["chars"], config=config)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CorpusError(f"{path} does not hold a text codec ({error!r}); write it with TextCodec.save") from error

    def words(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Numbers and places of all words. Plain ASCII is split here: the tokenizer needs four times as long."""
        if text.isascii() and text.isprintable():
            found = list(ascii_words(text))
            number_of = self._numbers.get
            return [number_of(word, UNKNOWN) for _, _, word in found], [(start, end) for start, end, _ in found]
        encoding = self.tokenizer.encode(_without_surrogates(text), add_special_tokens=False)
        return encoding.ids, encoding.offsets

    def _without_signs(
        self, text: str, ids: list[int], places: list[tuple[int, int]]
    ) -> tuple[list[int], list[tuple[int, int]]]:
        if UNKNOWN not in ids or not self.config.skip_unknown_signs:
            return ids, places
        kept = [n for n, number in enumerate(ids) if number != UNKNOWN or not self._is_sign(text[slice(*places[n])])]
        return [ids[n] for n in kept], [places[n] for n in kept]

    def _is_sign(self, word: str) -> bool:
        """No letter or digit, nor any character that training saw, nor plain ASCII; keycaps are emoji, too."""
        if word.isascii() or word.endswith(_KEYCAP):
            return not word.isascii()
        return not any(map(str.isalnum, word)) and self._chars.keys().isdisjoint(word)

    def _split(self, text: str) -> list[str]:
        clean = _without_surrogates(text)
        return [clean[start:end] for start, end in self.words(clean)[1]]

    def _fold(self, word: str) -> str:
        normalizer = self.tokenizer.normalizer
        return str(normalizer.normalize_str(word)) if normalizer else word

    def _spell(self, surfaces: Sequence[str]) -> NDArray[np.int32]:
        """Character numbers between a begin and an end mark; the middle of an overlong word is left out."""
        limit = self.config.max_chars
        tail = min(4, limit - 1)
        short = [word if len(word) <= limit else word[: limit - tail] + word[len(word) - tail :] for word in surfaces]
        out = np.full((len(short), max(map(len, short), default=0) + 2), PAD, dtype=np.int32)
        number_of = self._chars.get
        for row, word in zip(out, short, strict=True):
            row[: len(word) + 2] = [BEGIN, *(number_of(char, UNKNOWN) for char in word), END]
        return out


def check_ids(word_ids_BT: NDArray[np.integer], *, vocab_size: int, max_words: int) -> None:
    """Refuse numbers that have no embedding and texts that are too long, before the model meets them.

    An id outside the table is an error on a CPU and a device-side assert on a GPU, which kills the whole replica.

    Raises:
        CorpusError: an id is negative or not below ``vocab_size``, or a text has more than ``max_words`` words.
    """
    if word_ids_BT.ndim != 2:
        raise CorpusError(f"word ids have shape {word_ids_BT.shape}; the model reads (texts, words)")
    if word_ids_BT.shape[1] > max_words:
        raise CorpusError(f"a text of {word_ids_BT.shape[1]} words is too long; the model reads at most {max_words}")
    outside = (word_ids_BT < 0) | (word_ids_BT >= vocab_size)
    if outside.any():
        text, word = (int(place) for place in np.argwhere(outside)[0])
        raise CorpusError(
            f"word id {int(word_ids_BT[text, word])} of text {text}, word {word}, is outside 0..{vocab_size - 1}; "
            "encode texts with the codec that was trained with this model"
        )


def _trained(texts: Sequence[str], *, min_count: int) -> Tokenizer:
    """A word tokenizer; the vocabulary is in order of falling count, so a smaller one is a prefix of a larger one."""
    tokenizer = Tokenizer(WordLevel(unk_token=SPECIAL[UNKNOWN]))
    tokenizer.normalizer = Lowercase()
    tokenizer.pre_tokenizer = BertPreTokenizer()
    trainer = WordLevelTrainer(
        vocab_size=10_000_000, min_frequency=min_count, show_progress=False, special_tokens=list(SPECIAL)
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _tokenizer_of(body: object) -> Tokenizer:
    """The tokenizer that a JSON value describes; ValueError if it does not."""
    try:
        return Tokenizer.from_str(json.dumps(body))
    except Exception as error:  # the Rust side raises plain Exception and nothing narrower
        raise ValueError(f"tokenizer: {error}") from error


def _unknown_share(ids: Sequence[int]) -> float:
    return ids.count(UNKNOWN) / len(ids) if ids else 1.0


def _without_surrogates(text: str) -> str:
    """Half a surrogate pair is no character, and the Rust side refuses it; one for one, so that places stay."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)
