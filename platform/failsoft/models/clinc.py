"""Reads CLINC150 in its published JSON form: pairs of text and intent by split; no slots; ``oos`` is out of scope."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from failsoft.errors import CorpusError
from failsoft.health.json_object import json_value
from failsoft.models.corpus import Corpus, Repairs, Unreadable, Utterance
from failsoft.models.snips import decoded
from failsoft.models.splits import assemble

DATA_FILE = "data_full.json"
_SPLITS = {"train": ("train", "oos_train"), "validation": ("val", "oos_val"), "test": ("test", "oos_test")}


def read_clinc(folder: Path) -> Corpus:
    """The corpus in ``folder/data_full.json``, with out-of-scope texts as the intent ``oos``.

    Raises:
        CorpusError: the file is absent, damaged, lacks a split, or holds an intent that training never saw.
    """
    repairs = Repairs()
    file = folder / DATA_FILE
    try:
        body = json_value(decoded(file, repairs))
    except ValueError as error:
        raise CorpusError(f"{file} is not JSON: {error}; fetch the file again") from error
    if not isinstance(body, dict):
        raise CorpusError(f'{file} is not in the CLINC150 form {{"train": [[text, intent], ...], ...}}')
    (train, unreadable), (validation, _), (test, _) = (_split(body, keys, file, repairs) for keys in _SPLITS.values())
    return assemble("clinc150", (train, validation, test), repairs, unreadable)


def _split(
    body: dict[str, Any], keys: Iterable[str], file: Path, repairs: Repairs
) -> tuple[list[Utterance], list[Unreadable]]:
    samples, unreadable = list[Utterance](), list[Unreadable]()
    for key in keys:
        entries = body.get(key)
        if not isinstance(entries, list):
            raise CorpusError(f"{file} has no list {key!r}; it has {sorted(body)}")
        for place, entry in enumerate(entries):
            name = f"clinc150/{key}#{place}"
            if _is_pair(entry):
                samples.append(Utterance(id=name, text=entry[0], intent=entry[1], source=file.name))
            else:
                repairs.add("entries that are no pair of text and intent, left out", name)
                unreadable.append(Unreadable(id=name, source=file.name, why="it is no pair of text and intent"))
    return samples, unreadable


def _is_pair(entry: Any) -> bool:
    is_list = isinstance(entry, list) and len(entry) == 2
    return is_list and all(isinstance(part, str) and part.strip() for part in entry)
