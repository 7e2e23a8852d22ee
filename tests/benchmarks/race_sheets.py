"""What the incident race found, as tables for people and as series for the pictures."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from os import cpu_count
from pathlib import Path
from typing import TypeVar

from tests.benchmarks.outcome import Outcome, Sheet
from tests.benchmarks.race_recording import COLLAPSE, SURE_AND_WRONG, Recording, recorded
from tests.benchmarks.race_simulated import INCIDENT_S, OURS, RIVALS, Course, HealthyDay, Illness, healthy_day, race
from tests.benchmarks.race_wall import RATE_HZ, WATCHED_S, Seen, raced

SIMULATED, WALL = "incident_simulated_series.json", "incident_wall_series.json"
COUNTED = "incident_simulated_counts.json"
ILLNESSES = (
    Illness(kind=COLLAPSE, mended_by_load=True),
    Illness(kind=COLLAPSE, mended_by_load=False),
    Illness(kind=SURE_AND_WRONG, mended_by_load=True),
)
ON_A_DAY = (OURS, "sliding window", "pybreaker", "bare, rolled back by an alert")
DAYS = ("snips", "clinc150")
BEFORE_S = 3.0
_Result = TypeVar("_Result")
_COURSE = (
    "who",
    "right answers, first 60 s",
    "45 min",
    "wrong answers of the ill model",
    "warned after",
    "left it after",
    "back to it, ill",
    "mended after",
    "in full again after",
)


def simulated(*, full: bool, folder: Path) -> Outcome:
    """All rivals through all incidents, and those that judge through two healthy days; series go to the folder.

    Nothing is timed here, so one process for each core shares the work.
    """
    outcome, data = Outcome(name="incident_simulated"), recorded()
    rate_hz, day_hz = (20.0, 50.0) if full else (10.0, 5.0)
    with ProcessPoolExecutor(cpu_count(), mp_context=get_context("spawn")) as pool:
        begun_days = {
            name: {which: pool.submit(healthy_day, name, data[which], rate_hz=day_hz) for which in DAYS}
            for name in ON_A_DAY
        }
        begun = {
            illness: {name: pool.submit(race, name, data["snips"], illness, rate_hz=rate_hz) for name in RIVALS}
            for illness in ILLNESSES
        }
        courses = {illness: _done(each, illness.words) for illness, each in begun.items()}
        days = {name: _done(each, f"healthy days, {name}") for name, each in begun_days.items()}
    outcome.sheets += [_incident_sheet(illness, each, rate_hz) for illness, each in courses.items()]
    outcome.sheets.append(_day_sheet(data, days, day_hz))
    outcome.notes += _how_it_was(data)
    _keep(folder, courses, days)
    return outcome


def _done(begun: Mapping[str, Future[_Result]], what: str) -> dict[str, _Result]:
    found = {name: each.result() for name, each in begun.items()}
    _say(f"{what}: done")
    return found


def _keep(
    folder: Path,
    courses: Mapping[Illness, Mapping[str, Course]],
    days: Mapping[str, Mapping[str, HealthyDay]],
) -> None:
    """What the pictures are drawn of."""
    series = {one.words: {name: _series(course) for name, course in each.items()} for one, each in courses.items()}
    counted = {one.words: {name: _counts(course) for name, course in each.items()} for one, each in courses.items()}
    trips = {name: {which: day.falls for which, day in found.items()} for name, found in days.items()}
    (folder / SIMULATED).write_text(json.dumps(series), "utf-8")
    (folder / COUNTED).write_text(json.dumps({"incidents": counted, "false_trips": trips}), "utf-8")


def _how_it_was(data: Mapping[str, Recording]) -> list[str]:
    return [
        f"recorded answers of SNIPS models ({len(data['snips'].healthy)} test texts); failsoft: its own watch, rollout "
        "and routing with production's times, by a manual clock; labels, where some come, come after 2 min; the "
        "fallback is LightGBM, "
        f"{statistics.mean(data['snips'].fallback_right):.1%} right",
        "the window: 100 answers, opens at 20 % weak, for 30 s, then empty; pybreaker: 5 weak answers in a row, 30 s, "
        "one trial, and each weak answer goes to the fallback; the alert: 20 % weak over 5 min, for 5 min, then 2 min "
        "until the old image serves; a person: 10 min more",
    ]


def _incident_sheet(illness: Illness, courses: Mapping[str, Course], rate_hz: float) -> Sheet:
    rows = [_course_row(name, course) for name, course in courses.items()]
    title = f"02:15, {illness.words}; {rate_hz:g} requests a second, ill for 45 min at most"
    return Sheet(title=title, columns=_COURSE, rows=rows)


def _course_row(name: str, course: Course) -> tuple[str, ...]:
    return (
        name,
        f"{course.success(INCIDENT_S, INCIDENT_S + 60):.1%}",
        f"{course.success(INCIDENT_S, INCIDENT_S + 2700):.1%}",
        f"{course.wrong_of_ill:,}",
        "–" if course.warned_s is None else _seconds(course.warned_s),
        _seconds(course.first_fall_s),
        str(course.returns_to_ill),
        _seconds(course.mended_s),
        _seconds(course.back_s),
    )


def _day_sheet(data: Mapping[str, Recording], days: Mapping[str, Mapping[str, HealthyDay]], rate_hz: float) -> Sheet:
    rows = []
    for name, found in days.items():
        warned = "" if name != OURS else ", {day.warnings} warnings"
        cells = [
            f"{day.falls}{warned.format(day=day)}, {day.to_fallback:.2%} to the fallback" for day in found.values()
        ]
        rows.append((name, *cells))
    weak = {which: f"{data[which].weak_fraction:.1%} weak" for which in ("snips", "clinc150")}
    columns = ("who", f"false trips on SNIPS ({weak['snips']})", f"on CLINC150 ({weak['clinc150']})")
    return Sheet(title=f"a healthy day, {rate_hz:g} requests a second", columns=columns, rows=rows)


def _counts(course: Course) -> dict[str, float | None]:
    """What of a course is one number; None: never."""
    return {"wrong": course.wrong_of_ill, "back_s": course.back_s, "returns": course.returns_to_ill}


def _series(course: Course) -> dict[str, list[float]]:
    """Shares second by second."""
    counts = {"right": course.right, "by_model": course.by_model}
    return {
        name: [round(count / asked, 4) for count, asked in zip(each, course.asked, strict=True)]
        for name, each in counts.items()
    }


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:,.0f} s" if value >= 10.0 else f"{value:.1f} s"


_WALL = ("who", "bad answers", "lost", "last bad or lost after", "back to it, ill", "slowest answer", "of")


def on_the_wall(*, rounds: int, folder: Path) -> Outcome:
    """All contenders on real processes, each ``rounds`` times; series go to the folder."""
    outcome, found = Outcome(name="incident_wall"), dict[str, list[Seen]]()
    for number in range(rounds):
        for seen in raced(seed=5 + number):
            found.setdefault(seen.name, []).append(seen)
            _say(f"{seen.name}: {seen.bad} bad answers, {seen.lost} lost")
    rows = [_wall_row(name, each) for name, each in sorted(found.items())]
    title = (
        f"real processes, {RATE_HZ:g} requests a second, all of the model's answers bad, watched for {WATCHED_S:g} s"
    )
    outcome.sheets.append(Sheet(title=title, columns=_WALL, rows=rows))
    outcome.notes.append(
        "the drill's stages (seconds, not minutes); the redeployment was ordered at the twentieth bad answer and pulls "
        "no image; the window is open for 5 s at a time; medians of the rounds"
    )
    series = {name: [seen.success(WATCHED_S, before_s=BEFORE_S) for seen in each] for name, each in found.items()}
    (folder / WALL).write_text(json.dumps(series), "utf-8")
    return outcome


def _wall_row(name: str, each: Sequence[Seen]) -> tuple[str, ...]:
    middle = statistics.median
    return (
        name,
        f"{middle(seen.bad for seen in each):g}",
        f"{middle(seen.lost for seen in each):g}",
        f"{middle(seen.last_bad_s for seen in each):.2f} s",
        f"{middle(seen.returns for seen in each):g}",
        f"{1000 * middle(seen.slowest_s for seen in each):.0f} ms",
        f"{middle(len(seen.replies) for seen in each):g}",
    )


def _say(words: str) -> None:
    print(f"  {words}", flush=True)
