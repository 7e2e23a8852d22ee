"""Orders need the token."""

from __future__ import annotations

import pytest

from failsoft.errors import NotAuthorizedError
from failsoft.serving.web.auth import bearer_guard

TOKEN = "a-token-of-some-length"


@pytest.mark.parametrize("header", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"Bearer  {TOKEN} "])
def test_the_token_opens(header: str) -> None:
    bearer_guard(TOKEN)(header)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        TOKEN,
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        "Bearer \ud83d",
        "Bearer é",
    ],
)
def test_anything_else_does_not_and_says_what_to_do(header: str | None) -> None:
    with pytest.raises(NotAuthorizedError, match="operator-token"):
        bearer_guard(TOKEN)(header)


def test_an_empty_token_opens_to_nobody() -> None:
    for header in (None, "", "Bearer", "Bearer "):
        with pytest.raises(NotAuthorizedError):
            bearer_guard("")(header)
