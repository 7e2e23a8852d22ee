"""Intents and slots as numbers, and slot spans as BIO tags and back. Free of torch."""

# B texts, T words, S tags

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from failsoft.errors import CorpusError
from failsoft.health.json_object import json_value
from failsoft.models.corpus import Corpus, Span

Offsets = Sequence[tuple[int, int]]

OUTSIDE = 0
"""The tag of a word that belongs to no slot. Slot k begins with tag 1 + 2k and goes on with tag 2 + 2k."""

_HOPELESS = -1e30


@dataclass(frozen=True)
class LabelSet:
    """The intents and slots that a model knows, in the order of its outputs."""

    intents: tuple[str, ...]
    slots: tuple[str, ...]

    def __post_init__(self) -> None:
        """Refuse what would make an output ambiguous."""
        for kind, names in (("intent", self.intents), ("slot", self.slots)):
            if len(set(names)) != len(names):
                raise CorpusError(f"a name occurs twice among the {kind} labels {names}; name each once")
        if not self.intents:
            raise CorpusError("there are no intents; a model needs at least one to answer with")

    @classmethod
    def of(cls, corpus: Corpus) -> LabelSet:
        """The labels of a corpus' train split."""
        return cls(corpus.intents, corpus.slots)

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """``O``, then ``B-`` and ``I-`` of each slot."""
        return ("O", *(f"{prefix}-{slot}" for slot in self.slots for prefix in "BI"))

    @cached_property
    def _intent_numbers(self) -> dict[str, int]:
        return {intent: number for number, intent in enumerate(self.intents)}

    @cached_property
    def _slot_numbers(self) -> dict[str, int]:
        return {slot: number for number, slot in enumerate(self.slots)}

    def intent_index(self, intent: str) -> int:
        """The number of an intent.

        Raises:
            CorpusError: the intent is not among the labels.
        """
        try:
            return self._intent_numbers[intent]
        except KeyError:
            raise CorpusError(f"intent {intent!r} is not among the labels {list(self.intents)}") from None

    def slot_index(self, slot: str) -> int:
        """The number of a slot.

        Raises:
            CorpusError: the slot is not among the labels.
        """
        try:
            return self._slot_numbers[slot]
        except KeyError:
            raise CorpusError(f"slot {slot!r} is not among the labels {list(self.slots)}") from None

    def tags_of(self, spans: Sequence[Span], offsets: Offsets) -> NDArray[np.int64]:
        """BIO tag numbers, one per word; a word belongs to a span when they share a character."""
        tags = np.full(len(offsets), OUTSIDE, dtype=np.int64)
        for span in spans:
            begin = 1 + 2 * self.slot_index(span.slot)
            inside = [i for i, (start, end) in enumerate(offsets) if start < span.end and end > span.start]
            tags[inside] = begin + 1
            tags[inside[:1]] = begin
        return tags

    def spans_of(self, tags: Sequence[int] | NDArray[np.integer], offsets: Offsets) -> list[Span]:
        """The spans that BIO tags mean, as conlleval reads them: an ``I-`` after another slot begins a new span."""
        return [
            Span(offsets[first][0], offsets[last][1], self.slots[slot])
            for first, last, slot in chunks(np.asarray(tags))
        ]

    def save(self, path: Path) -> None:
        """Write as JSON."""
        path.write_text(json.dumps({"intents": self.intents, "slots": self.slots}, indent=1), "utf-8")

    @classmethod
    def load(cls, path: Path) -> LabelSet:
        """Read what :meth:`save` wrote.

        Raises:
            CorpusError: the file is not such a file.
        """
        try:
            body = json_value(path.read_text("utf-8"))
            return cls(tuple(body["intents"]), tuple(body["slots"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CorpusError(f"{path} does not hold labels ({error!r}); write it with LabelSet.save") from error


def chunks(tags: NDArray[np.integer]) -> list[tuple[int, int, int]]:
    """First word, last word and slot number of each run of tags."""
    found: list[tuple[int, int, int]] = []
    previous = OUTSIDE
    for place, tag in enumerate(tags.tolist()):
        slot, is_begin = (tag - 1) // 2, tag % 2 == 1
        if tag != OUTSIDE:
            if not is_begin and previous != OUTSIDE and (previous - 1) // 2 == slot:
                found[-1] = (found[-1][0], place, slot)
            else:
                found.append((place, place, slot))
        previous = tag
    return found


def best_tags(log_probs_BTS: NDArray[np.floating], counts_B: NDArray[np.integer]) -> list[NDArray[np.int64]]:
    """The likeliest tag sequence of each text in which every ``I-x`` follows ``B-x`` or ``I-x`` (Viterbi, exact).

    Only one predecessor matters for ``I-x`` and only the overall best for the other tags, so a word costs O(S), not
    O(S^2). Non-finite scores count as hopeless ones: the tags that come out mean nothing then, and whoever judges the
    logits sees that.

    Args:
        log_probs_BTS: scores per tag; added up along the sequence.
        counts_B: words of each text; what lies beyond is padding.
    """
    batch, length, tags = log_probs_BTS.shape
    if batch == 0 or length == 0:
        return [np.zeros(0, dtype=np.int64) for _ in range(batch)]
    scores_BTS = np.where(np.isfinite(log_probs_BTS), log_probs_BTS, _HOPELESS).astype(np.float64)
    back_BTS = np.zeros((batch, length, tags), dtype=np.int64)
    score_BS = scores_BTS[:, 0].copy()
    score_BS[:, 2::2] = _HOPELESS  # a text cannot begin inside a slot
    history = [score_BS]
    rows = np.arange(batch)
    begins, insides = np.arange(1, tags, 2), np.arange(2, tags, 2)
    for t in range(1, length):
        best_B = score_BS.argmax(axis=1)
        back_BTS[:, t] = best_B[:, None]
        carried_BS = np.repeat(score_BS[rows, best_B][:, None], tags, axis=1)
        goes_on = score_BS[:, insides] >= score_BS[:, begins]
        back_BTS[:, t, 2::2] = np.where(goes_on, insides, begins)
        carried_BS[:, 2::2] = np.maximum(score_BS[:, insides], score_BS[:, begins])
        score_BS = carried_BS + scores_BTS[:, t]
        history.append(score_BS)
    return [_walk_back(back_BTS[b], history, b, int(count)) for b, count in enumerate(counts_B)]


def _walk_back(
    back_TS: NDArray[np.int64], history: list[NDArray[np.float64]], row: int, count: int
) -> NDArray[np.int64]:
    path = np.zeros(count, dtype=np.int64)
    if count == 0:
        return path
    path[-1] = history[count - 1][row].argmax()
    for t in range(count - 1, 0, -1):
        path[t - 1] = back_TS[t, path[t]]
    return path
