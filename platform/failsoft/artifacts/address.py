"""Addresses of remote stores, as text: what is one, and what of it may be shown. Loads no library of any store.

Secrets do not belong into an address, which is written into ledgers and messages: the libraries take them from the
environment (``AWS_ACCESS_KEY_ID``, a role, a key file).
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from failsoft.errors import ConfigError

_SECRET_OPTION = re.compile(r"key|secret|token|sig|pass|cred|auth", re.IGNORECASE)
_BEFORE_AT = re.compile(r"[^/@]*@")
_USER = re.compile(r"//[^/\s]*@")
_OPTION = re.compile(rf"([?&][^=&\s]*(?:{_SECRET_OPTION.pattern})[^=&\s]*=)[^&\s'\")]+", re.IGNORECASE)


def refuse_address(url: str) -> None:
    """Refuse what can't be the address of a remote store; knows no library and asks no server.

    Raises:
        ConfigError: it has no scheme, no place, or a secret in it.
    """
    parts = _parts(url)
    if not parts.scheme or "://" not in url or not (parts.netloc or parts.path.strip("/")):
        said = _BEFORE_AT.sub("…@", url.partition("?")[0])
        raise ConfigError(
            f"remote is {said!r}, no address; give one like s3://bucket/prefix, gs://bucket/prefix or file:///mnt/nfs/x"
        )
    if parts.password is not None:
        raise ConfigError(
            f"remote {shown(url)} has a secret in it, and would be written into ledgers; leave it out and set the "
            "variables of the store's library instead (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a role, a key file)"
        )


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # its own words quote what may be a part of a secret: one with a slash in it, say
        raise ConfigError(
            "remote is no address: what stands before its first slash is no host, or has no number behind a colon; "
            "give one like s3://bucket/prefix, and keep user and secret out of it"
        ) from None
    return parts


def shown(url: str) -> str:
    """The address without user, secret and options."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")


def hushed(said: str, url: str) -> str:
    """What a library says, without the secrets that its address has among its options (``?sig=…``, ``?token=…``)."""
    options = (option.partition("=") for option in urlsplit(url).query.split("&"))
    secrets = {value for name, _, value in options if value and _SECRET_OPTION.search(name)}
    for secret in sorted(secrets | {unquote(value) for value in secrets}, key=len, reverse=True):
        said = said.replace(secret, "…")
    return said


def without_secrets(text: str) -> str:
    """A text without the users, passwords and secret options of whatever addresses stand in it."""
    return _OPTION.sub(r"\1…", _USER.sub("//", text))


def below(url: str, *names: str) -> str:
    """The address of a folder below; options after a question mark stay at the end."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path="/".join((parts.path.rstrip("/"), *names))))
