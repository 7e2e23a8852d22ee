"""KubeRay's schemas: the fields that we use, written by hand, and the published ones where a folder has them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from tests.deploy.kustomized import Object

Schemas = Mapping[str, Any]


def own_schema() -> Schemas:
    """By kind, of ``spec``."""
    read = yaml.safe_load(Path(__file__).with_name("kuberay_schema.yaml").read_text("utf-8"))
    return {kind: schema | {"$defs": read["$defs"]} for kind, schema in read["kinds"].items()}


def published_schemas() -> Schemas | None:
    """The same from the definitions in ``$KUBERAY_CRDS``; None where it is not set."""
    folder = os.environ.get("KUBERAY_CRDS")
    if not folder:
        return None
    found = {}
    for path in Path(folder).glob("ray.io_ray*.yaml"):
        definition = yaml.safe_load(path.read_text("utf-8"))["spec"]
        version = next(one for one in definition["versions"] if one["name"] == "v1")
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        found[definition["names"]["kind"]] = _strict(spec)
    return found


def refusals(body: Object, schemas: Schemas) -> list[str]:
    """What the schema of its kind has against an object."""
    if body["apiVersion"] != "ray.io/v1":
        return [f"apiVersion is {body['apiVersion']}"]
    errors = jsonschema.Draft202012Validator(schemas[body["kind"]]).iter_errors(body["spec"])
    return [f"{'/'.join(map(str, error.absolute_path))}: {error.message}" for error in errors]


def _strict(schema: Any) -> Any:
    """As the API server reads it with ``--validate=strict``: what is not described is an error."""
    if isinstance(schema, list):
        return [_strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    read = {name: _strict(inner) for name, inner in schema.items()}
    described = isinstance(read.get("properties"), dict) and read.get("type") == "object"
    if described and not read.get("x-kubernetes-preserve-unknown-fields"):
        read.setdefault("additionalProperties", False)
    if read.get("x-kubernetes-int-or-string"):
        read.pop("type", None)
    return read
