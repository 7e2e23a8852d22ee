"""Errors of foreign code in words that may be kept: bounded, and without the secrets that addresses carry."""

from __future__ import annotations

import re

_MAX_TEXT = 4096
_HOLDER = re.compile(r"(?<=://)[^\s/@'\"]+@")
"""``user:password@`` of an address."""
_SECRET = re.compile(
    r"(?i)\b([\w.-]*(?:signature|credential|token|secret|passw(?:or)?d|api[_-]?key|access[_-]?key|sig|authorization))\b"
    r"(['\"]?\s*[=:]\s*['\"]?)(?:bearer\s+|basic\s+)?[^\s&'\",;)]+"
)
"""A parameter of an address, or a setting, whose name says that its value is a secret."""


def in_words(error: BaseException) -> str:
    """Type and text of an error, also of one whose own text raises; see :func:`without_secrets`."""
    try:
        return f"{type(error).__name__}: {without_secrets(str(error))}"
    except Exception:  # noqa: BLE001 -- `__str__` is foreign code, too
        return type(error).__name__


def without_secrets(text: str) -> str:
    """The text without the passwords, tokens and signatures of addresses: letters and ledgers are read by many."""
    return _SECRET.sub(r"\1\2...", _HOLDER.sub("...@", text[:_MAX_TEXT]))
