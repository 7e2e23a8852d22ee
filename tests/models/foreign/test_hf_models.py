"""A transformers folder is served as it is, whole or not at all, and never runs code of its own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from failsoft.artifacts.bundle import Bundle
from failsoft.errors import ConfigError, DamagedArtifactError, IncompatibleArtifactError
from failsoft.health.window import Outcome
from failsoft.models.foreign.hf_files import copy_model_folder, labels_of
from failsoft.models.foreign.hf_models import HfClassifier, HfTagger
from failsoft.serving import Tagging
from tests.models.foreign.served import Loose, answered, example, loads_as_recorded, reopened, spoil

transformers = pytest.importorskip("transformers", reason="needs the extra: pip install 'failsoft[transformers]'")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, Path]:
    torch.set_num_threads(1)
    home = tmp_path_factory.mktemp("hf")
    return example("serve_transformers").publish(home), home


@pytest.fixture
def folder(published: tuple[Bundle, Path], tmp_path: Path) -> Path:
    """A copy of the trained folder, to be spoilt."""
    shutil.copytree(published[1] / "trained", tmp_path / "transformers")
    return tmp_path / "transformers"


def test_the_example_is_published_verified_and_answers_as_the_original(published: tuple[Bundle, Path]) -> None:
    bundle, home = published
    there = example("serve_transformers")
    loads_as_recorded(there.config, reopened(bundle, home))
    texts = [*there.TEXTS, "something else", ""]
    model = transformers.BertForSequenceClassification.from_pretrained(home / "trained").eval()
    tokens = transformers.AutoTokenizer.from_pretrained(home / "trained")(texts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        wanted = model(**tokens).logits.numpy()
    found = there.config.loader()(bundle).predict(texts)["logits"]
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert labels_of(bundle.path / "transformers") == there.LABELS


@pytest.mark.anyio
async def test_it_answers_callers_by_its_labels(published: tuple[Bundle, Path]) -> None:
    answer = await answered(example("serve_transformers").config, published[1], {"text": "play some jazz"})
    assert (answer["output"], answer["source"]) == ("play_music", "primary")


def test_a_byte_that_changed_refuses_the_release(tmp_path: Path) -> None:
    there = example("serve_transformers")
    bundle = there.publish(tmp_path)
    spoil(bundle.path / "transformers/model.safetensors")
    with pytest.raises(DamagedArtifactError):
        reopened(bundle, tmp_path)


def test_weights_broken_in_memory_answer_otherwise(published: tuple[Bundle, Path]) -> None:
    there = example("serve_transformers")
    predictor = there.config.loader()(published[0])
    before = predictor.predict(there.TEXTS)["logits"]
    predictor.break_weights()
    assert not np.allclose(predictor.predict(there.TEXTS)["logits"], before, atol=0.1)


def test_a_tensor_that_is_absent_refuses_the_folder_where_transformers_would_make_one_up(folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    del state["classifier.weight"]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(IncompatibleArtifactError, match=r"no fitting tensor for classifier\.weight"):
        HfClassifier().load(Loose(folder=folder.parent))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "modeling_own.py", "weights.pkl", "tf_model.h5"])
def test_pickles_and_code_are_left_out_of_a_release_and_refused_in_one(folder: Path, tmp_path: Path, name: str) -> None:
    (folder / name).write_bytes(b"x")
    with pytest.raises(IncompatibleArtifactError, match=f"{name} may hold code"):
        HfClassifier().load(Loose(folder=folder.parent))
    assert copy_model_folder(folder, tmp_path / "copy") == (name,)
    assert not (tmp_path / "copy" / name).exists()


OWN_CODE: dict[str, tuple[str, dict[str, Any]]] = {
    "a class": ("config.json", {"auto_map": {"AutoConfig": "own.Config"}}),
    "a tokenizer": ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": "own.Tokenizer"}}),
    "a class of a part": ("config.json", {"text_config": {"auto_map": {"AutoConfig": "own.Config"}}}),
    "a kernel of the Hub": ("config.json", {"attn_implementation": "kernels-community/flash-attn"}),
    "a kernel of a part": (
        "config.json",
        {"_attn_implementation": {"": "sdpa", "text_config": "someone/attention@v1"}},
    ),
}


@pytest.mark.parametrize("name", OWN_CODE)
def test_a_folder_that_asks_for_code_of_its_own_is_refused(folder: Path, tmp_path: Path, name: str) -> None:
    file, more = OWN_CODE[name]
    body = json.loads((folder / file).read_text("utf-8"))
    (folder / file).write_text(json.dumps(body | more), "utf-8")
    for attempt in (
        lambda: HfClassifier().load(Loose(folder=folder.parent)),
        lambda: copy_model_folder(folder, tmp_path / "c"),
    ):
        with pytest.raises(ConfigError, match="asks for code of its own"):
            attempt()


def test_an_attention_of_transformers_own_is_no_code_of_others(folder: Path) -> None:
    body = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(body | {"attn_implementation": "eager"}), "utf-8")
    assert HfClassifier().load(Loose(folder=folder.parent)).model.config._attn_implementation == "eager"


def test_an_adapter_of_a_model_that_lies_elsewhere_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "/elsewhere"}', "utf-8")
    with pytest.raises(ConfigError, match="a model that lies elsewhere"):
        HfClassifier().load(Loose(folder=folder.parent))
    with pytest.raises(ConfigError, match="merge_and_unload"):
        copy_model_folder(folder, tmp_path / "c")


def test_folders_that_are_no_models_are_refused_in_words(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no config\.json"):
        copy_model_folder(tmp_path / "absent", tmp_path / "copy")
    (folder / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(IncompatibleArtifactError, match="does not load"):
        HfClassifier().load(Loose(folder=folder.parent))
    (folder / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match="no weights in safetensors, and pickles are not read"):
        copy_model_folder(folder, tmp_path / "copy")
    for wrong in ({"threads": 0}, {"max_tokens": 0}):
        with pytest.raises(ConfigError):
            HfClassifier(**wrong)  # type: ignore[arg-type]  # wrong on purpose


def test_a_tokenizer_of_another_model_is_refused(folder: Path) -> None:
    body: Any = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    body["model"]["vocab"] |= {f"more{n}": len(body["model"]["vocab"]) + n for n in range(9)}
    (folder / "tokenizer.json").write_text(json.dumps(body), "utf-8")
    with pytest.raises(IncompatibleArtifactError, match=r"tokens and the model embeds \d+"):
        HfClassifier().load(Loose(folder=folder.parent))


def test_a_tagger_gives_a_tag_for_each_word_with_its_place(published: tuple[Bundle, Path], tmp_path: Path) -> None:
    labels = ("O", "B-genre", "I-genre")
    trained = published[1] / "trained"
    torch.manual_seed(0)
    config = transformers.BertConfig.from_pretrained(trained, num_labels=3, id2label=dict(enumerate(labels)))
    transformers.BertForTokenClassification(config).save_pretrained(tmp_path / "saved")
    transformers.AutoTokenizer.from_pretrained(trained).save_pretrained(tmp_path / "saved")
    copy_model_folder(tmp_path / "saved", tmp_path / "transformers")
    scores = HfTagger().load(Loose(folder=tmp_path)).predict(["play some jazz", "rain", ""])
    assert scores["counts"].tolist() == [3, 1, 0]
    assert scores["offsets"] == [[(0, 4), (5, 9), (10, 14)], [(0, 4)], []]
    judged = Tagging(labels=labels_of(tmp_path / "transformers")).judge(scores, rows=3, measures={})
    assert [len(row.output or ()) for row in judged] == [3, 1, 0]
    assert judged[2].outcome is Outcome.WEAK, "a text without a word has no answer"
