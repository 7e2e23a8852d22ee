"""TorchScript is served when it computes with tensors and does nothing else."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from failsoft.errors import IncompatibleArtifactError
from failsoft.models.foreign.exported_models import ScriptedModel
from failsoft.models.foreign.script_safety import refuse_script
from tests.models.foreign.served import Loose


class Sum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.layer(x)}


class Maps(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.from_file("/etc/hosts", False, 4)


class Writes(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        torch.save(x, "/tmp/never")
        return x


class Plus(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.add(x, 1)


class Wakes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count = 1

    def forward(self, x: Tensor) -> Tensor:
        return x * self.count

    @torch.jit.export
    def __getstate__(self) -> tuple[int, bool]:
        return self.count, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[int, bool]) -> None:
        self.count, self.training = state


def scripted(model: nn.Module, folder: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch about its own TorchScript
        torch.jit.save(torch.jit.script(model), folder / "model.ts")
    return folder / "model.ts"


def test_torchscript_answers_as_the_model_does_and_says_nothing_of_its_age(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    model = Sum().eval()
    scripted(model, tmp_path)
    predictor = ScriptedModel().load(Loose(folder=tmp_path))
    rows = torch.randn(3, 4)
    np.testing.assert_allclose(predictor.predict(rows.tolist())["logits"], model(rows)["logits"].detach(), atol=1e-6)


@pytest.mark.parametrize(
    ("model", "why"),
    [(Maps(), "opens files"), (Writes(), "opens files"), (Wakes(), "runs while it is loaded")],
    ids=["maps a file", "writes a file", "runs when it is read"],
)
def test_torchscript_that_does_more_than_compute_is_refused(tmp_path: Path, model: nn.Module, why: str) -> None:
    scripted(model, tmp_path)
    with pytest.raises(IncompatibleArtifactError, match=why):
        ScriptedModel().load(Loose(folder=tmp_path))


@pytest.mark.parametrize("line", ["return ops.other.run(x)", "return torch.fork(self.f, x)"])
def test_operators_of_others_are_refused(tmp_path: Path, line: str) -> None:
    with zipfile.ZipFile(tmp_path / "model.ts", "w") as archive:
        archive.writestr("model/code/__torch__.py", f"def forward(self, x: Tensor) -> Tensor:\n  {line}\n")
    with pytest.raises(IncompatibleArtifactError, match="export the model of tensors and plain operators"):
        refuse_script(tmp_path / "model.ts")


OTHERWISE = {
    "a comment": "_0 = (torch.save #\n    (x, 'written'))",
    "a line that goes on": "_0 = torch.save \\\n    (x, 'written')",
    "parentheses": "_0 = (torch.save)(x, 'written')",
    "another name": "keep = torch.save\n    _0 = keep(x, 'written')",
    "another module": "kit = torch\n    _0 = (kit.save)(x, 'written')",
    "a block": "if True:\n      _0 = (torch.save)(x, 'written')",
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_an_operator_that_is_called_in_other_words_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = scripted(Plus(), tmp_path)
    with zipfile.ZipFile(path) as old:
        parts = {info.filename: old.read(info) for info in old.infolist()}
    with zipfile.ZipFile(path, "w") as new:
        for part, body in parts.items():
            new.writestr(part, body.replace(b"return torch", f"{OTHERWISE[name]}\n    return torch".encode()))
    with pytest.raises(IncompatibleArtifactError, match=r"calls aten::save in forward|opens files"):
        ScriptedModel().load(Loose(folder=tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.load(path)(torch.ones(1))
    assert Path("written").exists(), "or this test would prove nothing"


def test_what_is_no_such_file_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "model.ts").write_bytes(b"no zip")
    with pytest.raises(IncompatibleArtifactError, match="can't be read as TorchScript"):
        ScriptedModel().load(Loose(folder=tmp_path))
