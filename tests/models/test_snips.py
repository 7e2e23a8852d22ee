"""SNIPS in its published form, whole and damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from failsoft.errors import CorpusError
from failsoft.models.corpora import load_corpus
from failsoft.models.corpus import Span
from failsoft.models.snips import read_snips

PLAIN = {"data": [{"text": "play "}, {"text": "jazz", "entity": "genre"}]}


def entry(text: str) -> dict[str, Any]:
    return {"data": [{"text": text}]}


def published(folder: Path, train: list[Any], *, test: list[Any] | None = None) -> Path:
    padding = [entry(f"sample number {n}") for n in range(120)]
    (folder / "train_Go_full.json").write_text(json.dumps({"Go": [*train, *padding]}), "utf-8")
    (folder / "validate_Go.json").write_text(json.dumps({"Go": test or [entry("a test")]}), "utf-8")
    return folder


def test_pieces_become_a_text_with_spans_and_a_name_that_says_where_it_came_from(tmp_path: Path) -> None:
    corpus = read_snips(published(tmp_path, [PLAIN]))
    sample = corpus.train[0]
    assert (sample.text, sample.intent) == ("play jazz", "Go")
    assert sample.spans == (Span(5, 9, "genre"),)
    assert sample.id == "snips/train_Go_full.json#0"
    assert sample.source == "train_Go_full.json"


def test_a_validation_split_is_kept_back_the_same_way_each_time(tmp_path: Path) -> None:
    first, second = read_snips(published(tmp_path, [PLAIN])), read_snips(tmp_path)
    assert first == second
    assert first.validation


def test_single_latin_1_bytes_are_mended_and_counted(tmp_path: Path) -> None:
    published(tmp_path, [PLAIN])
    (tmp_path / "validate_Go.json").write_bytes(b'{"Go": [{"data": [{"text": "play mar\xeda"}]}]}')
    corpus = read_snips(tmp_path)
    assert corpus.test[0].text == "play mar\u00eda"
    assert corpus.report.counts["bytes read as Latin-1"] == 1


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_a_file_in_another_encoding_is_refused(tmp_path: Path, encoding: str) -> None:
    published(tmp_path, [PLAIN])
    (tmp_path / "validate_Go.json").write_bytes(json.dumps({"Go": [PLAIN]}).encode(encoding))
    with pytest.raises(CorpusError, match=r"validate_Go\.json is not UTF-8 text"):
        read_snips(tmp_path)


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        ({}, "samples without a data list, left out"),
        ("text", "samples without a data list, left out"),
        ({"data": []}, "samples without text, left out"),
        ({"data": [{"entity": "genre"}]}, "pieces without text, read as empty"),
        ({"data": [{"text": "go"}, {"text": " ", "entity": "genre"}]}, "slots without text, left out"),
        (
            {"data": [{"text": "go "}, {"text": "far", "entity": 3}]},
            "pieces with an unusable entity, read as plain text",
        ),
        ({"data": [{"text": "go"}, {"text": " far ", "entity": "genre"}]}, "spans trimmed of blanks"),
    ],
)
def test_a_damaged_sample_is_mended_or_left_out_and_always_counted(tmp_path: Path, broken: Any, kind: str) -> None:
    corpus = read_snips(published(tmp_path, [PLAIN, broken]))
    assert corpus.report.counts[kind] == 1
    assert "train_Go_full.json#1" in str(corpus.report)


def test_a_file_of_one_intent_that_is_missing_is_refused_or_counted(tmp_path: Path) -> None:
    published(tmp_path, [PLAIN])
    (tmp_path / "validate_Rest.json").write_text(json.dumps({"Rest": [entry("sleep")]}), "utf-8")
    with pytest.raises(CorpusError, match=r"validate_Rest\.json#0 has intent 'Rest', which no training sample has"):
        read_snips(tmp_path)
    (tmp_path / "validate_Rest.json").unlink()
    (tmp_path / "train_Rest_full.json").write_text(json.dumps({"Rest": [entry("sleep"), entry("doze")]}), "utf-8")
    assert read_snips(tmp_path).report.counts["intents without a test sample"] == 1


def test_a_slot_that_training_never_saw_is_counted_and_kept_as_a_miss(tmp_path: Path) -> None:
    odd = {"data": [{"text": "at "}, {"text": "noon", "entity": "hour"}]}
    corpus = read_snips(published(tmp_path, [PLAIN], test=[odd]))
    assert corpus.report.counts["slots unknown to train, counted as missed"] == 1
    assert corpus.test[0].spans == (Span(3, 7, "hour"),)
    assert "hour" not in corpus.slots


@pytest.mark.parametrize("body", ["[]", "{}", '{"A": [], "B": []}', '{"A": 3}', "{"])
def test_a_file_in_another_form_is_refused_by_name(tmp_path: Path, body: str) -> None:
    published(tmp_path, [PLAIN])
    (tmp_path / "validate_Go.json").write_text(body, "utf-8")
    with pytest.raises(CorpusError, match=r"validate_Go\.json"):
        read_snips(tmp_path)


def test_a_folder_without_a_corpus_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"train_\*_full\.json.*data_full\.json"):
        load_corpus(tmp_path)
    with pytest.raises(CorpusError, match="is not a folder"):
        load_corpus(tmp_path / "absent")
    published(tmp_path, [PLAIN])
    (tmp_path / "validate_Go.json").unlink()
    with pytest.raises(CorpusError, match=r"has no validate_\*\.json"):
        load_corpus(tmp_path)


def test_the_published_corpus_is_read_whole(snips_dir: Path) -> None:
    corpus = load_corpus(snips_dir)
    assert (len(corpus.intents), len(corpus.slots), len(corpus.test)) == (7, 39, 700)
    removed = sum(count for kind, count in corpus.report.counts.items() if kind.startswith("removed"))
    assert len(corpus.train) + len(corpus.validation) + removed == 13_784
    assert corpus.report.counts["bytes read as Latin-1"] == 6
