"""Ed25519 keys of releases: one signs, where releases are made; some are trusted, wherever they are judged and served.

A trusted key is a line ``ed25519:PUBLIC what it is`` of a file that only its owner may write; there may be many, so
that a new key is trusted before it signs. A line that begins with ``retired`` names a key that is trusted no more. Keep
the file out of the home: who may write releases there must not say who is trusted.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from failsoft.errors import ConfigError

ALGORITHM = "ed25519"
_RETIRED = "retired"
_CONTEXT = b"failsoft artifact\n"
"""So that a signature that some other program made with the same key says nothing here."""


@dataclass(frozen=True, kw_only=True)
class TrustedKeys:
    """Public keys by number, as one file names them."""

    where: str
    trusted: Mapping[str, bytes]
    retired: Mapping[str, str]
    """Number, and what the line says of it."""

    def objection(self, signature: str, message: bytes) -> str:
        """What is wrong with a signature, in words after "it has"; empty: nothing."""
        algorithm, _, rest = signature.partition(":")
        number, _, value = rest.partition(":")
        if algorithm != ALGORITHM:
            return f"a signature of another kind ({algorithm[:20]!r})" if signature else "no signature"
        if number in self.retired:
            return f"a signature of key {number}, which is retired ({self.retired[number] or 'no reason given'})"
        if number not in self.trusted:
            return f"a signature of a key that is not trusted ({number[:20]!r})"
        return "" if _fits(self.trusted[number], value, message) else "a signature that does not fit"


@dataclass(frozen=True, kw_only=True)
class SigningKey:
    """The one key that signs."""

    private: Ed25519PrivateKey

    @property
    def public(self) -> bytes:
        """Its public half, 32 bytes."""
        return self.private.public_key().public_bytes_raw()

    def line(self, what: str) -> str:
        """The line that trusts it."""
        return f"{ALGORITHM}:{base64.b64encode(self.public).decode()} {what}".rstrip()

    def trusted(self, where: str) -> TrustedKeys:
        """Nobody but itself."""
        return TrustedKeys(where=where, trusted={number_of(self.public): self.public}, retired={})

    def sign(self, message: bytes) -> str:
        """Algorithm, number of the key, signature."""
        value = base64.b64encode(self.private.sign(_CONTEXT + message)).decode()
        return f"{ALGORITHM}:{number_of(self.public)}:{value}"


def number_of(public: bytes) -> str:
    """A short name of a public key: the first half of its SHA-256 that people still compare."""
    return sha256(public).hexdigest()[:16]


def read_trusted(path: Path) -> TrustedKeys:
    """The keys that a file trusts.

    Raises:
        ConfigError: it can't be read, others may write it, it trusts nothing, or a line is no key.
    """
    try:
        if path.stat().st_mode & 0o022:
            raise ConfigError(
                f"{path} can be written by other users, who could trust a key of theirs; chmod 644 {path}"
            )
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the file of trusted keys {path} can't be read: {error}") from error
    trusted, retired = dict[str, bytes](), dict[str, str]()
    for place, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        old = words[0] == _RETIRED
        public = _public(words[1] if old and len(words) > 1 else words[0], f"{path}, line {place}")
        if old:
            retired[number_of(public)] = " ".join(words[2:])
        else:
            trusted[number_of(public)] = public
    if not trusted.keys() - retired.keys():
        raise ConfigError(f"{path} trusts no key; add the line that 'failsoft release new-key' prints")
    return TrustedKeys(where=str(path), trusted=trusted, retired=retired)


def read_signing(path: Path) -> SigningKey:
    """The private key in a PEM file without a passphrase.

    Raises:
        ConfigError: it can't be read, others may read it, or it is no such key.
    """
    try:
        if path.stat().st_mode & 0o077:
            raise ConfigError(f"the signing key {path} can be read by other users; run: chmod 600 {path}")
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"the signing key {path} can't be read: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{path} is a {type(key).__name__}; make one with: failsoft release new-key FILE")
    return SigningKey(private=key)


def make_signing(path: Path) -> SigningKey:
    """A new key in a new file that only its owner can read.

    Raises:
        ConfigError: the file is there.
        OSError: it can't be written.
    """
    key = Ed25519PrivateKey.generate()
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError as error:
        raise ConfigError(f"{path} is there already; a key is never written over: name another file") from error
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
            out.flush()
            os.fsync(out.fileno())  # what is signed by it is of no use to anybody when it is lost
    except BaseException:  # a part of a key would be in the way of the next; re-raised
        path.unlink(missing_ok=True)
        raise
    return SigningKey(private=key)


def _public(word: str, where: str) -> bytes:
    algorithm, _, value = word.partition(":")
    try:
        public = base64.b64decode(value, validate=True)
    except ValueError:
        public = b""
    if algorithm != ALGORITHM or len(public) != 32:
        raise ConfigError(f"{where}: {word[:60]!r} is no key; a line is 'ed25519:PUBLIC what it is', or '# a comment'")
    return public


def _fits(public: bytes, value: str, message: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(base64.b64decode(value, validate=True), _CONTEXT + message)
    except (InvalidSignature, ValueError):
        return False
    return True
