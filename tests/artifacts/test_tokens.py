"""Tokens as digests, two at a time, and a file that holds as soon as it is changed."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from failsoft.artifacts.home import TOKEN_VARIABLE, Home
from failsoft.artifacts.tokens import MOST_TOKENS, TokenPlace, Tokens, digest_of
from failsoft.errors import ConfigError

OLD, NEW = "old-token-of-some-length", "new-token-of-some-length"


@pytest.fixture(autouse=True)
def _no_token_of_whoever_runs_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


def put(path: Path, text: str) -> None:
    aside = path.with_suffix(".new")
    aside.write_text(text)
    aside.chmod(0o600)
    aside.replace(path)


def test_several_open_and_the_first_that_is_there_in_the_open_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "operator-token"
    put(path, f"# the new one first\nsha256:{digest_of(NEW).hex()}\n{OLD}\n")
    place = Home(root=tmp_path).operator_tokens()
    assert place.digests() == (digest_of(NEW), digest_of(OLD))
    assert place.plain == OLD


def test_where_only_digests_are_the_token_can_not_be_read_off_and_a_command_says_what_to_do(tmp_path: Path) -> None:
    put(tmp_path / "operator-token", f"sha256:{digest_of(NEW).hex()}")
    place = Home(root=tmp_path).operator_tokens()
    assert place.digests() == (digest_of(NEW),)
    with pytest.raises(ConfigError, match=r"give the token itself in \$FAILSOFT_TOKEN"):
        Home(root=tmp_path).operator_token()


def test_a_changed_file_holds_at_once(tmp_path: Path) -> None:
    path = tmp_path / "operator-token"
    put(path, OLD)
    place = Home(root=tmp_path).operator_tokens()
    put(path, f"{NEW}\n{OLD}")
    assert place.digests() == (digest_of(NEW), digest_of(OLD))
    put(path, NEW)
    assert place.digests() == (digest_of(NEW),)


def test_while_the_storage_is_away_those_that_were_known_hold_and_no_new_one_is_made(tmp_path: Path) -> None:
    path = tmp_path / "operator-token"
    put(path, OLD)
    place = Home(root=tmp_path).operator_tokens()
    path.unlink()
    assert place.digests() == (digest_of(OLD),)
    assert not path.exists()


@pytest.mark.parametrize("text", ["", "short", "sha256:12"])
def test_a_file_that_holds_no_token_any_more_opens_to_nobody(tmp_path: Path, text: str) -> None:
    path = tmp_path / "operator-token"
    put(path, OLD)
    place = Home(root=tmp_path).operator_tokens()
    put(path, text)
    assert place.digests() == ()
    put(path, NEW)
    assert place.digests() == (digest_of(NEW),)


def test_a_token_that_was_taken_back_opens_no_longer_than_storage_refuses_to_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "operator-token"
    put(path, OLD)
    place = Home(root=tmp_path).operator_tokens()
    put(path, NEW)
    with monkeypatch.context() as refusing:
        for how in ("read_bytes", "read_text"):
            refusing.setattr(Path, how, refuse)
        assert place.digests() == (digest_of(OLD),)
    assert place.digests() == (digest_of(NEW),)


def refuse(*_: object, **__: object) -> str:
    raise OSError(errno.EIO, "the disk")


def test_a_file_that_others_may_read_opens_to_nobody_until_that_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "operator-token"
    put(path, OLD)
    place = Home(root=tmp_path).operator_tokens()
    path.chmod(0o644)
    assert place.digests() == ()
    path.chmod(0o600)
    assert place.digests() == (digest_of(OLD),)


def test_the_environment_may_hold_two_for_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, f"{NEW} {OLD}")
    place = Home(root=tmp_path).operator_tokens()
    assert (place.plain, len(place.digests())) == (NEW, 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "0 characters"),
        ("sixteen-letters- short", "5 characters"),
        ("sha256:zz", "no SHA-256"),
        (" ".join(f"token-of-some-length-{number}" for number in range(MOST_TOKENS + 1)), "9 operator tokens"),
    ],
)
def test_what_is_no_token_is_refused_without_being_repeated(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        Tokens.read(text, whose="operator", where="/home/operator-token")
    assert not any(word in str(refused.value) for word in text.split() if len(word) > 6 and ":" not in word)


def test_a_look_that_hangs_holds_up_one_request_and_not_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "operator-token"
    put(path, OLD)
    place = TokenPlace(whose="operator", variable=TOKEN_VARIABLE, path=path)
    looks, may_go = threading.Event(), threading.Event()
    stat = Path.stat

    def hangs(of: Path, **options: bool) -> object:
        looks.set()
        assert may_go.wait(30.0)
        return stat(of, **options)

    monkeypatch.setattr(Path, "stat", hangs)
    hung = threading.Thread(target=place.digests)
    hung.start()
    assert looks.wait(30.0)
    assert place.digests() == (digest_of(OLD),)
    may_go.set()
    hung.join(30.0)
    assert not hung.is_alive()


def test_neither_a_token_nor_its_digest_is_in_the_words_of_what_holds_them(tmp_path: Path) -> None:
    put(tmp_path / "operator-token", OLD)
    assert OLD not in repr(Tokens.read(OLD, whose="operator", where="here")) + repr(
        Home(root=tmp_path).operator_tokens()
    )
