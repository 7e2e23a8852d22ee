"""Who gives an order, in the ledger's words."""

from __future__ import annotations

import getpass

import pytest

from failsoft.cli.app import who_orders


@pytest.mark.parametrize("error", [KeyError("getpwuid(): uid not found: 4242"), OSError("No username set")])
def test_a_user_without_a_name_is_an_operator(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise error

    assert who_orders() == getpass.getuser()
    monkeypatch.setattr(getpass, "getuser", nobody)
    assert who_orders() == "operator"
