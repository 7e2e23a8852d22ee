"""Whatever bytes a caller sends, up to the cap: an answer or a refusal in words, through all nets, and never a 5xx."""

from __future__ import annotations

import json
import math
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from failsoft.serving.intents import INTENTS
from failsoft.serving.web.messages import PredictAnswer, PredictAnswers, PredictRequest
from failsoft.serving.web.routes import build_routes
from failsoft.serving.web.wire import wire_of
from tests.serving.counter import Counter
from tests.serving.odd_text import any_text
from tests.serving.web.test_routes import FakeFront, guard

pytestmark = pytest.mark.anyio


class RealFront(FakeFront):
    """Answers as a gateway does: sanitizer, scripted model, ladder."""

    def __init__(self) -> None:
        super().__init__()
        self.counter = Counter()

    async def predict(self, request: PredictRequest) -> Any:
        answers = [await self.counter.ask(text, key=request.key or "caller") for text in request.items]
        return answers[0] if request.texts is None else PredictAnswers(answers=answers)


def escaped(text: str) -> bytes:
    """As JSON with every half of a pair by its number, which is how they arrive."""
    return json.dumps({"text": text}).encode()


bodies = st.one_of(
    st.binary(max_size=200),
    any_text.map(escaped),
    any_text.map(lambda text: json.dumps({"texts": [text, text[::-1]]}).encode()),
    any_text.map(lambda text: b'{"text": "' + text.encode("utf-8", "surrogatepass") + b'"}'),
    st.binary(max_size=60).map(lambda raw: b'{"text": "' + raw + b'"}'),
    any_text.map(lambda text: escaped(text * 300)),
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=bodies)
async def test_any_bytes_are_answered_or_refused_in_words(body: bytes) -> None:
    app = build_routes(RealFront(), guard, wire=wire_of(INTENTS))
    transport = httpx.ASGITransport(app=app)  # raises whatever the app raises
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
        response = await http.post("/v1/predict", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code in (200, 400, 413, 422)
    said = response.json()
    if response.status_code == 200:
        for answer in said.get("answers", [said]):
            checked = PredictAnswer.model_validate(answer)
            assert checked.intent
            assert checked.confidence is None or math.isfinite(checked.confidence)
    else:
        assert said["detail"]
