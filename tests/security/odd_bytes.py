"""What a stranger, a torn disk or a tired hand puts into a file: any bytes, and good forms with an odd thing inside."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

DEEP = b"[" * 100_000
"""Nested beyond all reason: readers that go down by themselves run out of stack."""
DEEP_TOML = b"x = " + b"[" * 5_000
HUGE = b'{"format": 1' + b"0" * 5_000 + b"}"
EXTREMES = {"deep": DEEP, "deep objects": b'{"a":' * 50_000, "deep TOML": DEEP_TOML, "huge": HUGE, "empty": b""}

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, -1, 2**63, 10**400, 1e308, float("nan"), float("inf"), "", "\ud83d", "\0", "../../x", "1"]),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


def places(body: Any) -> list[tuple[Any, ...]]:
    """Of each value inside, the way to it."""
    found: list[tuple[Any, ...]] = [()]
    steps = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    for key, value in steps:
        found += [(key, *rest) for rest in places(value)]
    return found


def replaced(body: Any, way: tuple[Any, ...], value: Any) -> Any:
    """A copy with another value at a place."""
    if not way:
        return value
    whole = copy.deepcopy(body)
    there = whole
    for key in way[:-1]:
        there = there[key]
    there[way[-1]] = value
    return whole


def odd_values(body: Any) -> st.SearchStrategy[Any]:
    """A good form with one odd value in it."""
    return st.tuples(st.sampled_from(places(body)), values).map(lambda drawn: replaced(body, *drawn))


def odd_json(body: Any) -> st.SearchStrategy[bytes]:
    """Any bytes, a good form with one odd value in it, a good form that is cut, and depth."""
    whole = as_json(body)
    changed = odd_values(body).map(as_json)
    added = values.map(lambda value: as_json(body | {"odd": value} if isinstance(body, dict) else [body, value]))
    cut = st.integers(0, len(whole)).map(lambda size: whole[:size])
    return st.one_of(changed, changed, added, cut, st.binary(max_size=80), st.just(whole + whole))


def odd_lines(body: Any) -> st.SearchStrategy[bytes]:
    """Lines of such."""
    return st.lists(odd_json(body), min_size=1, max_size=3).map(b"\n".join)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value.encode("utf-8", "replace").decode())
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(one)}" for key, one in value.items()) + "}"
    return str(value) if value is not None else '"none"'


def odd_toml(*keys: str) -> st.SearchStrategy[bytes]:
    """Any bytes, and each of these keys with any value, some of them twice."""
    entry = st.tuples(st.sampled_from([*keys, "odd"]), values).map(lambda drawn: f"{drawn[0]} = {_toml(drawn[1])}")
    file = st.lists(entry, max_size=3).map(lambda lines: "\n".join(lines).encode("utf-8", "surrogatepass"))
    return st.one_of(file, file, st.binary(max_size=80), st.sampled_from([b"[a]\n[a]\n", b"x = 1979-13-01\n"]))
