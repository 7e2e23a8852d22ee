"""Whatever lies in a file that we read: a value, or one of our errors in words. Never another error, never a hang."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from failsoft.errors import FailsoftError
from tests.security.odd_bytes import EXTREMES
from tests.security.readers import READERS, Reader


def attempt(reader: Reader, content: bytes) -> None:
    """Anything but a value or one of our errors goes up, and so fails the test."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, reader.file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        with suppress(FailsoftError):
            reader.read(Path(folder))


@pytest.mark.parametrize("reader", READERS, ids=str)
def test_any_bytes_are_read_or_refused_in_words(reader: Reader) -> None:
    @settings(max_examples=20, deadline=5_000, database=None, suppress_health_check=list(HealthCheck))
    @given(content=reader.content)
    def reads(content: bytes) -> None:
        attempt(reader, content)

    reads()


@pytest.mark.parametrize("extreme", EXTREMES)
@pytest.mark.parametrize("reader", READERS, ids=str)
def test_what_has_no_bottom_or_no_end_is_refused_like_anything_else(reader: Reader, extreme: str) -> None:
    attempt(reader, EXTREMES[extreme])
