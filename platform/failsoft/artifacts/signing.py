"""Releases that only holders of a key can make: digests find damage, a signature also finds who may not write.

Where ``$FAILSOFT_SIGNING_KEY`` is set, each release that is published is signed (HMAC-SHA256 over kind, name and digest
of its manifest, and so over every byte), and none without a fitting signature is used. Set the same key wherever
releases are made, judged and served: who can write the folder but has no key can neither change a release, nor make
one, nor put an old one in another's place. Without the variable nothing is signed and nothing is asked for.
"""

from __future__ import annotations

import hmac
import os

from failsoft.errors import ConfigError, UntrustedArtifactError

KEY_VARIABLE = "FAILSOFT_SIGNING_KEY"
_KINDS = ("release",)
_SHORTEST = 32
_ALGORITHM = "hmac-sha256"


def signature_of(kind: str, name: str, digest: str) -> str:
    """The signature of an artifact of this name; empty for kinds that have none, and where no key is set.

    Raises:
        ConfigError: the key is too short to be one.
    """
    key = _key() if kind in _KINDS else b""
    if not key:
        return ""
    message = _bytes("\n".join((kind, name, digest)))
    return f"{_ALGORITHM}:{hmac.digest(key, message, 'sha256').hex()}"


def refuse_unsigned(kind: str, name: str, digest: str, *, signature: str, where: str) -> None:
    """Refuse what no holder of the key has made under this name, where a key is set.

    Raises:
        UntrustedArtifactError: it has no signature, or one that does not fit.
        ConfigError: the key is too short to be one.
    """
    wanted = signature_of(kind, name, digest)
    if not wanted or hmac.compare_digest(_bytes(signature), wanted.encode()):
        return
    found = "a signature that does not fit" if signature else "no signature"
    raise UntrustedArtifactError(
        f"{where} has {found}, and ${KEY_VARIABLE} asks for one: who wrote it under this name does not have the key. "
        "Publish it again where the key is set, or unset the variable"
    )


def _bytes(text: str) -> bytes:
    """Of any text: who writes a manifest or names a folder may put half a sign there, which is no UTF-8."""
    return text.encode("utf-8", "surrogatepass")


def _key() -> bytes:
    given = os.environ.get(KEY_VARIABLE, "").strip()
    if given and len(given) < _SHORTEST:
        raise ConfigError(f"{KEY_VARIABLE} has {len(given)} characters; use at least {_SHORTEST}, or unset it")
    return given.encode()
