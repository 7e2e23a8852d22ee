"""What an exported program may hold, judged before torch reads it.

``torch.export.load`` reads pickles where the file says so (weights, sample inputs, objects), evaluates the text of
sizes by sympy's ``eval``, looks operators up below ``torch`` by any name (``torch.load`` is one), and compiles names
into Python. So the file is opened as what it is, a zip with JSON, and everything but plain tensors, arithmetic on sizes
and operators of ATen is refused. What is left is a program of tensor operators: it may still compute nonsense, or for
very long, as any model may.
"""

from __future__ import annotations

import ast
import io
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from failsoft.errors import IncompatibleArtifactError
from failsoft.models.foreign.plain_zip import plain_zip

_NAME = re.compile(r"[A-Za-z_][\w.]*", re.ASCII)
_OPERATOR = re.compile(r"torch\.ops\.aten\.\w+(\.\w+)?|(_operator|math)\.[a-z]\w*|torch\.sym_\w+", re.ASCII)
_NEVER = frozenset({"from_file", "save", "attrgetter", "methodcaller", "call"})
"""Reads or writes a file of any name, or calls what it is given."""
_TREES = frozenset({None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict"})
_PIECES = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.Name, ast.Constant, ast.keyword,
    ast.Load, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip
_FUNCTIONS = frozenset({
    "Symbol", "Integer", "Float", "Rational", "Add", "Mul", "Pow", "Max", "Min", "Mod", "PythonMod", "FloorDiv",
    "CeilDiv", "CleanDiv", "ModularIndexing", "Where", "PowByNatural", "FloatPow", "IntTrueDiv", "FloatTrueDiv",
    "FloorToInt", "CeilToInt", "TruncToInt", "RoundToInt", "ToFloat", "Eq", "Ne", "Lt", "Le", "Gt", "Ge", "And", "Or",
    "Not", "Abs", "Equality", "Unequality", "LessThan", "StrictLessThan", "GreaterThan", "StrictGreaterThan", "floor",
    "ceiling",
})  # fmt: skip
_CONSTANTS = frozenset({"oo", "int_oo", "True", "False", "true", "false"})
_SYMBOL = re.compile(r"[a-z]+\d+", re.ASCII)
_SIZE_OF_INPUT = re.compile(r"L\['\w+'\](\[('\w+'|\d+)\])*(\.size\(\)\[\d+\])?", re.ASCII)
_TEXT_KEYS = frozenset({"as_string", "as_strings", "torch_version"})
"""Put into Python by their ``repr``, or not at all."""
_MOST_BYTES = 256 * 1024 * 1024
_PLAIN = re.compile(r"(archive_format|archive_version|byteorder|\.data/\w+|data/(weights|constants)/\w+(\.json)?)")


def refuse_code(path: Path) -> None:
    """Refuse a ``.pt2`` file that could run code when it is read, or anything but operators of ATen when it is asked.

    Raises:
        IncompatibleArtifactError: it is no such file, or holds what is not allowed; said in words.
    """
    try:
        with plain_zip(path) as archive:
            for info in archive.infolist():
                _judge(archive, info, path.name)
    except (zipfile.BadZipFile, OSError, ValueError, RecursionError) as error:
        raise IncompatibleArtifactError(
            f"{path} can't be read as an exported program: {error}; write it with torch.export.save"
        ) from error


def _judge(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> None:
    part = info.filename.partition("/")[2]
    if part.startswith("models/") and part.endswith(".json"):
        _judge_program(_json(archive, info), name)
    elif part.startswith("data/sample_inputs/"):
        _judge_samples(_bytes(archive, info), name)
    elif not _PLAIN.fullmatch(part):
        raise _refusal(name, f"holds {part}, which is no tensor, program or version of one")
    elif part.endswith(".json"):
        _judge_payload(_json(archive, info), name)


def _judge_payload(body: Any, name: str) -> None:
    for tensor, entry in dict(body.get("config") or {}).items():
        if entry.get("use_pickle") is not False:
            raise _refusal(name, f"keeps {tensor} as a pickle, which can run code when it is read")
        if not re.fullmatch(r"(weight|tensor)_\d+", str(entry.get("path_name")), re.ASCII):
            raise _refusal(name, f"keeps {tensor} in {entry.get('path_name')}, which is no tensor")


def _judge_samples(body: bytes, name: str) -> None:
    """Torch reads them as any pickle when it can't read them as tensors."""
    if not body:
        return
    import torch  # noqa: PLC0415 -- model replicas only

    try:
        torch.load(io.BytesIO(body), weights_only=True)
    except Exception as error:  # whatever a strange file makes torch raise
        raise _refusal(name, "has sample inputs that are no tensors, and a pickle can run code") from error


def _judge_program(body: Any, name: str) -> None:
    for key, text in _texts(body):
        why = _wrong(key, text)
        if why:
            raise _refusal(name, why)


def _wrong(key: str, text: str) -> str:
    """What is wrong with one text of a program; empty when nothing is."""
    if key in _TEXT_KEYS:
        return ""
    if key in {"target", "as_operator"}:  # each is looked up by its name
        last = text.split(".")[3 if text.startswith("torch.ops") else -1]
        fits = _OPERATOR.fullmatch(text) and last not in _NEVER
        return "" if fits else f"calls {text[:80]}, which is no operator of ATen"
    if key in {"expr_str", "guards_code"}:
        plain = _SIZE_OF_INPUT.sub("s0", text) if key == "guards_code" else text
        return "" if _is_arithmetic(plain) else f"has a size that is no arithmetic: {text[:80]}"
    if key == "as_float" and text in {"Infinity", "-Infinity", "NaN"}:
        return ""
    if key in {"in_spec", "out_spec"}:
        return (
            "" if _is_plain_tree(text) else f"takes or gives something else than tuples, lists and dicts: {text[:80]}"
        )
    return "" if not text or _NAME.fullmatch(text) else f"has a name that is none: {text[:80]!r}"


def _texts(node: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text of a program and the name that it stands under; names themselves, too. Comments of nodes aside.

    Those are texts and nothing else: a tensor may be called as they are, and torch evaluates its sizes.
    """
    if isinstance(node, Mapping):
        for name, part in node.items():
            yield "name", str(name)
            if name != "metadata" or not _are_comments(part):
                yield from _texts(part, str(name))
    elif isinstance(node, list):
        for part in node:
            yield from _texts(part, key)
    elif isinstance(node, str):
        yield key, node


def _are_comments(part: Any) -> bool:
    return isinstance(part, Mapping) and all(isinstance(text, str) for text in part.values())


def _is_arithmetic(text: str) -> bool:
    try:
        return all(_is_piece(node) for node in ast.walk(ast.parse(text, mode="eval")))
    except (SyntaxError, ValueError, MemoryError):
        return False


def _is_piece(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool | int | float) or bool(_SYMBOL.fullmatch(str(node.value)))
    if isinstance(node, ast.Name):
        return node.id in _FUNCTIONS or node.id in _CONSTANTS or bool(_SYMBOL.fullmatch(node.id))
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS
    return isinstance(node, _PIECES)


def _is_plain_tree(text: str) -> bool:
    try:
        return _only_plain(json.loads(text)[1])
    except (ValueError, IndexError, KeyError, TypeError):
        return False


def _only_plain(tree: Mapping[str, Any]) -> bool:
    return tree["type"] in _TREES and all(map(_only_plain, tree["children_spec"]))


def _json(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Any:
    return json.loads(_bytes(archive, info))


def _bytes(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Torch stores its files as they are; what is packed may unpack to anything."""
    if info.compress_type != zipfile.ZIP_STORED or info.file_size > _MOST_BYTES:
        raise ValueError(f"{info.filename} is packed or larger than {_MOST_BYTES} bytes")
    return archive.read(info)


def _refusal(name: str, why: str) -> IncompatibleArtifactError:
    return IncompatibleArtifactError(
        f"{name} {why}; export a model of tensors and plain operators with torch.export, or serve it by a predictor of "
        "your own"
    )
