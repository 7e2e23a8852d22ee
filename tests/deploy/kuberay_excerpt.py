"""Whether our excerpt of KubeRay's schemas takes nothing that the published ones would refuse.

They are megabytes, they belong to others, and no package index that CI reaches has them. So the excerpt is held against
them where a folder has them (``KUBERAY_CRDS``), and what was compared is written down by digest: in CI a new excerpt
is one that nobody has held against the real ones yet.

    KUBERAY_CRDS=FOLDER .venv/bin/python -m tests.deploy.kuberay_excerpt      compare, and write it down
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.deploy.kuberay import own_schema, published_schemas

EXCERPT = Path(__file__).with_name("kuberay_schema.yaml")
COMPARED = Path(__file__).with_name("kuberay_compared.json")
_LIMITS = ("minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength", "pattern")
_ANY = {"string", "integer", "number", "boolean", "object", "array"}

Schema = Mapping[str, Any]


def laxer(own: Schema, published: Schema, defs: Schema, path: str = "spec") -> Iterator[str]:
    """Each way in which one schema takes what another would refuse."""
    if "$ref" in own:
        own = defs[own["$ref"].rpartition("/")[2]]
    if published.get("x-kubernetes-preserve-unknown-fields"):
        return
    extra = _types(own) - _types(published)
    if extra:
        yield f"{path} may be {sorted(extra)}, published is {sorted(_types(published))}"
        return
    yield from _looser_values(own, published, path)
    if "items" in own:
        yield from laxer(own["items"], published.get("items", {}), defs, f"{path}[]")
    yield from _looser_fields(own, published, defs, path)


def _looser_values(own: Schema, published: Schema, path: str) -> Iterator[str]:
    if "enum" in published and not set(own.get("enum", ["?"])) <= set(published["enum"]):
        yield f"{path} takes {own.get('enum', 'anything')}, published is one of {published['enum']}"
    yield from (
        f"{path} has no {limit}, published is {published[limit]}"
        for limit in _LIMITS
        if limit in published and limit not in own and "enum" not in own
    )


def _looser_fields(own: Schema, published: Schema, defs: Schema, path: str) -> Iterator[str]:
    known, others = published.get("properties", {}), published.get("additionalProperties")
    for name, schema in own.get("properties", {}).items():
        if name not in known and not isinstance(others, Mapping):
            yield f"{path}.{name} is published nowhere"
        else:
            yield from laxer(schema, known.get(name, others), defs, f"{path}.{name}")
    if isinstance(own.get("additionalProperties"), Mapping):
        yield from laxer(own["additionalProperties"], others if isinstance(others, Mapping) else {}, defs, f"{path}.*")
    if "object" in _types(own):
        missing = set(published.get("required", [])) - set(own.get("required", []))
        yield from (f"{path}.{name} may be left out, published is required" for name in sorted(missing))
        if "additionalProperties" not in own:
            yield f"{path} takes fields of any name"


def _types(schema: Schema) -> set[str]:
    if schema.get("x-kubernetes-int-or-string"):
        return {"string", "integer"}
    said = schema.get("type")
    if said is None:
        return {"string"} if "enum" in schema else set(_ANY) if not schema else set()
    return {said} if isinstance(said, str) else set(said)


def differences(published: Schema) -> list[str]:
    """In all of our kinds."""
    own = own_schema()
    return [f"{kind}: {one}" for kind in own for one in laxer(own[kind], published[kind], own[kind]["$defs"])]


def digest(path: Path) -> str:
    """Of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    """Compare, and write down what was compared."""
    published = published_schemas()
    if published is None:
        raise SystemExit("set KUBERAY_CRDS to a folder with KubeRay's ray.io_*.yaml (helm-chart/kuberay-operator/crds)")
    found = differences(published)
    if found:
        raise SystemExit("\n".join(found))
    files = {path.name: digest(path) for path in sorted(Path(os.environ["KUBERAY_CRDS"]).glob("ray.io_ray*.yaml"))}
    said = {"kuberay": "1.7.0", "excerpt": digest(EXCERPT), "published": files}
    COMPARED.write_text(json.dumps(said, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
