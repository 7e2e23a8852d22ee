"""What TorchScript may hold, judged before torch reads it.

Its code is text in the file, and its objects are read by torch's own reader, which knows no Python. What could still do
more than compute: operators that a library registered (``ops.other.…``), operators that read and write files, a method
that runs while an object is read, and objects of classes that a library registered. What would run at once is looked
for in the text, before torch reads it. A text can call an operator by another name, though, so what is asked later is
judged once more as torch has understood it: operator by operator.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from failsoft.errors import IncompatibleArtifactError
from failsoft.models.foreign.plain_zip import plain_zip

_RULES = (
    (re.compile(r"\bops\.(?!aten\.|prim\.)\w+"), "an operator that is not torch's own"),
    (
        re.compile(r"\b(from_file|save|load|_load_for\w*|CallFunction|call_function)\s*\("),
        "an operator that opens files",
    ),
    (re.compile(r"\b__setstate__\b"), "code that runs while it is loaded"),
    (re.compile(r"__torch__\.torch\.classes\.\w+"), "an object of a class that a library registered"),
    (re.compile(r"\bfork\s*\("), "work that goes on by itself"),
)
_MOST_BYTES = 16 * 1024 * 1024
_NEVER = frozenset({"aten::save", "aten::from_file", "prim::fork", "prim::PythonOp", "prim::CallFunction"})
_INDIRECT = "prim::CallMethod"
"""What is called is known only when it runs; a call that is known was put in line before."""
_OWN = ("aten::", "prim::")


def refuse_script(path: Path) -> None:
    """Refuse a TorchScript file that does more than compute with tensors.

    Raises:
        IncompatibleArtifactError: it is no such file, or holds what is not allowed; said in words.
    """
    try:
        with plain_zip(path) as archive:
            for info in archive.infolist():
                if _is_code(info.filename):
                    _judge(archive, info, path)
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise IncompatibleArtifactError(
            f"{path} can't be read as TorchScript: {error}; write it with torch.jit.save, or better with "
            "torch.export.save"
        ) from error


def refuse_calls(module: Any, name: str) -> None:
    """Refuse a loaded module of TorchScript, none of whose methods has run, that calls more than torch's own operators.

    Args:
        module: as ``torch.jit.load`` gives it.
        name: of the file, for people.

    Raises:
        IncompatibleArtifactError: said in words.
    """
    from torch._C import _jit_pass_inline  # noqa: PLC0415 -- model replicas only

    for part in module.modules():
        for method in part._c._method_names():
            graph = part._c._get_method(method).graph.copy()
            _jit_pass_inline(graph)
            for kind in _kinds(graph):
                if kind in _NEVER or kind == _INDIRECT or not kind.startswith(_OWN) or "rpc" in kind:
                    raise IncompatibleArtifactError(
                        f"{name} calls {kind} in {method}, which is more than computing with tensors; export the model "
                        "with torch.export, or serve it by a predictor of your own"
                    )


def _kinds(block: Any) -> Iterator[str]:
    """Of all nodes of a graph, and of the blocks in them."""
    for node in block.nodes():
        yield node.kind()
        for inner in node.blocks():
            yield from _kinds(inner)


def _is_code(name: str) -> bool:
    """Torch takes names that differ in case for the same."""
    part = name.lower().partition("/")[2]
    return (part.startswith("code/") and part.endswith(".py")) or part in {"data.pkl", "constants.pkl"}


def _judge(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> None:
    if info.file_size > _MOST_BYTES:
        raise ValueError(f"{info.filename} is larger than {_MOST_BYTES} bytes")
    text = archive.read(info).decode("utf-8", "replace")
    for rule, what in _RULES if info.filename.lower().endswith(".py") else _RULES[3:4]:
        found = rule.search(text)
        if found:
            raise IncompatibleArtifactError(
                f"{path.name} has {what} in {info.filename} ({found[0][:60]}); export the model of tensors and plain "
                "operators with torch.export, or serve it by a predictor of your own"
            )
