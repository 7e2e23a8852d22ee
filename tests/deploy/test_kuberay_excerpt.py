"""The excerpt of KubeRay's schemas that CI judges manifests by was held against the published ones."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.deploy.kuberay import published_schemas
from tests.deploy.kuberay_excerpt import COMPARED, EXCERPT, differences, digest, laxer

COUNT = {"type": "integer", "minimum": 0}
CLOSED = {"type": "object", "additionalProperties": False}
TEXT = {"type": "string"}


def test_it_is_the_one_that_was_held_against_the_published_schemas() -> None:
    compared = json.loads(COMPARED.read_text("utf-8"))
    assert compared["excerpt"] == digest(EXCERPT), (
        "the excerpt was changed: get KubeRay's ray.io_*.yaml (helm-chart/kuberay-operator/crds) and run "
        "KUBERAY_CRDS=FOLDER .venv/bin/python -m tests.deploy.kuberay_excerpt"
    )
    assert set(compared["published"]) == {f"ray.io_ray{kind}s.yaml" for kind in ("cluster", "job", "service")}


def test_it_takes_nothing_that_the_published_schemas_refuse() -> None:
    published = published_schemas()
    if published is None:
        pytest.skip(
            "KubeRay's schemas are on no package index; set KUBERAY_CRDS to a folder with its ray.io_*.yaml "
            "(helm-chart/kuberay-operator/crds, 1.7.0). What stands in kuberay_compared.json was held against them"
        )
    assert differences(published) == []


@pytest.mark.parametrize(
    ("own", "published", "says"),
    [
        (
            CLOSED | {"properties": {"imgae": TEXT}},
            CLOSED | {"properties": {"image": TEXT}},
            "imgae is published nowhere",
        ),
        (TEXT, {"type": "integer"}, r"may be \['string'\], published is \['integer'\]"),
        ({"type": ["string", "integer"]}, TEXT, r"may be \['integer'\]"),
        (CLOSED, {"type": "object", "required": ["name"]}, "name may be left out, published is required"),
        ({"type": "integer"}, COUNT, "has no minimum, published is 0"),
        ({"enum": ["a", "b"]}, {"type": "string", "enum": ["a"]}, "published is one of"),
        (TEXT, {"type": "string", "enum": ["a"]}, "takes anything, published is one of"),
        ({"type": "array", "items": TEXT}, {"type": "array", "items": COUNT}, r"spec\[\] may be"),
        (
            CLOSED | {"additionalProperties": TEXT},
            {"type": "object", "additionalProperties": COUNT},
            r"spec\.\* may be",
        ),
        ({"type": "object"}, {"type": "object"}, "takes fields of any name"),
        ({"$ref": "#/$defs/count"}, TEXT, "may be"),
    ],
)
def test_each_way_to_be_laxer_is_found(own: Any, published: Any, says: str) -> None:
    (found,) = laxer(own, published, {"count": COUNT})
    assert re.search(says, found), found


@pytest.mark.parametrize(
    ("own", "published"),
    [
        (COUNT, {"type": "integer"}),
        (
            CLOSED | {"required": ["name"], "properties": {"name": TEXT}},
            {"type": "object", "properties": {"name": TEXT}},
        ),
        ({"type": ["string", "integer"], "pattern": "x"}, {"x-kubernetes-int-or-string": True, "pattern": "y"}),
        (CLOSED | {"properties": {"any": COUNT}}, {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
        ({"enum": ["a"]}, {"type": "string", "minLength": 1}),
    ],
)
def test_what_is_as_strict_or_stricter_is_fine(own: Any, published: Any) -> None:
    assert list(laxer(own, published, {})) == []
