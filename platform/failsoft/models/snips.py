"""Reads SNIPS in its published JSON form: one file per intent and split, an utterance as a list of text pieces."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from failsoft.errors import CorpusError
from failsoft.health.json_object import json_value
from failsoft.models.corpus import Corpus, Repairs, Span, Unreadable, Utterance
from failsoft.models.splits import assemble, carve, held_out

TRAIN_FILES = "train_*_full.json"
TEST_FILES = "validate_*.json"
VALIDATION_FRACTION = 0.04
"""Share of the published training files that is kept back, by digest, for choices made while building."""

_BAD_BYTE = re.compile("[\udc80-\udcff]")
_MAX_BAD_BYTE_FRACTION = 0.001


def read_snips(folder: Path, *, seed: int = 0) -> Corpus:
    """The corpus in ``folder``: ``train_*_full.json`` for train and validation, ``validate_*.json`` for test.

    Raises:
        CorpusError: a file is absent, is not in the published form, or is damaged beyond counted repair.
    """
    repairs = Repairs()
    published_train, unreadable = _read_files(folder, TRAIN_FILES, repairs)
    test, _ = _read_files(folder, TEST_FILES, repairs)
    train, validation = carve(
        published_train, lambda sample: held_out(sample.text, fraction=VALIDATION_FRACTION, seed=seed)
    )
    known = {span.slot for sample in train for span in sample.spans}
    return assemble(
        "snips",
        (train, _known_slots_only(validation, known, repairs), _known_slots_only(test, known, repairs)),
        repairs,
        unreadable,
    )


def _read_files(folder: Path, pattern: str, repairs: Repairs) -> tuple[list[Utterance], list[Unreadable]]:
    files = sorted(folder.glob(pattern))
    if not files:
        raise CorpusError(f"{folder} has no {pattern}; put the published SNIPS files there")
    entries = [entry for file in files for entry in _read_file(file, repairs)]
    readable = [entry for entry in entries if isinstance(entry, Utterance)]
    return readable, [entry for entry in entries if isinstance(entry, Unreadable)]


def _read_file(file: Path, repairs: Repairs) -> Iterable[Utterance | Unreadable]:
    try:
        body = json_value(decoded(file, repairs))
    except ValueError as error:
        raise CorpusError(f"{file} is not JSON: {error}; fetch the file again") from error
    if not isinstance(body, dict) or len(body) != 1 or not isinstance(entries := next(iter(body.values())), list):
        raise CorpusError(f'{file} is not in the SNIPS form {{"Intent": [{{"data": [...]}}]}}')
    intent = next(iter(body))
    for place, entry in enumerate(entries):
        yield _read_entry(entry, intent=intent, file=file.name, place=place, repairs=repairs)


def decoded(file: Path, repairs: Repairs) -> str:
    """The file's text. Single bytes that are not UTF-8 are read as Latin-1 and counted.

    Raises:
        CorpusError: the file cannot be read, or so many bytes are wrong that it is no UTF-8 text at all.
    """
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise CorpusError(f"{file} cannot be read: {error.strerror}") from error
    text = raw.decode("utf-8-sig", "surrogateescape")
    bad = len(_BAD_BYTE.findall(text))
    if b"\0" in raw or bad > max(8, _MAX_BAD_BYTE_FRACTION * len(raw)):
        raise CorpusError(f"{file} is not UTF-8 text ({bad} of {len(raw)} bytes are wrong); convert it to UTF-8")
    if bad:
        repairs.add("bytes read as Latin-1", f"{bad} in {file.name}", count=bad)
    return _BAD_BYTE.sub(lambda match: chr(ord(match.group()) - 0xDC00), text)


def _read_entry(entry: Any, *, intent: str, file: str, place: int, repairs: Repairs) -> Utterance | Unreadable:
    name = f"snips/{file}#{place}"
    pieces = entry.get("data") if isinstance(entry, dict) else None
    if not isinstance(pieces, list):
        repairs.add("samples without a data list, left out", name)
        return Unreadable(id=name, source=file, why="it holds no data list")
    text, spans = "", []
    for piece in pieces:
        words, slot = _piece(piece, name, repairs)
        if slot is not None:
            spans.append(Span(len(text), len(text) + len(words), slot))
        text += words
    if not text.strip():
        repairs.add("samples without text, left out", name)
        return Unreadable(id=name, source=file, why="it holds no text")
    mended = tuple(_tight(span, text, name, repairs) for span in spans if text[span.start : span.end].strip())
    if len(mended) < len(spans):
        repairs.add("slots without text, left out", name, count=len(spans) - len(mended))
    return Utterance(id=name, text=text, intent=intent, spans=mended, source=file)


def _piece(piece: Any, name: str, repairs: Repairs) -> tuple[str, str | None]:
    """Text and slot of one piece; a piece without text counts as empty, one with an odd slot as plain text."""
    words = piece.get("text") if isinstance(piece, dict) else None
    if not isinstance(words, str):
        repairs.add("pieces without text, read as empty", name)
        return "", None
    slot = piece.get("entity")
    if slot is not None and not (isinstance(slot, str) and slot.strip()):
        repairs.add("pieces with an unusable entity, read as plain text", name)
        return words, None
    return words, slot


def _tight(span: Span, text: str, name: str, repairs: Repairs) -> Span:
    """The span without blanks at its ends."""
    value = text[span.start : span.end]
    start = span.start + len(value) - len(value.lstrip())
    tight = Span(start, start + len(value.strip()), span.slot)
    if tight != span:
        repairs.add("spans trimmed of blanks", name)
    return tight


def _known_slots_only(samples: Iterable[Utterance], known: set[str], repairs: Repairs) -> list[Utterance]:
    """A slot that training never saw can't be learnt: sample and span stay, as a sure miss, and the case is counted."""
    kept = list(samples)
    for sample in kept:
        for span in sample.spans:
            if span.slot not in known:
                repairs.add("slots unknown to train, counted as missed", f"{span.slot} in {sample.id}")
    return kept
