"""Releases are signed where they are made, and believed by those who hold nothing but public keys."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from failsoft.artifacts.manifest import read_manifest
from failsoft.artifacts.resign import sign_again
from failsoft.artifacts.signing import ACCEPTED_VARIABLE, FILE_VARIABLE, KEY_VARIABLE, TRUSTED_VARIABLE
from failsoft.artifacts.signing_keys import SigningKey, make_signing, number_of, read_signing, read_trusted
from failsoft.artifacts.store import ArtifactStore, Fill
from failsoft.errors import ArtifactMissingError, ConfigError, DamagedArtifactError, UntrustedArtifactError
from failsoft.health.clock import ManualClock


def holding(said: str) -> Fill:
    def fill(folder: Path) -> None:
        (folder / "weights").write_text(said)

    return fill


class Place:
    """A store, keys, and what this process is told of them."""

    def __init__(self, folder: Path, told: pytest.MonkeyPatch) -> None:
        self.folder, self.told = folder, told
        for variable in (KEY_VARIABLE, ACCEPTED_VARIABLE, FILE_VARIABLE, TRUSTED_VARIABLE):
            told.delenv(variable, raising=False)
        self.store = ArtifactStore(folder / "releases", ManualClock(), kind="release")
        self.trusted = folder / "trusted"

    def key(self, name: str) -> SigningKey:
        """A new one in a file of that name."""
        return make_signing(self.folder / name)

    def signs(self, name: str | None) -> None:
        """From now on the key of that file signs; None: this is where releases are served."""
        if name is None:
            self.told.delenv(FILE_VARIABLE, raising=False)
        else:
            self.told.setenv(FILE_VARIABLE, str(self.folder / name))

    def trust(self, *lines: str) -> None:
        """From now on these lines say who is trusted."""
        self.trusted.write_text("# whom we trust\n\n" + "\n".join(lines) + "\n")
        self.trusted.chmod(0o644)
        self.told.setenv(TRUSTED_VARIABLE, str(self.trusted))

    def publish(self, name: str = "r-1") -> None:
        self.store.publish(name, holding(name), meta={})


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


def test_a_server_that_holds_only_the_public_key_uses_what_was_signed_and_can_sign_nothing(place: Place) -> None:
    key = place.key("one")
    place.signs("one")
    place.publish()
    place.signs(None)
    place.trust(key.line("the build machine"))
    assert place.store.open("r-1").manifest.signature.startswith(f"ed25519:{number_of(key.public)}:")
    place.publish("r-2")
    with pytest.raises(UntrustedArtifactError, match="no signature"):
        place.store.open("r-2")
    with pytest.raises(ConfigError, match="no key signs here"):
        sign_again(place.store, "r-2", vouch=True)


def test_a_changed_release_one_under_another_name_and_one_of_a_strange_key_are_refused(place: Place) -> None:
    place.trust(place.key("one").line("ours"))
    place.key("strange")
    place.signs("one")
    place.publish()
    shutil.copytree(place.store.root / "r-1", place.store.root / "r-2")
    with pytest.raises(UntrustedArtifactError, match="does not fit"):
        place.store.open("r-2")
    place.signs("strange")
    place.publish("r-3")
    with pytest.raises(UntrustedArtifactError, match="not trusted"):
        place.store.open("r-3")
    path = place.store.root / "r-1" / "manifest.json"
    path.write_text(path.read_text().replace("ed25519:", "hmac-sha256:"))
    with pytest.raises(UntrustedArtifactError, match="another kind"):
        place.store.open("r-1")


def test_a_key_is_changed_without_a_moment_in_which_a_release_is_refused(place: Place) -> None:
    old, new = place.key("old"), place.key("new")
    place.signs("old")
    place.trust(old.line("2025"))
    place.publish()
    digest = place.store.open("r-1").manifest.digest
    place.trust(old.line("2025"), new.line("2026"))
    place.signs("new")
    place.store.open("r-1")
    assert sign_again(place.store, "r-1")
    assert not sign_again(place.store, "r-1"), "it is so already"
    place.trust(f"retired {old.line('its laptop was lost')}", new.line("2026"))
    assert place.store.open("r-1").manifest.digest == digest


def test_a_release_of_a_retired_key_is_refused_with_its_reason_and_mended_by_whoever_vouches(place: Place) -> None:
    old, new = place.key("old"), place.key("new")
    place.signs("old")
    place.publish()
    place.signs("new")
    place.trust(f"retired {old.line('its laptop was lost')}", old.line("a line left behind"), new.line(""))
    with pytest.raises(UntrustedArtifactError, match=r"retired \(its laptop was lost\).*release sign r-1 --vouch"):
        place.store.open("r-1")
    with pytest.raises(UntrustedArtifactError):
        sign_again(place.store, "r-1")
    assert sign_again(place.store, "r-1", vouch=True)
    place.store.open("r-1")


def test_nobody_signs_what_is_damaged_of_another_kind_or_not_there(place: Place) -> None:
    place.publish()
    place.trust(place.key("one").line(""))
    place.signs("one")
    (place.store.root / "r-1" / "weights").write_text("r-2")
    with pytest.raises(DamagedArtifactError):
        sign_again(place.store, "r-1", vouch=True)
    with pytest.raises(ArtifactMissingError):
        sign_again(place.store, "r-9")
    other = ArtifactStore(place.store.root, ManualClock(), kind="checkpoint")
    other.publish("c-1", holding("x"), meta={})
    with pytest.raises(DamagedArtifactError, match="not a release"):
        sign_again(place.store, "c-1", vouch=True)


def test_a_key_that_signs_but_is_not_trusted_here_makes_nothing_unusable(place: Place) -> None:
    good = place.key("good")
    place.trust(good.line(""))
    place.signs("good")
    place.publish()
    place.key("other")
    place.signs("other")
    with pytest.raises(UntrustedArtifactError, match="what the key here signs"):
        sign_again(place.store, "r-1")
    place.store.open("r-1")


def test_where_one_key_signs_and_none_is_named_its_own_signatures_are_asked_for(place: Place) -> None:
    place.publish("unsigned")
    place.key("one")
    place.signs("one")
    place.publish()
    assert [artifact.name for artifact in place.store.listing()] == ["r-1"]


def test_a_secret_of_all_can_be_changed_too(place: Place) -> None:
    place.told.setenv(KEY_VARIABLE, "o" * 32)
    place.publish()
    place.told.setenv(KEY_VARIABLE, "n" * 32)
    with pytest.raises(UntrustedArtifactError):
        place.store.open("r-1")
    place.told.setenv(ACCEPTED_VARIABLE, f"{'x' * 40} {'o' * 32}")
    place.store.open("r-1")
    assert sign_again(place.store, "r-1")
    place.told.delenv(ACCEPTED_VARIABLE)
    place.store.open("r-1")
    place.told.delenv(KEY_VARIABLE)
    place.told.setenv(ACCEPTED_VARIABLE, "short")
    with pytest.raises(ConfigError, match="at least 32"):
        place.store.open("r-1")


def test_whoever_may_write_releases_but_has_no_key_gains_nothing_by_an_old_secret(place: Place) -> None:
    """Where trusted keys are named, no secret is asked, whatever else is set."""
    place.told.setenv(KEY_VARIABLE, "o" * 32)
    place.publish()
    place.trust(place.key("one").line(""))
    with pytest.raises(UntrustedArtifactError, match="another kind"):
        place.store.open("r-1")


def test_files_that_others_could_change_or_read_are_refused_with_the_mend(place: Place) -> None:
    place.trust(place.key("one").line(""))
    place.trusted.chmod(0o666)
    with pytest.raises(ConfigError, match="chmod 644"):
        read_trusted(place.trusted)
    (place.folder / "one").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_signing(place.folder / "one")
    with pytest.raises(ConfigError, match="never written over"):
        make_signing(place.folder / "one")
    assert (make_signing(place.folder / "two"), (place.folder / "two").stat().st_mode & 0o777)[1] == 0o600


@pytest.mark.parametrize("lines", ["", "# nobody", "ed25519:short", "rsa:AAAA", "retired", "ed25519:\N{SNOWMAN}"])
def test_a_file_that_trusts_nobody_or_says_nonsense_is_refused_and_nothing_is_used(place: Place, lines: str) -> None:
    place.publish()
    place.trust(lines)
    with pytest.raises(ConfigError, match=r"trusts no key|is no key"):
        read_trusted(place.trusted)
    with pytest.raises(ConfigError):
        place.store.open("r-1")


@pytest.mark.parametrize("content", [b"", b"\xff", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_a_signing_key_that_is_none_is_refused_in_words(place: Place, content: bytes) -> None:
    path = place.folder / "none"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="can't be read"):
        read_signing(path)


@pytest.mark.parametrize(
    "signature", ["", "ed25519", "ed25519:", "ed25519:x:y", "\ud800", "ed25519:{number}:%%", "ed25519:{number}:"]
)
def test_no_text_in_place_of_a_signature_is_taken_or_ends_in_another_error(place: Place, signature: str) -> None:
    key = place.key("one")
    place.trust(key.line(""))
    said = signature.replace("{number}", number_of(key.public))
    assert read_trusted(place.trusted).objection(said, b"anything")


def test_a_disk_that_fills_up_leaves_no_part_of_a_key_which_would_be_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "key.pem"

    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            make_signing(path)
    assert list(tmp_path.iterdir()) == []
    make_signing(path)
    with pytest.raises(ConfigError, match="is there already"):
        make_signing(path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_without_any_key_a_manifest_is_read_as_ever(place: Place) -> None:
    place.publish()
    assert read_manifest(place.store.root / "r-1").signature == ""
