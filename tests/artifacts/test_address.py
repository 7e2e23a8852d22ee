"""What of an address may be shown: not what is secret in it, whoever says it."""

from __future__ import annotations

import pytest

from failsoft.artifacts.address import hushed, refuse_address, without_secrets
from failsoft.artifacts.remote_place import place_of
from failsoft.errors import ConfigError

SIGNED = "abfs://c@acct.dfs.core.windows.net/x?sv=2024&sig=se%2Fcret&region=eu"


@pytest.mark.parametrize("said", ["https://acct/c?sig=se%2Fcret", "no such signature: se/cret", "se/cret, se%2Fcret"])
def test_a_library_that_quotes_its_address_is_quoted_without_the_secret(said: str) -> None:
    assert "cret" not in hushed(said, SIGNED)


def test_what_is_no_secret_is_said() -> None:
    assert hushed("2024, eu: acct is away", SIGNED) == "2024, eu: acct is away"
    assert hushed("away", "s3://b/p") == "away"
    assert hushed("away", "s3://b/p?token=&key") == "away"


def test_a_mistyped_address_is_refused_without_its_secret() -> None:
    with pytest.raises(ConfigError, match="no address") as refused:
        refuse_address("s3:/AKIA:se/cret@bucket/p?token=other")
    assert "cret" not in str(refused.value)
    assert "other" not in str(refused.value)


def test_a_store_that_nothing_speaks_to_is_refused_without_the_secret_in_its_address() -> None:
    with pytest.raises(ConfigError, match="nothing here speaks to file://host/x") as refused:
        place_of("file://host/x?token=sesame")
    assert "sesame" not in str(refused.value)


def test_a_text_is_shown_without_the_secrets_of_addresses_in_it() -> None:
    said = "GET https://me:p@ss@host:5000/a?x=1&X-Amz-Signature=abc&token=d failed (mlflow:http://key@host/b) at 2@3"
    shown = "GET https://host:5000/a?x=1&X-Amz-Signature=…&token=… failed (mlflow:http://host/b) at 2@3"
    assert without_secrets(said) == shown
    assert without_secrets("runs/night: 3 // 2, see a@b") == "runs/night: 3 // 2, see a@b"


@pytest.mark.parametrize(
    "url", ["s3://AKIA:se/same@bucket/p", "s3://[AKIA:sesame@bucket", "s3://AKIA:sesame/@b", "s3://bucket:sesame/p"]
)
def test_an_address_whose_parts_can_not_be_told_is_refused_without_a_word_of_it(url: str) -> None:
    """A secret key of AWS holds a slash in every other case, and then stands where a path would."""
    with pytest.raises(ConfigError) as refused:
        place_of(url)
    assert "same" not in str(refused.value)
    assert "AKIA" not in str(refused.value)


@pytest.mark.parametrize("url", ["hdfs://namenode:8020/runs", "s3://bucket/a:b@c", "file:///mnt/x", "memory://x"])
def test_an_address_with_a_port_or_odd_signs_in_its_path_is_one(url: str) -> None:
    refuse_address(url)
