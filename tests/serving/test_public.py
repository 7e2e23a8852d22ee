"""``failsoft.serving`` hands on what an own model takes, and loads nothing before it is asked for."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

import failsoft.serving
from failsoft.serving.public import PUBLIC
from tests.conftest import ROOT

LOADED = """
import sys, failsoft.serving, failsoft.serving.plan.plan
from failsoft.serving import AppSpec, Classification, ConstantRung, Instances, Regression, Rung, Tagging
print(*sorted({name.partition('.')[0] for name in sys.modules}))
"""


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(failsoft.serving, name).__name__ == name


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((ROOT / "platform/failsoft/serving/__init__.py").read_text("utf-8"))
    seen = [name.asname for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for name in node.names]
    assert sorted(filter(None, seen)) == PUBLIC


def test_another_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(AttributeError, match=r"hands on no 'build_ap'; it has .*build_app"):
        _ = failsoft.serving.build_ap


def test_a_task_is_written_without_ray_torch_or_trees() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"ray", "torch", "lightgbm"}
