"""What browsers are told, and that no page of another origin may read or send anything."""

from __future__ import annotations

import httpx
import pytest
from starlette.responses import HTMLResponse

from failsoft.serving.web.page_headers import HEADERS, PAGE_POLICY, PLAIN_POLICY, PageHeaders
from tests.serving.web.test_routes import OPERATOR, FakeFront, client

pytestmark = pytest.mark.anyio
ELSEWHERE = {"Origin": "https://elsewhere.example"}


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json", "/v1/status", "/healthz", "/nothing/here"])
async def test_every_answer_to_a_browser_says_what_it_may_do_with_it(path: str) -> None:
    async with client(FakeFront()) as http:
        said = (await http.get(path)).headers
    assert HEADERS.items() <= {name.title(): value for name, value in said.items()}.items()
    assert said["content-security-policy"] == (PAGE_POLICY if path in ("/docs", "/redoc") else PLAIN_POLICY)


async def test_a_page_of_another_origin_reads_nothing_and_may_not_send_an_order() -> None:
    async with client(FakeFront()) as http:
        for method, path in (("GET", "/v1/status"), ("POST", "/v1/predict"), ("POST", "/v1/degrade"), ("GET", "/docs")):
            answer = await http.request(method, path, json={"text": "a", "why": "w"}, headers=ELSEWHERE | OPERATOR)
            assert not any(name.startswith("access-control-") for name in answer.headers)
            asks = ELSEWHERE | {
                "Access-Control-Request-Method": method,
                "Access-Control-Request-Headers": "authorization",
            }
            preflight = await http.options(path, headers=asks)
            assert preflight.status_code == 405
            assert not any(name.startswith("access-control-") for name in preflight.headers)


async def test_an_order_needs_a_header_that_no_form_of_another_page_can_send() -> None:
    """No cookie opens anything, so there is nothing a browser would send along by itself."""
    front = FakeFront()
    async with client(front) as http:
        answer = await http.post(
            "/v1/degrade", content='{"why": "w"}', headers=ELSEWHERE | {"Content-Type": "text/plain"}
        )
        assert "set-cookie" not in (await http.get("/docs")).headers
    assert (answer.status_code, front.orders) == (401, [])


async def test_what_a_page_says_of_itself_stays() -> None:
    page = HTMLResponse("x", headers={"Content-Security-Policy": "default-src 'self'"})
    transport = httpx.ASGITransport(app=PageHeaders(page, spares=lambda _path: False))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
        said = (await http.get("/console")).headers
    assert (said["content-security-policy"], said["x-frame-options"]) == ("default-src 'self'", "DENY")
