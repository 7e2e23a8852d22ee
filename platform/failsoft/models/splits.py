"""Keeps train, validation and test apart: a text that occurs in two of them stays in the one that judges."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Iterable, Sequence

from failsoft.errors import CorpusError
from failsoft.models.corpus import Corpus, Repairs, Unreadable, Utterance

Splits = tuple[Sequence[Utterance], Sequence[Utterance], Sequence[Utterance]]


def normalised(text: str) -> str:
    """The text as far as two samples count as the same: letters and digits only, case and width folded."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    kept = "".join(char if char.isalnum() else " " for char in folded)
    return " ".join(kept.split()) or folded


def held_out(text: str, *, fraction: float, seed: int = 0) -> bool:
    """Whether a text belongs to the held-out share: by its digest, so that equal texts always go the same way."""
    digest = hashlib.blake2b(f"{seed}:{normalised(text)}".encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") < fraction * 2**64


def carve(
    samples: Iterable[Utterance], goes_out: Callable[[Utterance], bool]
) -> tuple[list[Utterance], list[Utterance]]:
    """Those that stay, and those that go."""
    stay: list[Utterance] = []
    go: list[Utterance] = []
    for sample in samples:
        (go if goes_out(sample) else stay).append(sample)
    return stay, go


def assemble(name: str, splits: Splits, repairs: Repairs, unreadable: Sequence[Unreadable] = ()) -> Corpus:
    """A corpus whose splits share no text: duplicates leave train for validation, and validation for test.

    Args:
        name: of the corpus.
        splits: train, validation, test as read.
        repairs: what was mended so far; the removals are added to it.
        unreadable: entries of the training files that are no samples.

    Raises:
        CorpusError: a split is empty, or a text is to be judged by an intent that training never saw.
    """
    train, validation, test = splits
    test_texts = {normalised(sample.text) for sample in test}
    validation = _without(validation, test_texts, "removed from validation, also in test", repairs)
    validation_texts = {normalised(sample.text) for sample in validation}
    train = _without(train, test_texts, "removed from train, also in test", repairs)
    train = _without(train, validation_texts, "removed from train, also in validation", repairs)
    for label, split in (("train", train), ("validation", validation), ("test", test)):
        if not split:
            raise CorpusError(f"the {label} split of corpus {name} is empty; give files that hold samples for it")
    _compare_intents(train, validation, test, repairs)
    return Corpus(
        name=name,
        train=tuple(train),
        validation=tuple(validation),
        test=tuple(test),
        intents=tuple(sorted({sample.intent for sample in train})),
        slots=tuple(sorted({span.slot for sample in train for span in sample.spans})),
        report=repairs.report(),
        unreadable=tuple(unreadable),
    )


def _compare_intents(
    train: Sequence[Utterance], validation: Sequence[Utterance], test: Sequence[Utterance], repairs: Repairs
) -> None:
    """Nobody can learn an intent without samples of it; one that no test sample judges is counted."""
    learnt, judged = {sample.intent for sample in train}, {sample.intent for sample in test}
    for sample in (*validation, *test):
        if sample.intent not in learnt:
            raise CorpusError(
                f"{sample.id} has intent {sample.intent!r}, which no training sample has; give a training file for it"
            )
    for intent in sorted(learnt - judged):
        repairs.add("intents without a test sample", intent)


def _without(samples: Sequence[Utterance], taken: set[str], kind: str, repairs: Repairs) -> list[Utterance]:
    kept, doubles = carve(samples, lambda sample: normalised(sample.text) in taken)
    for double in doubles:
        repairs.add(kind, double.id)
    return kept
