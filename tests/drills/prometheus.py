"""A real Prometheus on loopback, with the rules of the checkout, stopped by its own process id."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.conftest import ROOT
from tests.drills.cluster import child, free_ports, wait_until

RULES = ROOT / "deploy" / "prometheus" / "failsoft.rules.yml"
EVERY = "2s"


class Prometheus:
    """Asks it."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The series that a query gives now."""
        answer = httpx.get(f"{self._url}/api/v1/query", params={"query": query}, timeout=10).json()
        assert answer["status"] == "success", answer
        return list(answer["data"]["result"])

    def value(self, query: str) -> float | None:
        """Of a query with one answer; None while there is none."""
        found = self.ask(query)
        assert len(found) <= 1, found
        return float(found[0]["value"][1]) if found else None

    def firing(self) -> dict[str, dict[str, Any]]:
        """Alerts that fire, by name."""
        alerts = httpx.get(f"{self._url}/api/v1/alerts", timeout=10).json()["data"]["alerts"]
        return {one["labels"]["alertname"]: one for one in alerts if one["state"] == "firing"}

    def is_up(self) -> bool:
        try:
            return httpx.get(f"{self._url}/-/ready", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False


def hasty_rules() -> str:
    """The same rules, but nothing is waited for: a drill has no half hour."""
    return re.sub(r"\bfor: \w+", "for: 0s", RULES.read_text("utf-8"))


@contextmanager
def prometheus(scrapes: str, folder: Path) -> Iterator[Prometheus]:
    """For the time of the block; skips the test where there is none.

    Args:
        scrapes: the address that it scrapes every other second.
        folder: gets configuration, data and log.
    """
    found = shutil.which("prometheus")
    if found is None:
        pytest.skip("prometheus is not installed; Debian and Ubuntu: apt-get install prometheus")
    folder.mkdir()
    (folder / "rules.yml").write_text(hasty_rules(), "utf-8")
    config = {
        "global": {"scrape_interval": EVERY, "evaluation_interval": EVERY},
        "rule_files": [str(folder / "rules.yml")],
        "scrape_configs": [{"job_name": "ray", "static_configs": [{"targets": [scrapes]}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config), "utf-8")
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = [found, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    command.append(f"--web.listen-address={address}")
    one = Prometheus(f"http://{address}")
    with child(command, environment=dict(os.environ), log=folder / "prometheus.log"):
        wait_until(one.is_up, what="prometheus", timeout_s=30)
        yield one
