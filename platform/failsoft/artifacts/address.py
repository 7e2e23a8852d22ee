"""Addresses of remote stores, as text: what is one, and what of it may be shown. Loads no library of any store.

Secrets do not belong into an address, which is written into ledgers and messages: the libraries take them from the
environment (``AWS_ACCESS_KEY_ID``, a role, a key file).
"""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from failsoft.errors import ConfigError


def refuse_address(url: str) -> None:
    """Refuse what can't be the address of a remote store; knows no library and asks no server.

    Raises:
        ConfigError: it has no scheme, no place, or a secret in it.
    """
    parts = urlsplit(url)
    if not parts.scheme or "://" not in url or not (parts.netloc or parts.path.strip("/")):
        raise ConfigError(
            f"remote is {url!r}, no address; give one like s3://bucket/prefix, gs://bucket/prefix or file:///mnt/nfs/x"
        )
    if parts.password is not None:
        raise ConfigError(
            f"remote {shown(url)} has a secret in it, and would be written into ledgers; leave it out and set the "
            "variables of the store's library instead (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a role, a key file)"
        )


def shown(url: str) -> str:
    """The address without user, secret and options."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")


def below(url: str, *names: str) -> str:
    """The address of a folder below; options after a question mark stay at the end."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path="/".join((parts.path.rstrip("/"), *names))))
