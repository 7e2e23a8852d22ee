"""Whether a remote place can be written, read and cleaned, asked once and before anybody relies on it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from failsoft.artifacts.remote_place import Place
from failsoft.errors import ConfigError

_NAME = ".failsoft-access"
_WORDS = b"written and removed by a look at whether this place can be used"


def access_trouble(find: Callable[[], Place], *, patience_s: float = 30.0) -> str | None:
    """Write a small object there, read it back and remove it; why that failed, or None.

    Args:
        find: the place, which is made if it is a folder that is absent. To find it, some libraries ask the store.
        patience_s: how long the store may take. Libraries try again for minutes where nobody answers, and can't be
            called off, so such a try is left to a thread that ends with the process.

    Raises:
        ConfigError: there is no such place at all: no address, or nothing here speaks to such a store.
    """
    said: list[str | ConfigError | None] = []
    trying = threading.Thread(target=lambda: said.append(_tried(find)), name="failsoft-remote-access", daemon=True)
    trying.start()
    trying.join(patience_s)
    found = said[0] if said else f"no answer within {patience_s:g} s"
    if isinstance(found, ConfigError):
        raise found
    return found


def _tried(find: Callable[[], Place]) -> str | ConfigError | None:
    try:
        place = find()
        path = f"{place.root}/{_NAME}"
        if place.has_folders:
            place.filesystem.create_dir(place.root, recursive=True)
        with place.filesystem.open_output_stream(path) as out:
            out.write(_WORDS)
        with place.filesystem.open_input_stream(path) as back:
            whole = back.read() == _WORDS
        place.filesystem.delete_file(path)
    except ConfigError as error:
        return error
    except Exception as error:  # noqa: BLE001 -- each file system raises what it likes; it is said in words
        return " ".join(f"{type(error).__name__}: {error}".split())[:600]
    return None if whole else "it gives other bytes back than were written"
