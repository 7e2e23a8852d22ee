"""Releases that only holders of a key can make: digests find damage, a signature also finds who may not write.

Who can write the folder but has no key can neither change a release, nor make one, nor put an old one in another's
place: a signature covers kind, name and digest of the manifest, and so every byte. Two ways:

- Ed25519: ``$FAILSOFT_SIGNING_KEY_FILE`` where releases are made, ``$FAILSOFT_TRUSTED_KEYS`` (a file of public keys,
  :mod:`failsoft.artifacts.signing_keys`) wherever they are judged and served. Who breaks in there can sign nothing.
- One secret for all, HMAC-SHA256: ``$FAILSOFT_SIGNING_KEY`` signs and is accepted, ``$FAILSOFT_ACCEPTED_KEYS`` (old
  ones, with blanks between) are accepted.

Where any of the four is set, no release without a fitting signature is used; where trusted keys are named, none but
theirs fits. Without them nothing is signed and nothing is asked for. A key is changed in four steps: accept the new one
everywhere, sign with it, ``failsoft release sign --all``, retire the old one.
"""

from __future__ import annotations

import hmac
import os
from pathlib import Path
from typing import TYPE_CHECKING

from failsoft.errors import ConfigError, UntrustedArtifactError

if TYPE_CHECKING:
    from failsoft.artifacts.signing_keys import SigningKey, TrustedKeys

KEY_VARIABLE = "FAILSOFT_SIGNING_KEY"
ACCEPTED_VARIABLE = "FAILSOFT_ACCEPTED_KEYS"
FILE_VARIABLE = "FAILSOFT_SIGNING_KEY_FILE"
TRUSTED_VARIABLE = "FAILSOFT_TRUSTED_KEYS"
_KINDS = ("release",)
_SHORTEST = 32
_HMAC = "hmac-sha256"


def signature_of(kind: str, name: str, digest: str) -> str:
    """The signature of an artifact of this name; empty for kinds that have none, and where no key signs.

    Raises:
        ConfigError: the key is too short to be one, or can't be read.
    """
    if kind not in _KINDS:
        return ""
    file, secret, message = _path(FILE_VARIABLE), _secrets(KEY_VARIABLE, parts=1), _message(kind, name, digest)
    if file is not None:
        return _signing(file).sign(message)
    return _hmac(secret[0], message) if secret else ""


def refuse_unsigned(kind: str, name: str, digest: str, *, signature: str, where: str) -> None:
    """Refuse what no holder of an accepted key has made under this name, where keys are set.

    Raises:
        UntrustedArtifactError: it has no signature, one that does not fit, or one of a key that is retired.
        ConfigError: a key is too short to be one, or can't be read.
    """
    if kind not in _KINDS:
        return
    message, trusted = _message(kind, name, digest), _trusted()
    if trusted is not None:
        objection, asked = trusted.objection(signature, message), f"trusted are those of {trusted.where}"
    else:
        objection, asked = _objection_by_secret(signature, message), f"${KEY_VARIABLE} asks for one"
    if objection:
        raise UntrustedArtifactError(
            f"{where} has {objection}, and {asked}: nobody with such a key made it under this name. If you know who "
            f"did, run where an accepted key signs: failsoft release sign {name} --vouch --why REASON; else publish it "
            "again"
        )


def _objection_by_secret(signature: str, message: bytes) -> str:
    secrets = [*_secrets(KEY_VARIABLE, parts=1), *_secrets(ACCEPTED_VARIABLE)]
    if not secrets or any(hmac.compare_digest(_bytes(signature), _hmac(one, message).encode()) for one in secrets):
        return ""
    return "a signature that does not fit" if signature else "no signature"


def _trusted() -> TrustedKeys | None:
    """The keys that are named; where only one signs, that one."""
    named, signing = _path(TRUSTED_VARIABLE), _path(FILE_VARIABLE)
    if named is None:
        return None if signing is None else _signing(signing).trusted(str(signing))
    from failsoft.artifacts.signing_keys import read_trusted  # noqa: PLC0415 -- 60 ms, only where there are keys

    return read_trusted(named)


def _signing(file: Path) -> SigningKey:
    from failsoft.artifacts.signing_keys import read_signing  # noqa: PLC0415 -- as above

    return read_signing(file)


def _message(kind: str, name: str, digest: str) -> bytes:
    return _bytes("\n".join((kind, name, digest)))


def _hmac(secret: bytes, message: bytes) -> str:
    return f"{_HMAC}:{hmac.digest(secret, message, 'sha256').hex()}"


def _bytes(text: str) -> bytes:
    """Of any text: who writes a manifest or names a folder may put half a sign there, which is no UTF-8."""
    return text.encode("utf-8", "surrogatepass")


def _path(variable: str) -> Path | None:
    given = os.environ.get(variable, "").strip()
    return Path(given) if given else None


def _secrets(variable: str, *, parts: int | None = None) -> list[bytes]:
    given = os.environ.get(variable, "").strip()
    found = ([given] if parts == 1 else given.split()) if given else []
    for secret in found:
        if len(secret) < _SHORTEST:
            raise ConfigError(f"{variable} has {len(secret)} characters; use at least {_SHORTEST}, or unset it")
    return [secret.encode() for secret in found]
