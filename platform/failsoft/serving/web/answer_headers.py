"""Who answered, and why not the model in service, in headers: for proxies and logs, which do not read bodies."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from pydantic import BaseModel

from failsoft.serving.web.messages import Answer
from failsoft.serving.web.problems import whole

SOURCE, REASON = "x-answer-source", "x-degrade-reason"
_LONGEST = 500
_AS_THEY_ARE = " !#$&'()*+,/:;=?@[]<>|{}^`\""
"""A header holds plain ASCII; whatever else stands in a reason is percent-encoded, as in a URL."""


def said_in_headers(answers: Sequence[Answer]) -> dict[str, str]:
    """Each source once, in the order of the items, and each reason, as plain ASCII."""
    sources = ", ".join(dict.fromkeys(str(answer.source) for answer in answers))
    reasons = "; ".join(dict.fromkeys(answer.degrade_reason for answer in answers if answer.degrade_reason))
    said = {SOURCE: _plain(sources)}
    return said | {REASON: _plain(reasons)} if reasons else said


def headers_of(found: BaseModel) -> dict[str, str]:
    """The same of what a request was answered with: one answer, or a list of them."""
    return said_in_headers([found] if isinstance(found, Answer) else getattr(found, "answers", ()))


def _plain(text: str) -> str:
    text = text[:_LONGEST].strip()
    if text.isascii() and text.isprintable() and "%" not in text:  # the ordinary case
        return text
    return quote(whole(text), safe=_AS_THEY_ARE)[: 2 * _LONGEST]
