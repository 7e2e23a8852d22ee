"""ONNX files are served as they are, and what can't be run is refused in words."""

from __future__ import annotations

import ast
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from failsoft.artifacts.bundle import Bundle
from failsoft.errors import ConfigError, CorpusError, DamagedArtifactError, IncompatibleArtifactError
from failsoft.models.foreign.onnx_models import OnnxModel
from tests.conftest import ROOT
from tests.models.foreign.served import Loose, answered, example, loads_as_recorded, reopened, spoil

pytest.importorskip("onnxruntime", reason="needs the extra: pip install 'failsoft[onnx]'")
onnx = pytest.importorskip("onnx", reason="makes the models of these tests: pip install onnx")

pytestmark = pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.:FutureWarning")  # torch calls torch so

LINEAR = """<ir_version: 9, opset_import: ["" : 17]>
linear (float[N,2] x) => (float[N,3] scores, float[N,3] probs)
<float[2,3] w = {1.0, 0.0, -1.0, 0.0, 1.0, 0.0}> { scores = MatMul(x, w)  probs = Softmax(scores) }"""
TWO_INPUTS = """<ir_version: 9, opset_import: ["" : 17]>
two (float[N,2] x, int64[N,1] n) => (float[N,2] y) { m = Cast<to=1>(n)  y = Mul(x, m) }"""
ONE_AT_A_TIME = """<ir_version: 9, opset_import: ["" : 17]>
one (float[1,2] x) => (float[1,2] y) { y = Neg(x) }"""
WORDS = """<ir_version: 9, opset_import: ["" : 17]>
words (int64[N,T] input_ids, int64[N,T] attention_mask) => (float[N,T] y) <float[5] table = {0.0, 1.0, 2.0, 3.0, 4.0}>
{ found = Gather(table, input_ids)  m = Cast<to=1>(attention_mask)  y = Mul(found, m) }"""


def model_file(folder: Path, text: str) -> Loose:
    onnx.save(onnx.parser.parse_model(text), folder / "model.onnx")
    return Loose(folder=folder)


def test_outputs_come_by_name_and_rows_in_order(tmp_path: Path) -> None:
    predictor = OnnxModel().load(model_file(tmp_path, LINEAR))
    found = predictor.predict([[1.0, 2.0], (3, 4)])
    assert found["scores"].tolist() == [[1.0, 2.0, -1.0], [3.0, 4.0, -3.0]]
    assert sorted(found) == ["probs", "scores"]


def test_outputs_are_renamed_and_probabilities_become_logits_that_say_the_same(tmp_path: Path) -> None:
    bundle = model_file(tmp_path, LINEAR)
    assert sorted(OnnxModel(names={"scores": "logits"}).load(bundle).predict([[1.0, 2.0]])) == ["logits"]
    found = OnnxModel(probabilities="probs").load(bundle).predict([[1.0, 2.0], [900.0, -900.0]])
    again = np.exp(found["logits"])
    np.testing.assert_allclose(again / again.sum(axis=1, keepdims=True), found["probs"], atol=1e-6)
    assert np.isfinite(found["logits"]).all(), "a probability of 0 is no answer that is not finite"


def test_an_instance_names_each_of_several_inputs(tmp_path: Path) -> None:
    predictor = OnnxModel().load(model_file(tmp_path, TWO_INPUTS))
    assert predictor.predict([{"x": [1.0, 2.0], "n": [3]}])["y"].tolist() == [[3.0, 6.0]]
    for item, words in (([1.0, 2.0], "several inputs"), ({"x": [1.0, 2.0]}, "has no 'n'")):
        with pytest.raises(CorpusError, match=words):
            predictor.predict([item])
    with pytest.raises(CorpusError, match="a number that is no int64"):
        predictor.predict([{"x": [1.0, 2.0], "n": [2.5]}])


@pytest.mark.parametrize("batch", [[[1.0, 2.0], [1.0]], [["a", "b"]], [[None, 1.0]]])
def test_rows_that_are_no_rows_of_numbers_are_refused_before_the_model_sees_them(tmp_path: Path, batch: Any) -> None:
    with pytest.raises(CorpusError, match="input x"):
        OnnxModel().load(model_file(tmp_path, LINEAR)).predict(batch)


def test_a_file_for_one_item_at_a_time_is_asked_item_by_item(tmp_path: Path) -> None:
    predictor = OnnxModel().load(model_file(tmp_path, ONE_AT_A_TIME))
    assert predictor.predict([[1.0, 2.0], [3.0, 4.0]])["y"].tolist() == [[-1.0, -2.0], [-3.0, -4.0]]


def test_texts_become_ids_by_the_release_s_own_tokenizer(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "a": 2, "b": 3, "c": 4}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    asked = OnnxModel(tokenizer="tokenizer.json", max_tokens=3)
    predictor = asked.load(model_file(tmp_path, WORDS))
    assert predictor.predict(["a b c a", "c ?", ""])["y"].tolist() == [[2, 3, 4], [4, 1, 0], [0, 0, 0]]
    with pytest.raises(CorpusError, match="a text is no text"):
        predictor.predict([[1.0]])
    (tmp_path / "tokenizer.json").write_text("{}", "utf-8")
    with pytest.raises(IncompatibleArtifactError, match="holds no tokenizer"):
        asked.load(Loose(folder=tmp_path))


def test_tensors_outside_the_release_are_not_read(tmp_path: Path) -> None:
    """A file may name its weights by a path; one that leads out of the release would bring bytes that nobody signed."""
    release = tmp_path / "release"
    release.mkdir()
    model = onnx.parser.parse_model(LINEAR)
    held = onnx.numpy_helper.to_array(model.graph.initializer[0])
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(held, "w"))  # as bytes, which may lie elsewhere
    onnx.save(model, release / "model.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    assert OnnxModel().load(Loose(folder=release)).predict([[1.0, 2.0]])["scores"].tolist() == [[1.0, 2.0, -1.0]]
    (release / "w.bin").rename(tmp_path / "w.bin")
    saved = onnx.load(release / "model.onnx", load_external_data=False)
    for entry in saved.graph.initializer[0].external_data:
        entry.value = "../w.bin" if entry.key == "location" else entry.value
    (release / "model.onnx").write_bytes(saved.SerializeToString())
    with pytest.raises(IncompatibleArtifactError, match="can't be run"):
        OnnxModel().load(Loose(folder=release))


def test_what_can_not_be_run_is_refused_in_words(tmp_path: Path) -> None:
    bundle = model_file(tmp_path, LINEAR)
    with pytest.raises(IncompatibleArtifactError, match="has no output logits; it has scores, probs"):
        OnnxModel(probabilities="logits").load(bundle)
    with pytest.raises(ConfigError, match="ONNX Runtime has no NoSuchProvider here"):
        OnnxModel(providers=("NoSuchProvider",)).load(bundle)
    (tmp_path / "model.onnx").write_bytes(b"no model")
    with pytest.raises(IncompatibleArtifactError, match=r"model\.onnx of release r-loose can't be run"):
        OnnxModel().load(bundle)
    with pytest.raises(DamagedArtifactError, match=r"has no other\.onnx"):
        OnnxModel(file="other.onnx").load(bundle)
    for wrong in ({"threads": 0}, {"max_tokens": 0}, {"providers": ()}):
        with pytest.raises(ConfigError):
            OnnxModel(**wrong)


def test_a_library_that_is_absent_is_named_with_the_command_that_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ConfigError, match=r"run: pip install 'failsoft\[onnx\]'"):
        OnnxModel().load(model_file(tmp_path, LINEAR))


def test_what_is_asked_for_travels_to_a_replica() -> None:
    asked = OnnxModel(names={"a": "logits"}, tokenizer="tokenizer.json")
    assert pickle.loads(pickle.dumps(asked)) == asked  # noqa: S301 -- its own


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, Path]:
    home = tmp_path_factory.mktemp("onnx")
    return example("serve_onnx").publish(home), home


def test_the_example_is_published_and_answers_as_the_original(published: tuple[Bundle, Path]) -> None:
    bundle, home = published
    config = example("serve_onnx").config
    loads_as_recorded(config, reopened(bundle, home))
    rows = np.array([[20.0, 1.0], [80.5, 3.0], [200.0, 9.0]], dtype=np.float32)
    wanted = rows @ np.array([[-0.1, 0.1], [0.0, 0.0]], dtype=np.float32) + np.array([8.0, -8.0], dtype=np.float32)
    np.testing.assert_allclose(config.loader()(bundle).predict(rows.tolist())["logits"], wanted, atol=1e-5)


@pytest.mark.anyio
async def test_it_answers_callers_by_its_labels(published: tuple[Bundle, Path]) -> None:
    answer = await answered(example("serve_onnx").config, published[1], {"instance": [150.0, 6.0]})
    assert (answer["output"], answer["source"]) == ("large", "primary")


def test_a_byte_that_changed_refuses_the_release(published: tuple[Bundle, Path]) -> None:
    bundle, home = published
    spoil(bundle.path / "model.onnx")
    with pytest.raises(DamagedArtifactError):
        reopened(bundle, home)


def test_it_fits_on_a_page() -> None:
    for name in ("serve_onnx", "serve_exported", "serve_transformers"):
        text = (ROOT / f"docs/{name}.py").read_text("utf-8")
        lines = text.splitlines()[ast.parse(text).body[0].end_lineno :]
        assert len([line for line in lines if line.strip()]) <= 40, name


@pytest.mark.drill
def test_what_torch_exports_answers_as_the_model_in_torch_does(tmp_path: Path) -> None:
    """A drill, since the exporter alone takes ten seconds."""
    pytest.importorskip("onnxscript", reason="torch exports by it: pip install onnx onnxscript")
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.GELU(), torch.nn.Linear(8, 3)).eval()
    shapes = ({0: torch.export.Dim("batch", max=4096)},)
    export = partial(torch.onnx.export, dynamo=True, external_data=False, output_names=["logits"])
    export(model, (torch.zeros(2, 2),), tmp_path / "model.onnx", dynamic_shapes=shapes)
    rows = torch.randn(7, 2)
    found = OnnxModel().load(Loose(folder=tmp_path)).predict(rows.tolist())["logits"]
    np.testing.assert_allclose(found, model(rows).detach().numpy(), atol=1e-5)
