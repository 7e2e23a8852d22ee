"""What TorchScript may hold, judged before torch reads it.

Its code is text in the file, and its objects are read by torch's own reader, which knows no Python. What could still do
more than compute: operators that a library registered (``ops.other.…``), operators that read and write files, a method
that runs while an object is read, and objects of classes that a library registered.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

from failsoft.errors import IncompatibleArtifactError

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


def refuse_script(path: Path) -> None:
    """Refuse a TorchScript file that does more than compute with tensors.

    Raises:
        IncompatibleArtifactError: it is no such file, or holds what is not allowed; said in words.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if _is_code(info.filename):
                    _judge(archive, info, path)
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise IncompatibleArtifactError(
            f"{path} can't be read as TorchScript: {error}; write it with torch.jit.save, or better with "
            "torch.export.save"
        ) from error


def _is_code(name: str) -> bool:
    part = name.partition("/")[2]
    return (part.startswith("code/") and part.endswith(".py")) or part in {"data.pkl", "constants.pkl"}


def _judge(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> None:
    if info.file_size > _MOST_BYTES:
        raise ValueError(f"{info.filename} is larger than {_MOST_BYTES} bytes")
    text = archive.read(info).decode("utf-8", "replace")
    for rule, what in _RULES if info.filename.endswith(".py") else _RULES[3:4]:
        found = rule.search(text)
        if found:
            raise IncompatibleArtifactError(
                f"{path.name} has {what} in {info.filename} ({found[0][:60]}); export the model of tensors and plain "
                "operators with torch.export, or serve it by a predictor of your own"
            )
