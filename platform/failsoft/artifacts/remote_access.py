"""Whether a remote place can be written, read and cleaned, asked once and before anybody relies on it."""

from __future__ import annotations

import threading

from failsoft.artifacts.remote_place import Place

_NAME = ".failsoft-access"
_WORDS = b"written and removed by a look at whether this place can be used"


def access_trouble(place: Place, *, patience_s: float = 30.0) -> str | None:
    """Write a small object there, read it back and remove it; why that failed, or None.

    Args:
        place: where; made if it is a folder that is absent.
        patience_s: how long the store may take. Libraries try again for minutes where nobody answers, and can't be
            called off, so such a try is left to a thread that ends with the process.
    """
    said: list[str | None] = []
    trying = threading.Thread(target=lambda: said.append(_tried(place)), name="failsoft-remote-access", daemon=True)
    trying.start()
    trying.join(patience_s)
    return said[0] if said else f"no answer within {patience_s:g} s"


def _tried(place: Place) -> str | None:
    path = f"{place.root}/{_NAME}"
    try:
        if place.has_folders:
            place.filesystem.create_dir(place.root, recursive=True)
        with place.filesystem.open_output_stream(path) as out:
            out.write(_WORDS)
        with place.filesystem.open_input_stream(path) as back:
            whole = back.read() == _WORDS
        place.filesystem.delete_file(path)
    except Exception as error:  # noqa: BLE001 -- each file system raises what it likes; it is said in words
        return " ".join(f"{type(error).__name__}: {error}".split())[:600]
    return None if whole else "it gives other bytes back than were written"
