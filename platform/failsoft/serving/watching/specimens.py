"""A few of the requests that the model in service did not answer: enough to see what broke it, and no more.

Unless a project switches texts on, only their *shape* is kept: each letter is ``x``, also one in a circle and a vowel
that is written as a mark, each digit ``9``; signs, spaces and emoji stay, since they are what breaks a tokenizer and
tell nothing about the caller.
"""

from __future__ import annotations

import random
import re
import reprlib
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

from failsoft.errors import ConfigError
from failsoft.models.patterns import may_take_for_ever
from failsoft.serving.tracing.spans import kept_trace_id
from failsoft.serving.watching.redaction import HIDDEN, Redaction

MAX_CHARACTERS = 300
"""Of a text or a shape; the rest is cut."""
_MOST_SEARCHED = 4 * MAX_CHARACTERS
"""Of a text, for what is to be hidden; a text within an instance may have two thirds more."""
_WORDS = re.compile(r"\w{4,}")
DEFAULT_HIDES = (
    r"[\w.+-]{1,64}@[\w-]{1,63}\.[\w.]+",  # addresses of mail (RFC 5321's bounds; without them a text costs its square)
    r"https?://\S+",
    r"\+?\d[\d\s().-]{5,}\d",  # numbers of phones, cards, accounts
)


class _Brief(reprlib.Repr):
    """Never all of a large instance, nor deeper than this; one that can't be shown ends no gateway's duty."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother = 4, MAX_CHARACTERS, MAX_CHARACTERS
        self.maxdict = self.maxlist = self.maxtuple = 50


_BRIEF = _Brief()


@dataclass(frozen=True, kw_only=True)
class SpecimenPolicy:
    """What is kept of requests that went wrong."""

    per_span: int = 5
    """So many of each reason in each span of the history, a fair sample; 0: none."""
    keep_texts: bool = False
    """Also keep the text itself, so that ``failsoft replay`` can try it again; off, only its shape is kept."""
    hides: tuple[str, ...] = DEFAULT_HIDES
    """Regular expressions of what is hidden in a text that is kept, also in those of an instance."""
    hide_fields: tuple[str, ...] = ()
    """Names of an instance's fields that are not kept, at whatever depth, not even as a shape."""

    def __post_init__(self) -> None:
        """Refuse a pattern that is none, or that can hold up the gateway."""
        if not 0 <= self.per_span <= 100:
            raise ConfigError(f"per_span is {self.per_span}; use 0 to 100 (5 suits)")
        for pattern in self.hides:
            _refuse_bad_hide(pattern)


def _refuse_bad_hide(pattern: str) -> None:
    """It is tried on what callers write, who may know how to make it slow."""
    said = f"hides has {pattern[:200]!r}"
    try:
        re.compile(pattern)
        endless = may_take_for_ever(pattern, chars=_MOST_SEARCHED)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"{said}, which is no regular expression ({error})") from error
    if endless:
        raise ConfigError(
            f"{said}, which can take for ever in a text of {_MOST_SEARCHED} characters; repeat less in it"
        )


class Whose(NamedTuple):
    """By what a text that is kept is found again, should somebody want it removed."""

    request_id: str = ""
    caller: int | None = None
    """Number of whose request it was; None: nobody knows."""

    def marks(self) -> dict[str, str]:
        """As they stand beside a text: digests, since ids and keys may name people."""
        request = {"request": request_mark(self.request_id)} if self.request_id else {}
        return request if self.caller is None else request | {"caller": caller_mark(self.caller)}


NOBODY = Whose()


def request_mark(request_id: str) -> str:
    """Of a request's id, the same in every process: 16 hexadecimal digits."""
    return blake2b(request_id.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def caller_mark(caller: int) -> str:
    """Of a caller's number (:func:`failsoft.health.callers.caller_of`): 16 hexadecimal digits."""
    return f"{caller:016x}"


class Specimens:
    """A fair sample of each reason in one span (reservoir sampling, Vitter's Algorithm R).

    By reason, since a trip answers thousands in the span of the few that brought it about, and those few are wanted.
    """

    def __init__(self, policy: SpecimenPolicy, rng: random.Random) -> None:
        self._policy = policy
        self._hides = [re.compile(pattern) for pattern in policy.hides]
        self._redaction = Redaction(policy.hide_fields, self._hides)
        self._rng = rng
        self._seen: Counter[str] = Counter()
        self._kept: dict[str, list[tuple[Any, str, str, Whose, str]]] = {}

    def offer(self, asked: Any, why: str, said: str, whose: Whose = NOBODY) -> None:
        """One request that the model in service did not answer; ``said``: the reason in a sentence."""
        self._seen[why] += 1
        kept = self._kept.setdefault(why, [])
        if len(kept) < self._policy.per_span:
            kept.append((asked, why, said, whose, kept_trace_id()))
        elif self._policy.per_span and (place := self._rng.randrange(self._seen[why])) < self._policy.per_span:
            kept[place] = (asked, why, said, whose, kept_trace_id())

    def take(self) -> list[dict[str, str]]:
        """What was kept, as JSON holds it, and begin the next span."""
        kept, self._kept = self._kept, {}
        self._seen.clear()
        return [self._as_json(*one) for sample in kept.values() for one in sample]

    def _as_json(self, asked: Any, why: str, said: str, whose: Whose, trace_id: str) -> dict[str, str]:
        text = asked if isinstance(asked, str) else _BRIEF.repr(self._redaction.without_fields(asked))
        quoted = asked if isinstance(asked, str) else _BRIEF.repr(asked)
        body = {"why": why, "said": hidden(without_words_of(quoted, said), self._hides), "shape": shape_of(text)}
        body |= {"trace_id": trace_id} if trace_id else {}
        if not self._policy.keep_texts:  # a shape is nobody's, so it keeps no mark of anybody either
            return body
        written = None if isinstance(asked, str) else self._redaction.as_json(asked)
        instance = {} if written is None else {"instance": written}
        return body | {"text": hidden(text, self._hides)} | instance | whose.marks()


def without_words_of(text: str, said: str) -> str:
    """A sentence about a text, without words of it: an error of foreign code may quote what its author wrote.

    Words of three characters and less stay; they are in every sentence.
    """
    for word in sorted({word for word in _WORDS.findall(text[: 4 * MAX_CHARACTERS]) if word in said}, key=len):
        said = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", HIDDEN, said)
    return said


def shape_of(text: str) -> str:
    """The text with letters as ``x`` and digits as ``9``, at most ``MAX_CHARACTERS`` of it."""
    return "".join(map(_sign, text[:MAX_CHARACTERS]))


def hidden(text: str, patterns: Sequence[re.Pattern[str]]) -> str:
    """The text without what the patterns find, at most ``MAX_CHARACTERS`` of it; what can't be written is replaced."""
    text = text[:_MOST_SEARCHED].encode("utf-8", "replace").decode("utf-8")
    for pattern in patterns:
        text = pattern.sub(HIDDEN, text)
    return text[:MAX_CHARACTERS]


def _sign(sign: str) -> str:
    if sign.isascii():
        return "x" if sign.isalpha() else "9" if sign.isdigit() else sign if sign.isprintable() else _code(sign)
    if any(map(str.isalpha, unicodedata.normalize("NFKC", sign))) or _is_vowel(sign):
        return "x"
    if sign.isnumeric():
        return "9"
    return sign if sign.isprintable() else _code(sign)


def _is_vowel(sign: str) -> bool:
    """A mark that takes a place of its own in a word; accents and what picks a sign's look do not."""
    is_mark = unicodedata.category(sign) in {"Mn", "Mc"} and not unicodedata.combining(sign)
    return is_mark and not unicodedata.name(sign, "").startswith("VARIATION SELECTOR")


def _code(sign: str) -> str:
    return f"\\u{ord(sign):04x}"
