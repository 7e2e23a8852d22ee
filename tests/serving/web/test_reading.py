"""Who may read what a gateway says of itself. No Ray."""

from __future__ import annotations

import httpx
import pytest

from failsoft.serving.intents import INTENTS
from failsoft.serving.web.auth import Guards, bearer_guard, viewer_guard
from failsoft.serving.web.routes import build_routes
from failsoft.serving.web.wire import wire_of
from tests.serving.web.test_routes import OPERATOR, TOKEN, FakeFront

pytestmark = pytest.mark.anyio
VIEWER = "v" * 32
GUARDS = Guards(operator=bearer_guard(TOKEN), reader=viewer_guard(VIEWER, TOKEN))


def client() -> httpx.AsyncClient:
    app = build_routes(FakeFront(), GUARDS, wire=wire_of(INTENTS))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://gateway")


@pytest.mark.parametrize("path", ["/v1/status", "/v1/status?", "/v1//status", "/v1/%73tatus", "/v1/status/"])
async def test_no_way_of_writing_its_path_reads_a_status_without_a_token(path: str) -> None:
    async with client() as http:
        answer = await http.get(path, follow_redirects=True)
    assert answer.status_code in {401, 404}
    assert "epoch" not in answer.text


async def test_a_refused_reader_hears_which_token_reads() -> None:
    async with client() as http:
        refused = await http.get("/v1/status")
        assert "viewer-token" in refused.json()["detail"]
        assert refused.headers["www-authenticate"] == "Bearer"
        for token in (OPERATOR, {"Authorization": f"Bearer {VIEWER}"}):
            assert (await http.get("/v1/status", headers=token)).json() == {"epoch": 7}


async def test_whether_it_lives_and_what_it_answers_is_told_to_everybody() -> None:
    async with client() as http:
        assert (await http.get("/healthz")).status_code == 200
        assert (await http.post("/v1/predict", json={"text": "play some jazz"})).status_code == 200


async def test_the_description_says_that_reading_needs_a_token() -> None:
    document = build_routes(FakeFront(), GUARDS, wire=wire_of(INTENTS)).openapi()
    assert document["paths"]["/v1/status"]["get"]["security"] == [{"reader": []}]
    assert "401" in document["paths"]["/v1/status"]["get"]["responses"]
    assert "security" not in document["paths"]["/healthz"]["get"]
