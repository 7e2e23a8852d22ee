"""The OpenAPI document is whole, and its examples are what the routes take and say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.openapi.models import OpenAPI
from jsonschema import Draft202012Validator

from failsoft.errors import NotAuthorizedError
from failsoft.serving.intents import INTENTS
from failsoft.serving.plan.plan import RoutingPlan
from failsoft.serving.web import examples
from failsoft.serving.web.messages import PredictAnswer, PredictRequest
from failsoft.serving.web.routes import Force, Reason, build_routes
from failsoft.serving.web.wire import wire_of
from tests.serving.web.test_routes import FakeFront


def nobody(authorization: str | None) -> None:
    raise NotAuthorizedError(f"{authorization} is no operator")


DOCUMENT: dict[str, Any] = build_routes(FakeFront(), nobody, wire=wire_of(INTENTS)).openapi()
OPERATIONS = {
    f"{method} {path}": operation for path, item in DOCUMENT["paths"].items() for method, operation in item.items()
}


def contents() -> Iterator[tuple[str, dict[str, Any]]]:
    """Everything that is sent or answered, by the place where the document says so."""
    for name, operation in OPERATIONS.items():
        if "requestBody" in operation:
            yield from ((f"{name} request {kind}", it) for kind, it in operation["requestBody"]["content"].items())
        for status, response in operation["responses"].items():
            yield from ((f"{name} {status} {kind}", it) for kind, it in response["content"].items())


CONTENTS = dict(contents())


def test_the_document_is_openapi_and_every_reference_in_it_leads_somewhere() -> None:
    OpenAPI.model_validate(DOCUMENT)
    assert DOCUMENT["openapi"].startswith("3.1")
    for reference in references(DOCUMENT):
        place: Any = DOCUMENT
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
        assert place


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        yield from ([node["$ref"]] if isinstance(node.get("$ref"), str) else [])
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from references(child)


def test_every_route_is_described_with_all_that_it_may_answer() -> None:
    refusals = {name: sorted(set(found["responses"]) - {"200"}) for name, found in OPERATIONS.items()}
    order = ["400", "401", "404", "409", "413", "422", "500", "503"]
    assert refusals == {
        "post /v1/predict": ["400", "413", "422", "429", "500"],
        "get /v1/status": ["500"],
        "get /healthz": ["500"],
        "post /v1/degrade": order,
        "post /v1/restore": order,
        "post /v1/releases/{name}/propose": order,
    }
    assert all(found["summary"] and "200" in found["responses"] for found in OPERATIONS.values())


@pytest.mark.parametrize("name", CONTENTS)
def test_whatever_is_sent_or_answered_has_an_example_that_fits_its_schema(name: str) -> None:
    content = CONTENTS[name]
    assert content["examples"], f"{name} has no example"
    schema = content["schema"] | {"components": DOCUMENT["components"]}
    for example in content["examples"].values():
        Draft202012Validator(schema).validate(example["value"])


@pytest.mark.parametrize("name", [name for name in CONTENTS if name.split()[2][0] in "45"])
def test_a_refusal_is_a_problem_of_its_own_status(name: str) -> None:
    status, kind = name.split()[2:4]
    assert kind == "application/problem+json"
    assert CONTENTS[name]["examples"]["problem"]["value"]["status"] == int(status)


def test_operators_routes_say_that_they_need_a_token_and_the_others_do_not() -> None:
    guarded = {name for name, operation in OPERATIONS.items() if operation.get("security")}
    assert guarded == {"post /v1/degrade", "post /v1/restore", "post /v1/releases/{name}/propose"}
    assert DOCUMENT["components"]["securitySchemes"]["operator"]["scheme"] == "bearer"


def test_a_429_and_a_401_describe_their_headers() -> None:
    responses = OPERATIONS["post /v1/predict"]["responses"] | OPERATIONS["post /v1/degrade"]["responses"]
    assert "Retry-After" in responses["429"]["headers"]
    assert "WWW-Authenticate" in responses["401"]["headers"]


def test_the_examples_are_requests_answers_orders_and_plans() -> None:
    """Strictly: a schema alone would let a misspelt optional field pass."""
    for example in examples.PREDICT_REQUESTS.values():
        PredictRequest.model_validate(example["value"])
    answer = examples.PREDICT_ANSWERS["model"]["value"]
    assert PredictAnswer.model_validate(answer).model_dump(mode="json") == answer
    for order, kind in ((examples.FORCES, Force), (examples.REASONS, Reason)):
        assert [kind.model_validate(example["value"]) for example in order.values()]
    assert RoutingPlan.of(examples.PLAN).as_json() == examples.PLAN


def test_whatever_a_caller_may_send_beside_its_body_is_described_with_an_example() -> None:
    lacking = [
        f"{name} {parameter['name']}"
        for name, operation in OPERATIONS.items()
        for parameter in operation.get("parameters", [])
        if not (parameter.get("description") and parameter["schema"].get("examples", parameter.get("examples")))
    ]
    assert lacking == []


def test_every_field_says_what_it_is() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    lacking = [
        f"{name}.{field}"
        for name, schema in schemas.items()
        for field, described in schema.get("properties", {}).items()
        if not described.get("description")
    ]
    assert lacking == []
