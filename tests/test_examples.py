"""The examples in ``docs/`` do what they say, run as a reader would run them."""

from __future__ import annotations

import ast
import runpy

import pytest
import torch

from tests.conftest import ROOT

LETTER = "update 10: loss is not finite; samples 320 to 351"

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning"),  # Lightning about a toy's loader
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.:FutureWarning"),  # Lightning calls torch so
]


def output_of(name: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What an example prints."""
    torch.set_num_threads(1)
    runpy.run_path(str(ROOT / "docs" / name), run_name="__main__")
    return capsys.readouterr().out.splitlines()


def test_the_plain_loop_refuses_the_nan_batch_and_ends_healthy(capsys: pytest.CaptureFixture[str]) -> None:
    refused, end = output_of("plain_pytorch.py", capsys)
    assert refused == "batch 50 refused: loss is not finite, first seen in 0.weight"
    assert end.endswith("unhealthy: None")


def test_the_plain_loop_has_at_most_twenty_lines_of_code() -> None:
    text = (ROOT / "docs/plain_pytorch.py").read_text("utf-8")
    docstring = ast.parse(text).body[0]
    lines = text.splitlines()[docstring.end_lineno :]
    assert len([line for line in lines if line.strip()]) <= 20


@pytest.mark.parametrize("library", ["lightning", "transformers"])
def test_a_trainer_s_example_tells_what_was_refused(library: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip(library, reason=f"needs the extra: pip install 'failsoft[{library}]'")
    lines = output_of(f"with_{library}.py", capsys)
    assert "19 of 20 updates applied, 1 refused" in lines
    assert LETTER in lines
