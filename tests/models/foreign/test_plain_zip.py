"""An archive that is read in two ways is judged by nobody: what torch would load must be what was looked at."""

from __future__ import annotations

import io
import pickle
import struct
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from failsoft.errors import IncompatibleArtifactError
from failsoft.models.foreign.exported_safety import refuse_code
from failsoft.models.foreign.plain_zip import plain_zip
from failsoft.models.foreign.script_safety import refuse_script

END, ENTRY = b"PK\x05\x06", b"PK\x01\x02"


def archive(files: Mapping[str, bytes]) -> bytes:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as written:
        for name, content in files.items():
            written.writestr(name, content)
    return body.getvalue()


def parts(whole: bytes) -> tuple[bytes, bytes, int]:
    """Files, list of files, and how many they are."""
    end = whole.rfind(END)
    count, _, begin = struct.unpack_from("<HLL", whole, end + 10)
    return whole[:begin], whole[begin:end], count


def shifted(listed: bytes, by: int) -> bytes:
    """The same list, of files that lie elsewhere."""
    moved, place = bytearray(listed), 0
    while (place := listed.find(ENTRY, place)) >= 0:
        (where,) = struct.unpack_from("<L", moved, place + 42)
        struct.pack_into("<L", moved, place + 42, where + by)
        place += 4
    return bytes(moved)


def end_64(count: int, size: int, begin: int) -> bytes:
    return struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, begin)


def by_a_longer_form(seen: bytes, loaded: bytes) -> bytes:
    """Python reads what lies before the end, torch what the locator names."""
    files, listed, count = parts(loaded)
    head = files + listed + end_64(count, len(listed), len(files))
    hidden, begin = len(files + listed), len(head)
    files, listed, count = parts(seen)
    head += files
    head += shifted(listed, begin) + end_64(count, len(listed), len(head))
    head += struct.pack("<4sLQL", b"PK\x06\x07", 0, hidden, 1)
    return head + struct.pack("<4s4H2LH", END, 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)


def by_what_stands_before(seen: bytes, loaded: bytes) -> bytes:
    """Python takes all places to be relative to where it finds the list."""
    files, listed, count = parts(loaded)
    own, shown, _ = parts(seen)
    assert (len(shown), count) == (len(listed), parts(seen)[2]), "both lists are as long"
    files += b"\0" * max(0, len(own) - len(files))  # or places would be below 0
    begin = len(files)
    off = len(files + listed + own) - begin
    head = files + listed + own + shifted(shown, len(files + listed) - off)
    return head + struct.pack("<4s4H2LH", END, 0, 0, count, count, len(listed), begin, 0)


TWICE: dict[str, Callable[[bytes, bytes], bytes]] = {
    "a longer form": by_a_longer_form,
    "something before": by_what_stands_before,
}


@pytest.mark.parametrize("how", TWICE)
def test_an_archive_with_a_second_list_for_torch_is_refused(tmp_path: Path, how: str) -> None:
    path = tmp_path / "m.zip"
    one, other = (archive({"m/version": b"3", "m/a": body}) for body in (b"seen", b"other, and longer"))
    path.write_bytes(TWICE[how](one, other))
    with zipfile.ZipFile(path) as read:
        assert read.read("m/a") == b"seen"
    assert torch._C.PyTorchFileReader(str(path)).get_record("a") == b"other, and longer", "or nothing is proved"
    with pytest.raises(zipfile.BadZipFile), plain_zip(path):
        pass


class Spy:
    """A pickle that leaves a mark when somebody reads it."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


class Plus(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1


def files_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as read:
        return {info.filename: read.read(info) for info in read.infolist()}


@pytest.mark.parametrize("how", TWICE)
def test_a_program_that_shows_harmless_files_and_loads_others_is_refused(tmp_path: Path, how: str) -> None:
    path, mark = tmp_path / "model.pt2", tmp_path / "ran"
    torch.export.save(torch.export.export(Plus(), (torch.ones(2),)), path)
    refuse_code(path)
    harmless = files_of(path)
    hostile = dict(harmless)
    hostile["model/data/sample_inputs/model.pt"] = pickle.dumps(Spy(mark), protocol=2)
    path.write_bytes(TWICE[how](archive(harmless), archive(hostile)))
    with pytest.raises(IncompatibleArtifactError, match="can't be read as an exported program"):
        refuse_code(path)
    with pytest.raises(RuntimeError):  # torch reads the pickle, and falls over what comes out
        torch.export.load(path)
    assert mark.exists(), "or this test would prove nothing"


def script(path: Path) -> dict[str, bytes]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch about its own TorchScript
        torch.jit.save(torch.jit.script(Plus()), path)
    return files_of(path)


def test_code_under_a_name_in_capitals_is_judged_for_torch_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "model.ts"
    files = script(path)
    refuse_script(path)
    (code,) = (name for name in files if name.endswith(".py"))
    shouted = {name: body for name, body in files.items() if not name.startswith(code)}
    body = files[code].replace(b"torch.add(x, 1)", b"torch.from_file('/etc/hosts', False, 4)")
    path.write_bytes(archive(shouted | {f"model/{code.removeprefix('model/').upper()}": body}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert "from_file" in str(torch.jit.load(path).graph), "or this test would prove nothing"
    with pytest.raises(IncompatibleArtifactError, match="opens files"):
        refuse_script(path)


ODD: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "a comment": (lambda body: body[:-2] + b"\x01\x00x", "not where the file ends"),
    "something after": (lambda body: body + b"x" * 40, "not where the file ends"),
    "something before": (lambda body: b"MZ" + body, "something stands before"),
    "two names": (lambda _: archive({"m/a": b"", "m/A": b""}), "two files of one name"),
    "another count": (lambda body: body[:-14] + b"\x01\x00\x01\x00" + body[-10:], "not as many files as it says"),
    "a name that ends early": (lambda body: body.replace(b"m/version", b"m/ver\x00ion"), "no name of a file"),
    "no archive": (lambda _: b"PK\x03\x04" + b"x" * 200, "not a zip file"),
    "nothing": (lambda _: b"", "not a zip file"),
}


@pytest.mark.parametrize("name", ODD)
def test_an_archive_that_is_not_as_torch_writes_it_is_refused(tmp_path: Path, name: str) -> None:
    change, why = ODD[name]
    path = tmp_path / "m.zip"
    path.write_bytes(archive({"m/version": b"3", "m/a": b"1"}))
    with plain_zip(path) as read:
        assert len(read.infolist()) == 2
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(zipfile.BadZipFile, match=why), plain_zip(path):
        pass


def test_packed_files_that_unpack_to_a_disk_full_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as written:
        written.writestr("m/a", b"0" * 100_000)
    monkeypatch.setattr("failsoft.models.foreign.plain_zip._MOST_UNPACKED", 99_999)
    with pytest.raises(zipfile.BadZipFile, match="packed files are larger than 99999 bytes"), plain_zip(path):
        pass
