"""What the API's description says of a body is what is sent: a real gateway and a real controller, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from failsoft.artifacts.home import Home
from failsoft.health.ledger import read_ledger
from failsoft.incidents.answers import read_spans
from failsoft.serving.tracing.config import TraceConfig
from failsoft.serving.web.label_routes import LabelEnds
from failsoft.serving.web.rollout_bodies import RolloutBody
from failsoft.serving.web.status_bodies import HealthzBody, PlanBody, StatusBody
from tests.console.app_here import AppHere, Mood, app_here
from tests.serving.tracing.receiver import Receiver, attributes, receiving


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[AppHere]:
    """One whose model answers some requests, is found ill, and is held back by an operator."""
    home: Path = tmp_path_factory.mktemp("home")
    traces = TraceConfig(endpoint=receiver.url, ratio=0.0, every_s=0.02)
    with pytest.MonkeyPatch.context() as patch, app_here(home, patch, traces=traces) as made:
        yield made


def asked(app: AppHere, text: str = "please jazz in Berlin") -> httpx.Response:
    return httpx.post(f"{app.url}/v1/predict", json={"text": text, "request_id": f"q-{text}"}, timeout=30.0)


def as_described(form: type[BaseModel], body: dict[str, Any]) -> dict[str, Any]:
    """The body as its schema has it: what is not described is left out, and what is described and absent is refused.

    Where these tests fail something new is sent: describe it in web/status_bodies.py or web/rollout_bodies.py, and give
    it a value in web/status_examples.py.
    """
    return form.model_validate(body).model_dump(mode="json", exclude_unset=True)


def of(app: AppHere, path: str) -> dict[str, Any]:
    body: dict[str, Any] = httpx.get(f"{app.url}{path}", timeout=30.0).json()
    return body


def test_a_gateway_that_serves_says_what_is_described(app: AppHere) -> None:
    for word in ("jazz", "song", "rain"):
        assert asked(app, f"please {word} in Berlin").status_code == 200
    status, rollout = of(app, "/v1/status"), of(app, "/v1/rollout")
    assert as_described(StatusBody, status) == status
    assert as_described(RolloutBody, rollout) == rollout
    assert as_described(HealthzBody, of(app, "/healthz")) == {"status": "ok"}
    assert status["counts"]["answers_by_source"] == {"primary": 3}
    assert status["traces"] == {"sent": 0, "queue_full": 0, "not_delivered": 0, "over_limit": 0}


def test_the_end_of_each_label_is_described(app: AppHere) -> None:
    asked(app)
    token = {"Authorization": f"Bearer {Home(root=app.home).label_token()}"}
    labels = [{"request_id": "q-please jazz in Berlin", "label": "play_music"}, {"request_id": "nobody", "label": "x"}]
    sent = httpx.post(f"{app.url}/v1/labels", json={"labels": labels}, headers=token, timeout=30.0).json()
    assert as_described(LabelEnds, sent) == sent == {"counted": 1, "handed_on": 1}


def test_an_incident_leads_to_its_traces(app: AppHere, receiver: Receiver) -> None:
    """Ill by itself, the gateway trips: its event, and what is kept of requests, name traces that the collector has."""
    app.ail(Mood.GARBAGE)
    answers = [asked(app, f"please {n} jazz") for n in range(40)]
    assert answers[-1].json()["stage"] == "degraded"
    receiver.wait(lambda it: len(it.named("POST /v1/predict")) >= 20)
    tripped = [event for event in read_ledger(Home(root=app.home).ledger).events if event.kind == "gateway_tripped"]
    known = {span.trace_id.hex(): attributes(span) for span in receiver.named("POST /v1/predict")}
    assert known[tripped[0].data["trace_id"]]["failsoft.degrade_reason"] == "weak"
    status = of(app, "/v1/status")
    assert as_described(StatusBody, status) == status
    assert status["traces"]["sent"] > 0


def test_what_is_kept_of_a_request_names_its_trace(app: AppHere, receiver: Receiver) -> None:
    app.ail(Mood.GARBAGE)
    history, named = Home(root=app.home).serving / "answers.jsonl", set[str]()
    for _ in range(500):  # a span of the history is written when it is over
        asked(app)
        kept = [one for span in read_spans(history, after_s=0.0, before_s=9e9) for one in span.specimens]
        named = {one["trace_id"] for one in kept if "trace_id" in one}
        if named:
            break
    assert named
    receiver.wait(lambda it: named <= {span.trace_id.hex() for span in it.named("POST /v1/predict")})


def test_an_order_answers_with_a_plan_as_described(app: AppHere) -> None:
    token = {"Authorization": f"Bearer {Home(root=app.home).operator_token()}"}
    for route, order in (("degrade", {"why": "to see", "for_s": 60.0}), ("restore", {"why": "seen"})):
        sent = httpx.post(f"{app.url}/v1/{route}", json=order, headers=token, timeout=30.0).json()
        assert as_described(PlanBody, sent) == sent


def test_every_route_describes_the_fields_of_its_answer(app: AppHere) -> None:
    document = of(app, "/openapi.json")
    schemas = {
        f"{method} {path}": operation["responses"]["200"]["content"]["application/json"]["schema"]
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }
    assert [name for name, schema in schemas.items() if not ("$ref" in schema or "anyOf" in schema)] == []
