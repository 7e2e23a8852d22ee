"""The house rules that no linter knows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

from tests.conftest import ROOT

MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 40
SOURCE_ROOTS = ("platform", "serve_apps", "train_jobs", "tests")
DOCUMENTS = ("README.md", "README.zh-CN.md", "CONTRIBUTING.md", "CHANGELOG.md")
MADE_AT_RUN_TIME = (".venv", ".failsoft", "build")

FILES = sorted(path for root in SOURCE_ROOTS for path in (ROOT / root).rglob("*.py"))


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from ``def`` to the end, without the docstring: a contract may be as long as it needs."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is not None:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def test_there_is_code_to_judge() -> None:
    assert len(FILES) > 20


@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_file_is_read_in_one_sitting(path: Path) -> None:
    lines = path.read_text("utf-8").count("\n")
    assert lines <= MAX_FILE_LINES, f"{named(path)} has {lines} lines, at most {MAX_FILE_LINES}: split it by noun"


@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_function_fits_on_a_screen(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    long = {function.name: length(function) for function in functions(tree) if length(function) > MAX_FUNCTION_LINES}
    assert not long, f"{named(path)}: {long} lines, at most {MAX_FUNCTION_LINES}"


def is_for_type_checkers(node: ast.stmt) -> TypeGuard[ast.If]:
    if not isinstance(node, ast.If) or node.orelse:
        return False
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


@pytest.mark.parametrize("path", [path for path in FILES if path.name == "__init__.py"], ids=named)
def test_a_package_file_holds_no_logic(path: Path) -> None:
    """A docstring, imports to hand on, also those that only type checkers see, and constants; nothing that runs."""
    allowed = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)
    docstring, *rest = ast.parse(path.read_text("utf-8")).body
    assert isinstance(docstring, ast.Expr), f"{named(path)} does not say what the package is"
    seen_by_checkers = [child for node in rest if is_for_type_checkers(node) for child in node.body]
    rest = [node for node in rest if not is_for_type_checkers(node)] + seen_by_checkers
    assert all(isinstance(node, allowed) for node in rest), f"{named(path)} holds logic; move it to a file with a name"


def test_nothing_is_called_utils() -> None:
    assert [named(path) for path in FILES if path.stem in {"utils", "util", "helpers", "misc", "common"}] == []


def test_the_source_root_never_becomes_a_package() -> None:
    """``platform/__init__.py`` would shadow the standard library's module in every process started here."""
    assert not (ROOT / "platform" / "__init__.py").exists()


def paths_named_in(document: str) -> set[str]:
    """Targets of links and pictures, and backticked words that look like a path: with a slash, or an ending of ours."""
    text = re.sub(r"```.*?```", "", document, flags=re.DOTALL)
    words = re.findall(r"`([A-Za-z0-9_.\-/]+)`", text)
    looks_like_path = re.compile(r"^(?!/)(?:[\w.\-]+/)+[\w.\-]*$|^[\w\-]+\.(?:py|md|toml|yaml|txt)$|^\.ci/\w+$")
    elsewhere = (*MADE_AT_RUN_TIME, "../")
    named_in_prose = {word for word in words if looks_like_path.match(word) and not word.startswith(elsewhere)}
    return named_in_prose | set(re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", text))


def exists(word: str) -> bool:
    """At the root, or inside the package: the README may say ``health/monitor.py``."""
    return any((base / word).exists() for base in (ROOT, ROOT / "platform" / "failsoft"))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_path_that_a_document_names_exists(name: str) -> None:
    absent = sorted(word for word in paths_named_in((ROOT / name).read_text("utf-8")) if not exists(word))
    assert absent == [], f"{name} names what is not there"


def test_a_path_in_backticks_is_recognised_and_a_route_is_not() -> None:
    text = "see `platform/failsoft/cli/main.py`, `cluster.yaml`, `/v1/predict`, `tests/drills/`, `../x.py`, `.venv/bin`"
    assert paths_named_in(text) == {"platform/failsoft/cli/main.py", "cluster.yaml", "tests/drills/"}


def test_the_target_of_a_link_or_picture_is_a_path_and_an_address_is_not() -> None:
    text = "![p](docs/a.png) [c](CONTRIBUTING.md#tests) [r](https://www.ray.io) [h](#here)"
    assert paths_named_in(text) == {"docs/a.png", "CONTRIBUTING.md"}
