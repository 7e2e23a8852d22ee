"""What is said of an incident, and that its page stands alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from failsoft.health.ledger import read_ledger
from failsoft.incidents.answers import read_spans, totals
from failsoft.incidents.finding import incidents_of
from failsoft.incidents.page import page
from failsoft.incidents.picture import draw
from failsoft.incidents.story import Story, tell
from failsoft.serving.watching.answer_history import FILE_NAME
from tests.incidents.made import BEGAN_S, Told


def story(told: Told) -> Story:
    (one,) = incidents_of(read_ledger(told.home / "ledger.jsonl").events)
    spans = read_spans(told.home / "serving" / FILE_NAME, after_s=0.0, before_s=1e12)
    return tell(one, spans, now_s=told.clock.wall_s())


@pytest.fixture
def told(tmp_path: Path) -> Told:
    whole = Told(tmp_path)
    whole.whole_incident()
    return whole


def test_answers_are_counted_before_during_and_after(told: Told) -> None:
    phases = story(told).phases()
    assert (phases["before"].answers, phases["before"].replaced) == (19 * 40, 0)
    during = phases["during"]
    assert during.sources == {"primary": 40 + 8 * 20, "gbdt": 10 * 35 + 5 * 40 + 8 * 20, "rules": 50}
    assert (during.answers, during.replaced) == (40 + 15 * 40 + 8 * 40, 10 * 40 + 5 * 40 + 8 * 20)
    assert (phases["after"].sources, phases["before"].sure) == ({"primary": 40, "gbdt": 40}, 1.0)


def test_one_sentence_says_what_since_when_and_how_many(told: Told) -> None:
    said = story(told).headline()
    assert "over after 23 s: r1 gave silent garbage: answers in time that are not credible (12 weak of 40)." in said
    assert "760 of 960 answers (79.2%)" in said
    assert said.endswith("It ended in stage serving after one relapse.")


def test_while_it_goes_on_the_next_step_is_named(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.plan("degraded", "hangs")
    told.clock.advance(300.0)
    steps = story(told).next_steps()
    assert any(step.startswith("failsoft status") for step in steps)
    assert any(step.startswith("failsoft release abort r1") for step in steps)
    assert "is not known" in story(told).headline()


def test_requests_that_went_wrong_are_shown_evenly_and_a_replay_only_where_texts_were_kept(told: Told) -> None:
    assert story(told).specimens() == []
    told.plan("degraded")
    for number in range(40):
        told.clock.advance(1.0)
        told.span({"rules": 1}, specimens=({"why": "weak", "shape": f"xx{number}"},))
    incidents = incidents_of(read_ledger(told.home / "ledger.jsonl").events)
    spans = read_spans(told.home / "serving" / FILE_NAME, after_s=0.0, before_s=1e12)
    second = tell(incidents[1], spans, now_s=told.clock.wall_s())
    assert [one["shape"] for _at, one in second.specimens()] == [f"xx{number}" for number in range(0, 40, 4)]
    assert not any("replay" in step for step in second.next_steps())


def test_torn_and_foreign_lines_are_passed_over(told: Told) -> None:
    path = told.home / "serving" / FILE_NAME
    whole = len(read_spans(path, after_s=0.0, before_s=1e12))
    with path.open("a") as file:
        file.write('{"v": 1, "at_s": 1}\n{"v": 2}\n[]\n{"v": 1, "at_s": ')
    told.clock.advance(1.0)
    odds: list[dict[str, Any]] = [
        {"answers": []},
        {"confidence": [1]},
        {"at_s": float("nan")},
        {"span_s": "1"},
        {"answers": {"a": 3}},
    ]
    for odd in odds:
        told.span({"rules": 1}, **odd)
    assert len(read_spans(path, after_s=0.0, before_s=1e12)) == whole


def test_only_the_time_around_it_is_told(told: Told) -> None:
    assert min(span.at_s for span in story(told).spans) >= BEGAN_S
    (one,) = incidents_of(read_ledger(told.home / "ledger.jsonl").events)
    spans = read_spans(told.home / "serving" / FILE_NAME, after_s=one.began_s, before_s=one.began_s + 5.0)
    assert totals(spans).answers == 40 + 5 * 40


def test_the_page_stands_alone_and_shows_what_callers_wrote_as_text(told: Told) -> None:
    told.plan("degraded", "<script>alert(1)</script>")
    told.clock.advance(1.0)
    told.span({"rules": 1}, specimens=({"why": "weak", "shape": "x", "text": "<img src=x> \u202egnp"},))
    incidents = incidents_of(read_ledger(told.home / "ledger.jsonl").events)
    spans = read_spans(told.home / "serving" / FILE_NAME, after_s=0.0, before_s=1e12)
    made = page(tell(incidents[1], spans, now_s=told.clock.wall_s()))
    assert "<script" not in made
    assert "<img src=x>" not in made
    assert "\u202e" not in made
    assert not re.search(r"""(?:src|href)=["'](?!data:)""", made)
    assert "failsoft replay incident-20" in made


def test_a_picture_is_drawn_with_and_without_answers(told: Told, tmp_path: Path) -> None:
    assert draw(story(told)).startswith(b"\x89PNG")
    (tmp_path / "bare").mkdir()
    bare = Told(tmp_path / "bare")
    bare.plan("degraded")
    assert draw(story(bare)).startswith(b"\x89PNG")


def test_a_clock_that_was_set_back_breaks_nothing(told: Told) -> None:
    told.plan("degraded")
    told.clock.jump_wall(-86_400.0)
    told.plan("serving")
    incidents = incidents_of(read_ledger(told.home / "ledger.jsonl").events)
    spans = read_spans(told.home / "serving" / FILE_NAME, after_s=0.0, before_s=1e12)
    odd = tell(incidents[1], spans, now_s=told.clock.wall_s())
    assert odd.lasted_s == 0.0
    assert page(odd).startswith("<!doctype html>")


def wave_story(tmp_path: Path) -> Story:
    """Ten seconds of health, twenty of overload, and it goes on."""
    tmp_path.mkdir(exist_ok=True)
    told = Told(tmp_path)
    told.answers(10, primary=40)
    told.event("overload_began", "31 of the last 100 calls")
    for number in range(20):
        told.clock.advance(1.0)
        shed = {"primary": {"none": 30}, "gbdt": {"shed": 8, "stage": 2}}
        said = ({"why": "shed" if number % 2 else "stage", "shape": f"xx{number}"},)
        told.span({"primary": 30}, answers=shed, specimens=said)
    return story(told)


def test_of_a_wave_only_what_it_hit_is_counted_and_shown(tmp_path: Path) -> None:
    one = wave_story(tmp_path)
    assert (one.hit(), one.phases()["during"].answers) == (160, 840), "with the span that ended as it began"
    assert "160 of 840 answers (19.0%) came from a fallback for want of room" in one.headline()
    assert one.headline().endswith("The model stayed in service: this is not held against it.")
    assert {specimen["why"] for _at, specimen in one.specimens()} == {"shed"}
    assert not any("abort" in step for step in one.next_steps())
    assert draw(one).startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", ["fall", "wave"])
def test_the_page_has_every_part_whatever_the_incident(told: Told, tmp_path: Path, kind: str) -> None:
    made = page(story(told) if kind == "fall" else wave_story(tmp_path / "wave"))
    parts = ["What to do next", "What was seen", "What was done, and why", "Answers by source, and their quality"]
    places = [made.index(f"<h2>{part}") for part in [*parts, "Some of the requests that went wrong", "Reproduction"]]
    assert places == sorted(places)
    assert "models&#x27; mean confidence" in made
    if kind == "fall":
        assert made.count("stage_move") == 8
        assert "gateway_tripped" in made[places[1] : places[2]]
    else:
        assert "overload_began" in made[places[1] : places[2]]
        assert "Nothing: no stage moved" in made
        assert "/console/runbook#failsoftoverload" in made


def test_what_was_only_turned_away_is_shown_where_nothing_else_is_known(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.plan("degraded", "12 weak of 40")
    for why in ("stage", "weak", "stage"):
        told.clock.advance(1.0)
        told.span({"rules": 1}, specimens=({"why": why, "shape": "xx"},))
    assert [specimen["why"] for _at, specimen in story(told).specimens()] == ["weak"]
