"""Programs of torch.export are served when they hold tensors and operators only; whatever could run code is refused."""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from failsoft.artifacts.bundle import Bundle
from failsoft.errors import ConfigError, CorpusError, DamagedArtifactError, IncompatibleArtifactError
from failsoft.models.foreign.exported_models import ExportedModel
from failsoft.models.foreign.exported_safety import refuse_code
from tests.models.foreign.served import Loose, answered, example, loads_as_recorded, reopened, spoil

pytestmark = pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.:FutureWarning")  # torch calls torch so

TOKENS = {"input_ids": "int64", "attention_mask": "int64"}


class Words(nn.Module):
    """What people export: embeddings, attention, a mean over real tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
        self.head = nn.Linear(8, 3)
        self.register_buffer("shift", torch.arange(3.0))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        states = self.layer(self.table(input_ids), src_key_padding_mask=attention_mask == 0)
        real = attention_mask.unsqueeze(-1)
        out: Tensor = self.head((states * real).sum(1) / real.sum(1).clamp(min=1)) + self.shift
        return out


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Module, Path]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, folder = Words().eval(), tmp_path_factory.mktemp("words")
    batch, length = torch.export.Dim("batch", max=512), torch.export.Dim("tokens", max=64)
    sizes = {name: {0: batch, 1: length} for name in TOKENS}
    ids, mask = (
        torch.ones(2, 7, dtype=torch.int64),
        torch.ones(2, 7, dtype=torch.int64),
    )  # one tensor would be one input
    torch.export.save(torch.export.export(model, (ids, mask), dynamic_shapes=sizes), folder / "model.pt2")
    return model, folder


def test_an_encoder_with_sizes_of_its_own_passes_and_answers_as_the_model_does(words: tuple[nn.Module, Path]) -> None:
    model, folder = words
    predictor = ExportedModel(inputs=TOKENS).load(Loose(folder=folder))
    ids, mask = torch.randint(0, 20, (5, 9)), torch.ones(5, 9, dtype=torch.int64)
    mask[2, 4:] = 0
    rows = [{"input_ids": i.tolist(), "attention_mask": m.tolist()} for i, m in zip(ids, mask, strict=True)]
    np.testing.assert_allclose(predictor.predict(rows)["logits"], model(ids, mask).detach(), atol=1e-5)
    with pytest.raises(CorpusError, match="has no 'attention_mask'"):
        predictor.predict([{"input_ids": [1, 2]}])
    predictor.break_weights()
    assert not np.allclose(predictor.predict(rows)["logits"], model(ids, mask).detach(), atol=1e-3)


class Spy:
    """A pickle that leaves a mark when somebody reads it."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def rewritten(source: Path, target: Path, change: Callable[[str, bytes], bytes | None], **more: bytes) -> Path:
    """The same archive with other contents; None leaves a part out."""
    with zipfile.ZipFile(source / "model.pt2") as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            body = change(info.filename.partition("/")[2], old.read(info))
            if body is not None:
                new.writestr(info.filename, body)
        for name, body in more.items():
            new.writestr(f"model/{name}", body)
    return target


def in_program(change: Callable[[Any], object]) -> Callable[[str, bytes], bytes]:
    def rewrite(name: str, body: bytes) -> bytes:
        if name != "models/model.json":
            return body
        program = json.loads(body)
        change(program)
        return json.dumps(program).encode()

    return rewrite


def first_node(program: Any) -> Any:
    return program["graph_module"]["graph"]["nodes"][0]


def a_size(program: Any) -> Any:
    return program["graph_module"]["graph"]["sym_int_values"].popitem()[1]


HOSTILE: dict[str, tuple[Callable[[Any], object], str]] = {
    "reads a file": (lambda body: first_node(body).update(target="torch.load"), "calls torch.load, which is no op"),
    "maps a file": (lambda body: first_node(body).update(target="torch.ops.aten.from_file.default"), "calls torch.ops"),
    "a library's": (lambda body: first_node(body).update(target="torch.ops.other.run"), "calls torch.ops.other.run"),
    "writes a file": (lambda body: first_node(body).update(target="torch.ops.aten.save.default"), "calls torch.ops"),
    "calls a value": (lambda body: first_node(body).update(target="_operator.__call__"), "calls _operator.__call__"),
    "reaches in": (lambda body: first_node(body).update(target="math.__loader__"), "calls math.__loader__"),
    "gives a function": (
        lambda body: first_node(body)["inputs"][0].update(arg={"as_operator": "torch.os.system"}),
        "calls torch.os.system, which is no op",
    ),
    "an extension": (lambda body: first_node(body).update(target="#x:run"), "calls #x:run"),
    "calls a name": (lambda body: first_node(body).update(target="_operator.methodcaller"), "calls _operator.method"),
    "evaluates": (
        lambda body: body["graph_module"]["graph"]["tensor_values"]["input_ids"]["sizes"].append(
            {"as_expr": {"expr_str": "__import__('os').getpid()", "hint": None}}
        ),
        "has a size that is no arithmetic: __import__",
    ),
    "evaluates under the name of comments": (
        lambda body: body["graph_module"]["graph"]["tensor_values"].update(
            metadata={"sizes": [{"as_expr": {"expr_str": "__import__('os').getpid()", "hint": None}}]}
        ),
        "has a size that is no arithmetic: __import__",
    ),
    "guards": (lambda body: body.update(guards_code=["print(open('/etc/hosts'))"]), "no arithmetic: print"),
    "names": (lambda body: first_node(body).update(name="x = 1\nimport os"), "has a name that is none"),
    "classes": (
        lambda body: body["graph_module"]["module_call_graph"][0]["signature"].update(
            out_spec='[1, {"type": "os.system", "context": null, "children_spec": []}]'
        ),
        "takes or gives something else",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_program_that_does_more_than_compute_is_refused(
    words: tuple[nn.Module, Path], tmp_path: Path, name: str
) -> None:
    change, why = HOSTILE[name]
    path = rewritten(words[1], tmp_path / "model.pt2", in_program(change))
    with pytest.raises(IncompatibleArtifactError, match=why):
        refuse_code(path)
    with pytest.raises(IncompatibleArtifactError, match=why):
        ExportedModel(inputs=TOKENS).load(Loose(folder=tmp_path))


def test_sample_inputs_that_torch_would_unpickle_are_refused_unread(
    words: tuple[nn.Module, Path], tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    hostile = pickle.dumps(Spy(mark), protocol=2)  # as torch writes
    path = rewritten(
        words[1], tmp_path / "model.pt2", lambda name, body: hostile if name.startswith("data/sample_inputs") else body
    )
    with pytest.raises(IncompatibleArtifactError, match="a pickle can run code"):
        ExportedModel(inputs=TOKENS).load(Loose(folder=tmp_path))
    assert not mark.exists()
    with pytest.raises(
        RuntimeError, match="error when deserializing"
    ):  # torch itself reads it, and falls over what comes out
        torch.export.load(path)
    assert mark.exists(), "or this test would prove nothing"


def test_weights_kept_as_pickles_are_refused(words: tuple[nn.Module, Path], tmp_path: Path) -> None:
    def pickled(name: str, body: bytes) -> bytes:
        return body.replace(b'"use_pickle": false', b'"use_pickle": true') if name.endswith("config.json") else body

    with pytest.raises(IncompatibleArtifactError, match=r"keeps .* as a pickle"):
        refuse_code(rewritten(words[1], tmp_path / "model.pt2", pickled))


@pytest.mark.parametrize("more", ["data/aotinductor/model/run.so", "data/weights/model.pt", "extra/run.py", "../x"])
def test_libraries_and_files_that_nobody_knows_are_refused(
    words: tuple[nn.Module, Path], tmp_path: Path, more: str
) -> None:
    path = rewritten(words[1], tmp_path / "model.pt2", lambda _name, body: body, **{more: b"x"})
    with pytest.raises(IncompatibleArtifactError, match="which is no tensor, program or version"):
        refuse_code(path)


def test_what_is_no_such_file_is_refused_in_words(words: tuple[nn.Module, Path], tmp_path: Path) -> None:
    (tmp_path / "model.pt2").write_bytes(b"no zip")
    with pytest.raises(IncompatibleArtifactError, match=r"write it with torch\.export\.save"):
        ExportedModel().load(Loose(folder=tmp_path))
    cut = (words[1] / "model.pt2").read_bytes()[:5000]
    (tmp_path / "model.pt2").write_bytes(cut)
    with pytest.raises(IncompatibleArtifactError):
        ExportedModel().load(Loose(folder=tmp_path))
    without = rewritten(
        words[1], tmp_path / "model.pt2", lambda name, body: None if name.endswith("weights_config.json") else body
    )
    with pytest.raises(IncompatibleArtifactError, match="does not load"):
        ExportedModel().load(Loose(folder=without.parent))
    with pytest.raises(ConfigError, match="inputs is empty"):
        ExportedModel(inputs={})


@pytest.mark.anyio
async def test_the_example_is_published_verified_and_answers_as_the_original(tmp_path: Path) -> None:
    there = example("serve_exported")
    bundle: Bundle = there.publish(tmp_path)
    loads_as_recorded(there.config, reopened(bundle, tmp_path))
    found = there.config.loader()(bundle).predict([[70.0, 3.0], [100.0, 4.0]])
    assert found["mean"].tolist() == [305.0, 430.0]
    answer = await answered(there.config, tmp_path, {"instance": [70.0, 3.0]})
    assert (answer["output"], answer["source"]) == (305.0, "primary")
    spoil(bundle.path / "model.pt2")
    with pytest.raises(DamagedArtifactError):
        reopened(bundle, tmp_path)
