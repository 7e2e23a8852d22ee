"""What ``kubectl kustomize`` makes of a folder of ours, for the few features that we use. A test compares both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import ROOT

KUBERNETES = ROOT / "deploy" / "kubernetes"
BUILDS = ("serving", "training", "cluster", "overlays/gpu-spot", "overlays/redis")
_KNOWN = {"apiVersion", "kind", "resources", "images", "patches"}

Object = dict[str, Any]


def built(folder: Path) -> list[Object]:
    """All objects of a kustomization, with its images named and its patches applied."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text("utf-8"))
    unknown = set(kustomization) - _KNOWN
    if unknown:
        raise ValueError(f"{folder} uses {sorted(unknown)}; teach tests/deploy/kustomized.py what it does")
    objects = [one for name in kustomization["resources"] for one in _resource((folder / name).resolve())]
    for image in kustomization.get("images", ()):
        _rename(objects, image)
    for patch in kustomization.get("patches", ()):
        _patch(_target(objects, patch["target"]), yaml.safe_load(patch["patch"]))
    return objects


def _resource(path: Path) -> list[Object]:
    return built(path) if path.is_dir() else list(yaml.safe_load_all(path.read_text("utf-8")))


def _rename(objects: list[Object], image: Object) -> None:
    for container in (one for body in objects for one in containers(body)):
        if container["image"] == image["name"]:
            container["image"] = f"{image['newName']}:{image['newTag']}"


def _target(objects: list[Object], wanted: Object) -> Object:
    (found,) = (one for one in objects if (one["kind"], one["metadata"]["name"]) == (wanted["kind"], wanted["name"]))
    return found


def _patch(body: Object, operations: list[Object]) -> None:
    """RFC 6902, of which we use add and replace."""
    for operation in operations:
        *way, last = (_key(word) for word in operation["path"].removeprefix("/").split("/"))
        at: Any = body
        for word in way:
            at = at[word]
        if operation["op"] == "replace" and last not in at:
            raise ValueError(f"{operation['path']} is to be replaced and is not there")
        at[last] = operation["value"]


def _key(word: str) -> str | int:
    return int(word) if word.isdecimal() else word.replace("~1", "/").replace("~0", "~")


def pod_specs(body: Any) -> Iterator[Object]:
    """Every pod's spec within an object."""
    if isinstance(body, dict):
        if "containers" in body:
            yield body
        for inner in body.values():
            yield from pod_specs(inner)
    if isinstance(body, list):
        for inner in body:
            yield from pod_specs(inner)


def containers(body: Any) -> Iterator[Object]:
    """Every container, those that start first included."""
    for spec in pod_specs(body):
        yield from (*spec["containers"], *spec.get("initContainers", ()))
