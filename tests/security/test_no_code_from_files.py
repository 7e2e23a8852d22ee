"""No code is run that came in a file: found by reading the product's own source."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.conftest import ROOT

SOURCES = sorted(path for root in ("platform", "serve_apps", "train_jobs") for path in (ROOT / root).rglob("*.py"))
BARE = {"eval", "exec", "compile", "__import__"}
"""Called by their names alone; ``model.eval()`` is none of them."""
FOREIGN = {"shelve", "marshal", "dill", "joblib", "cloudpickle"}
PICKLES = {
    "platform/failsoft/training/loading/collate.py": "between a loader's worker and its parent, by a pipe",
    "platform/failsoft/training/checkpoints/mirror_filesystem.py": "to a process that this one starts, by no file",
    "platform/failsoft/drills/training/end_look.py": "names the error of a refused file only; torch reads weights only",
}
"""Who may name ``pickle``, and why that is no file of others."""
SAFE_LOADERS = {"platform/failsoft/models/rules_file.py"}
"""Names its YAML loader by a constant: the safe one in C, else the safe one."""


@cache
def nodes(path: Path) -> list[ast.Call | ast.Import | ast.ImportFrom]:
    tree = ast.parse(path.read_text("utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call | ast.Import | ast.ImportFrom)]


def dotted(called: ast.expr) -> str:
    """``a.b.c``; of what is called on a result only the name: ``.c``."""
    if isinstance(called, ast.Name):
        return called.id
    return f"{dotted(called.value)}.{called.attr}" if isinstance(called, ast.Attribute) else ""


@cache
def calls() -> list[tuple[str, ast.Call, str]]:
    """File, call, and what is called."""
    found = [(path.relative_to(ROOT).as_posix(), node) for path in SOURCES for node in nodes(path)]
    return [(file, node, dotted(node.func)) for file, node in found if isinstance(node, ast.Call)]


def given(call: ast.Call, name: str) -> str | None:
    return next((ast.unparse(word.value) for word in call.keywords if word.arg == name), None)


def imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


def test_there_is_source_to_read() -> None:
    assert len(SOURCES) > 200


def test_nothing_is_evaluated_and_no_shell_is_asked() -> None:
    asked = [
        f"{file}:{call.lineno} {name}"
        for file, call, name in calls()
        if name in BARE or name in {"os.system", "os.popen"} or given(call, "shell") not in {None, "False"}
    ]
    assert asked == []


def test_pickles_are_read_between_our_own_processes_only() -> None:
    named = {path.relative_to(ROOT).as_posix() for path in SOURCES if "pickle" in imported(path)}
    assert named == set(PICKLES), "name the file here with its reason, or use a form that holds data only"
    assert [path for path in SOURCES if imported(path) & FOREIGN] == []


def test_torch_and_numpy_read_data_only() -> None:
    odd = [
        f"{file}:{call.lineno} {name}"
        for file, call, name in calls()
        if (name == "torch.load" and given(call, "weights_only") != "True")
        or (name in {"np.load", "numpy.load"} and given(call, "allow_pickle") not in {None, "False"})
    ]
    assert odd == []


def test_yaml_is_read_by_the_safe_loaders() -> None:
    odd = [
        f"{file}:{call.lineno} {name}"
        for file, call, name in calls()
        if name in {"yaml.unsafe_load", "yaml.full_load", "yaml.unsafe_load_all", "yaml.full_load_all"}
        or (name in {"yaml.load", "yaml.load_all"} and file not in SAFE_LOADERS)
    ]
    assert odd == []


def test_archives_are_looked_into_and_never_unpacked() -> None:
    """Names in an archive may lead anywhere."""
    assert [f"{file}:{call.lineno}" for file, call, name in calls() if name.endswith((".extractall", ".extract"))] == []
    assert [path for path in SOURCES if "tarfile" in imported(path)] == []
    assert [f"{file}:{call.lineno}" for file, call, name in calls() if name == "shutil.unpack_archive"] == []


def test_a_name_of_a_temporary_file_is_never_guessed_before_it_is_made() -> None:
    assert [f"{file}:{call.lineno}" for file, call, name in calls() if name in {"tempfile.mktemp", "mktemp"}] == []
