"""Rules, dashboards, runbook and docs are held against the table of metrics, and against each other."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from failsoft.cli import main as _commands  # noqa: F401 -- importing it hangs the commands on the app
from failsoft.cli.app import app
from failsoft.health.metric import OTHER, Metric
from failsoft.health.metric_table import TABLE
from tests.conftest import ROOT

RULES = ROOT / "deploy" / "prometheus" / "failsoft.rules.yml"
RULE_TESTS = ROOT / "deploy" / "prometheus" / "tests" / "failsoft_test.yml"
DASHBOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
RUNBOOK = ROOT / "docs" / "runbook.md"
COMMAND = r"failsoft ((?:release|dlq|ckpt) [a-z]+|[a-z]+)"
RAYS_LABELS = {"WorkerId", "SessionName", "NodeAddress"}
SERIES = {name: metric for metric in TABLE.values() for name in metric.series}


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text("utf-8"))["groups"] for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def dashboard(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def queries(body: Any) -> Iterator[str]:
    """Everything in a dashboard that is asked of Prometheus."""
    for panel in body["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    yield from (one["expr"] for one in body["annotations"]["list"])
    yield from (one["query"]["query"] for one in body["templating"]["list"] if isinstance(one["query"], dict))


def flaws(query: str) -> list[str]:
    """Names that are no metric, labels that it has not, and values that it can't have."""
    found = [name for name in re.findall(r"\bray_\w+", query) if name not in SERIES]
    for name, inside in re.findall(r"\b(ray_\w+)\{([^}]*)\}", query):
        metric = SERIES.get(name)
        for label, values in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"([^\"]*)\"", inside):
            found += [] if metric is None else label_flaws(metric, label, values)
    return found


def label_flaws(metric: Metric, label: str, values: str) -> list[str]:
    known = {one.name: one for one in metric.all_labels}
    if label in RAYS_LABELS or label == "le":
        return []
    if label not in known:
        return [f"{metric.name} has no label {label}"]
    possible = {*known[label].values, OTHER} if known[label].values else None
    asked = [value for value in values.split("|") if not value.startswith("$")]
    return [] if possible is None else [f"{label} is never {value}" for value in asked if value not in possible]


def test_docs_list_the_metrics_of_the_code() -> None:
    made = CliRunner().invoke(app, ["metrics", "--markdown"])
    assert made.stdout == (ROOT / "docs" / "metrics.md").read_text("utf-8"), (
        "run: failsoft metrics --markdown > docs/metrics.md"
    )


def test_the_command_lists_every_metric_as_json_too() -> None:
    listed = json.loads(CliRunner().invoke(app, ["metrics", "--json"]).stdout)
    assert [one["name"] for one in listed] == [metric.exported for metric in TABLE.values()]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule.get("alert") or rule.get("record")))
def test_a_rule_asks_only_for_what_is_exported(rule: dict[str, Any]) -> None:
    assert flaws(rule["expr"]) == []


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: str(alert["alert"]))
def test_an_alert_says_what_it_is_how_grave_and_where_its_section_stands(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in {"info", "warning", "critical"}
    assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert alert["annotations"]["runbook_url"] == f"docs/runbook.md#{alert['alert'].lower()}"


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: str(alert["alert"]))
def test_the_runbook_says_of_each_alert_what_it_means_what_to_see_what_to_press_and_how_it_ends(
    alert: dict[str, Any],
) -> None:
    sections = re.split(r"^## ", RUNBOOK.read_text("utf-8"), flags=re.MULTILINE)
    (section,) = (section for section in sections if section.splitlines()[0] == alert["alert"])
    assert re.findall(r"^\*\*(\w+)\*\*:", section, flags=re.MULTILINE) == ["Means", "See", "Press", "Ends"]
    assert len(section.split()) < 150, "it is read at 02:15"


def test_the_runbook_has_no_section_of_an_alert_that_is_none() -> None:
    named = set(re.findall(r"^## (\w+)$", RUNBOOK.read_text("utf-8"), flags=re.MULTILINE))
    assert named == {alert["alert"] for alert in alerts()}


def test_every_command_in_the_runbook_is_one() -> None:
    said = re.findall(COMMAND, RUNBOOK.read_text("utf-8"))
    said = [command for command in said if command.split()[0] not in {"training", "serving"}]
    assert len(set(said)) > 10
    for command in sorted(set(said)):
        assert CliRunner().invoke(app, [*command.split(), "--help"]).exit_code == 0, command


def options_of(command: str) -> set[str]:
    found: Any = get_command(app)
    for word in command.split():
        found = found.commands[word]
    return {option for parameter in found.params for option in parameter.opts}


def test_every_option_in_the_runbook_is_one_of_its_command() -> None:
    spans = re.findall(r"`+([^`]+)`+", RUNBOOK.read_text("utf-8"))
    lines = [" ".join(span.split()) if "#" not in span else line for span in spans for line in span.split("\n")]
    told = {(c, o) for line in lines for c in re.findall(COMMAND, line) for o in re.findall(r"--[a-z-]+", line)}
    assert ("release advance", "--from") in told
    assert {(command, option) for command, option in told if option not in options_of(command)} == set()


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: str(path.stem))
def test_a_dashboard_asks_only_for_what_is_exported_or_recorded(path: Path) -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    for query in queries(dashboard(path)):
        assert flaws(query) == [], query
        assert set(re.findall(r"\bfailsoft:[\w:]+", query)) <= recorded, query


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: str(path.stem))
def test_a_dashboards_panels_have_ids_of_their_own_words_and_do_not_lie_upon_each_other(path: Path) -> None:
    panels = dashboard(path)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["title"] and (panel["type"] == "row" or panel["description"]) for panel in panels)
    places = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in panels
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]
    assert len(set(places)) == len(places)
    assert all(x < 24 for x, _ in places)


def test_every_metric_is_looked_at_somewhere() -> None:
    asked = " ".join([rule["expr"] for rule in rules()] + [q for path in DASHBOARDS for q in queries(dashboard(path))])
    unseen = {
        metric.name for metric in TABLE.values() if not re.search(rf"\bray_{metric.name}(_bucket|_sum)?\b", asked)
    }
    assert unseen == set()


def test_what_the_checks_are_blind_to_they_would_see() -> None:
    assert flaws("rate(ray_failsoft_nothing_total[5m])") == ["ray_failsoft_nothing_total"]
    assert flaws('ray_failsoft_serving_stage{colour="red"}') == ["failsoft_serving_stage has no label colour"]
    assert flaws('ray_failsoft_serving_stage{stage=~"canary|ramp_30"}') == ["stage is never ramp_30"]


def test_each_alert_is_tested_to_fire_and_to_be_quiet() -> None:
    fires, quiet = set[str](), set[str]()
    for group in yaml.safe_load(RULE_TESTS.read_text("utf-8"))["tests"]:
        for test in group["promql_expr_test"]:
            (name,) = re.findall(r'alertname="(\w+)"', test["expr"])
            (fires if test["exp_samples"] else quiet).add(name)
    named = {alert["alert"] for alert in alerts()}
    assert fires == named
    assert named - quiet == set()


def promtool(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed; Debian and Ubuntu: apt-get install prometheus")
    return subprocess.run([found, *arguments], cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def test_prometheus_reads_the_rules() -> None:
    done = promtool("check", "rules", str(RULES))
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_where_it_should_and_nowhere_else() -> None:
    done = promtool("test", "rules", str(RULE_TESTS))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_rule_that_was_spoiled_does_not_pass_its_tests(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    shutil.copy(RULE_TESTS, tmp_path / "tests")
    spoiled = RULES.read_text("utf-8").replace("progress_age_seconds) > 600", "progress_age_seconds) > 6000")
    (tmp_path / RULES.name).write_text(spoiled, "utf-8")
    done = promtool("test", "rules", f"tests/{RULE_TESTS.name}", cwd=tmp_path)
    assert done.returncode != 0
    assert "FailsoftNoProgress" in done.stdout + done.stderr
