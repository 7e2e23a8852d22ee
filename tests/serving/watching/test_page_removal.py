"""Which pages show a text: neither one too few, nor each that happens to have the same word."""

from __future__ import annotations

import json
from collections.abc import Callable
from html import escape
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.serving.watching import page_removal
from failsoft.serving.watching.page_removal import Forms, pages_that_show

WAYS: tuple[Callable[[str], str], ...] = (
    lambda text: f"<td>{escape(text)}</td>",
    lambda text: json.dumps({"said": ["x", text]}),
    lambda text: json.dumps({"said": f"{text}\n"}, ensure_ascii=False),
    lambda text: f"first\n{text}\nlast",
)


@pytest.mark.parametrize("few", [0, 2000])
@pytest.mark.parametrize("way", WAYS)
@given(
    text=st.text(st.sampled_from("ab <>&'\"éß你\u200b"), min_size=8, max_size=20).filter(str.strip),
    others=st.lists(st.text(st.sampled_from("abé "), max_size=12), max_size=4),
)
def test_a_text_is_found_however_it_is_written_and_among_however_many(
    few: int, way: Callable[[str], str], text: str, others: list[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_removal, "_FEW", few)
        assert Forms([*others, text]).are_in(way(text).encode())


@pytest.mark.parametrize("few", [0, 2000])
def test_nothing_is_found_where_none_of_them_is(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_removal, "_FEW", few)
    wanted = Forms([f"tell anna about number {number}" for number in range(100)])
    assert not wanted.are_in(b"<td>tell anna about number</td><td>tell anna about it</td>")
    assert wanted.are_in(b"<td>tell anna about number 99</td>")


@pytest.mark.parametrize("text", ["no", "good", "ja"])
def test_a_single_word_is_found_where_it_stands_alone_and_not_in_every_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.html").write_text(f"<p>no model, good answers, ja{text}</p>")
    (tmp_path / "shown.html").write_text(f"<tr><td>weak</td><td>{text}</td></tr>")
    (tmp_path / "shown.json").write_text(json.dumps({"text": text}))
    assert [path.name for path in pages_that_show(tmp_path, [text])] == ["shown.html", "shown.json"]


def test_a_page_that_goes_meanwhile_is_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone.html").write_text("tell anna")

    def first_removed(path: Path) -> bytes:
        path.unlink()
        return path.open("rb").read()

    monkeypatch.setattr(Path, "read_bytes", first_removed)
    assert pages_that_show(tmp_path, ["tell anna"]) == []
