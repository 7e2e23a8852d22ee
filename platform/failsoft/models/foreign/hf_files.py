"""What of a transformers folder may enter a release: weights in safetensors, JSON and words. Nothing with code."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from failsoft.errors import ConfigError, IncompatibleArtifactError
from failsoft.health.json_object import json_value

CONFIG, WEIGHTS = "config.json", "model.safetensors"
SUFFIXES = frozenset({".safetensors", ".json", ".txt", ".model", ".jinja", ".md"})
"""``.model`` is a sentencepiece vocabulary: a protocol buffer, read by C++."""
_REMOTE_CODE = ("auto_map", "custom_pipelines")
_BY_HUB = ("attn_implementation", "_attn_implementation", "experts_implementation", "_experts_implementation")
"""A name like ``someone/kernel`` in them is a library that transformers fetches from the Hub and runs, if it can."""
_ELSEWHERE = "adapter_config.json"
"""Names a model outside of the folder, which is loaded in its stead."""


def copy_model_folder(source: str | Path, target: str | Path) -> tuple[str, ...]:
    """Copy what serving needs of a local model folder, as ``save_pretrained`` writes it, into a folder to be published.

    Args:
        source: folder with ``config.json`` and safetensors.
        target: is made; it must not hold other files.

    Returns:
        Names of files that were left out: pickles, code, weights for other frameworks, training states.

    Raises:
        ConfigError: the folder is none, has no safetensors, or asks for code of its own to be run.
    """
    source, target = Path(source), Path(target)
    if not (source / CONFIG).is_file():
        raise ConfigError(f"{source} has no {CONFIG}; give a folder as model.save_pretrained(folder) writes it")
    if not any(source.glob("*.safetensors")):
        raise ConfigError(
            f"{source} has no weights in safetensors, and pickles are not read: they can run code. Load the model "
            "where you trust it and write it again with: model.save_pretrained(folder)"
        )
    files = [path for path in sorted(source.iterdir()) if path.is_file()]
    kept = [path for path in files if path.suffix in SUFFIXES]
    _refuse_code(kept)
    target.mkdir(parents=True, exist_ok=True)
    for path in kept:
        shutil.copyfile(path, target / path.name)
    refuse_unsafe(target)
    return tuple(path.name for path in files if path not in kept)


def refuse_unsafe(folder: Path) -> None:
    """Refuse a model folder that holds anything but weights in safetensors, JSON and words.

    Raises:
        IncompatibleArtifactError: naming the file.
    """
    if not (folder / CONFIG).is_file() or not any(folder.glob("*.safetensors")):
        raise IncompatibleArtifactError(f"{folder} has no {CONFIG} or no safetensors; publish the model again")
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or (path.is_file() and path.suffix not in SUFFIXES):
            raise IncompatibleArtifactError(
                f"{path} may hold code, and is not read; make the folder with copy_model_folder and publish it again"
            )
    _refuse_code(sorted(folder.glob("*.json")))


def labels_of(folder: str | Path) -> tuple[str, ...]:
    """Names of the classes or tags in the order of the logits, as the folder's ``config.json`` has them.

    Raises:
        ConfigError: it has none.
    """
    named: Any = _json(Path(folder) / CONFIG).get("id2label")
    try:
        return tuple(str(named[str(number)]) for number in range(len(named)))
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{Path(folder) / CONFIG} names no labels by 0, 1, …; set model.config.id2label") from error


def _refuse_code(files: list[Path]) -> None:
    """A folder that names Python, or a model, of elsewhere: whoever loads it with the right libraries runs that."""
    for path in files:
        asks = sorted(_asked_for(_json(path))) if path.suffix == ".json" else []
        if asks:
            raise ConfigError(
                f"{path} asks for code of its own ({asks[0]}), which is never run; use an architecture that "
                "transformers has, or export the model to ONNX"
            )
        if path.name == _ELSEWHERE:
            raise ConfigError(
                f"{path} makes the folder an addition to a model that lies elsewhere, which no release vouches for; "
                "save both as one: model.merge_and_unload().save_pretrained(folder)"
            )


def _asked_for(body: Any) -> Iterator[str]:
    """Names of whatever asks for code, also in the settings of a part."""
    for name, value in body.items() if isinstance(body, dict) else ():
        if name in _REMOTE_CODE or (name in _BY_HUB and "/" in json.dumps(value)):
            yield name
        elif isinstance(value, dict):
            yield from _asked_for(value)


def _json(path: Path) -> dict[str, Any]:
    try:
        body = json_value(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise IncompatibleArtifactError(f"{path} can't be read: {error}; publish the model again") from error
    return body if isinstance(body, dict) else {}
