"""CLINC150 in its published form, whole and damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from failsoft.errors import CorpusError
from failsoft.models.clinc import read_clinc
from failsoft.models.corpora import load_corpus


def published(folder: Path, **changes: Any) -> Path:
    body: dict[str, Any] = {
        "train": [["pay the bill", "pay"], ["call me", "call"]],
        "val": [["pay it", "pay"]],
        "test": [["ring me", "call"], ["settle it", "pay"]],
        "oos_train": [["how high is the moon", "oos"]],
        "oos_val": [["who won", "oos"]],
        "oos_test": [["sing", "oos"]],
    }
    (folder / "data_full.json").write_text(json.dumps(body | changes), "utf-8")
    return folder


def test_out_of_scope_texts_are_an_intent_of_their_own(tmp_path: Path) -> None:
    corpus = load_corpus(published(tmp_path))
    assert corpus.intents == ("call", "oos", "pay")
    assert corpus.slots == ()
    assert [sample.id for sample in corpus.test] == ["clinc150/test#0", "clinc150/test#1", "clinc150/oos_test#0"]


def test_an_entry_that_is_no_pair_is_left_out_and_counted(tmp_path: Path) -> None:
    corpus = read_clinc(published(tmp_path, val=[["pay it", "pay"], ["alone"], "text", ["", "pay"]]))
    assert corpus.report.counts == {"entries that are no pair of text and intent, left out": 3}


def test_an_intent_that_training_never_saw_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"clinc150/test#0 has intent 'fly'"):
        read_clinc(published(tmp_path, test=[["fly", "fly"]]))


@pytest.mark.parametrize("changes", [{"oos_val": None}, {"train": {}}])
def test_a_split_that_is_not_there_is_named(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(CorpusError, match=f"no list '{next(iter(changes))}'"):
        read_clinc(published(tmp_path, **changes))


def test_a_file_that_is_no_corpus_is_refused(tmp_path: Path) -> None:
    for body in ("{", "[]"):
        (tmp_path / "data_full.json").write_text(body, "utf-8")
        with pytest.raises(CorpusError, match=r"data_full\.json"):
            read_clinc(tmp_path)


def test_the_published_corpus_is_read_whole(clinc_dir: Path) -> None:
    corpus = load_corpus(clinc_dir)
    assert len(corpus.intents) == 151
    assert len(corpus.test) == 5500
