"""The raw input tensors of dead batches, beside their letters: safetensors (loading runs no code), few and bounded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from failsoft.errors import ArtifactMissingError, DamagedArtifactError
from failsoft.training.letters.letter import DeadLetter

PAYLOADS_FOLDER = "payloads"
_ENDING = ".safetensors"


class Payloads:
    """One rank's shelf. The oldest go first, and what is larger than the whole shelf is not kept."""

    def __init__(
        self,
        letters_folder: Path,
        *,
        rank: int,
        max_count: int,
        max_bytes: int,
        on_lost: Callable[[str], object] = lambda _why: None,
    ) -> None:
        self.folder = letters_folder / PAYLOADS_FOLDER
        self._prefix = f"rank-{rank:04d}-"
        self._max_count = max_count
        self._max_bytes = max_bytes
        self.lost = 0
        """Payloads that the disk refused; the first one is told to ``on_lost``."""
        self._on_lost = on_lost

    @property
    def keeps(self) -> bool:
        """Whether anything is kept at all: gathering the tensors costs, too."""
        return self._max_count > 0 and self._max_bytes > 0

    def keep(self, position: int, tensors: Mapping[str, Tensor]) -> str | None:
        """Write the tensors of a batch, and make room for them first.

        Returns:
            The name to put into the letter; None when they are too large, or the disk refused (which is counted).
        """
        size = sum(tensor.nbytes for tensor in tensors.values())
        if not self.keeps or not tensors or size > self._max_bytes:
            return None
        name = f"{self._prefix}{position:012d}{_ENDING}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            return name if self._put(name, tensors) else None
        except (OSError, SafetensorError) as error:  # the second is how safetensors says that the disk refused
            self.lost += 1
            if self.lost == 1:
                self._on_lost(f"{error}; some inputs of dead batches are not kept, training goes on")
            return None

    def _put(self, name: str, tensors: Mapping[str, Tensor]) -> bool:
        """Whether the file, its header included, fits the shelf; it is there then."""
        for torn in self.folder.glob(f".{self._prefix}*{_ENDING}"):  # by a kill in mid-write
            torn.unlink()
        own = {key: tensor.detach().cpu().contiguous().clone() for key, tensor in tensors.items()}
        aside = self.folder / f".{name}"
        save_file(own, aside)
        size = aside.stat().st_size
        if size > self._max_bytes:
            aside.unlink()
            return False
        self._make_room(name, size)
        aside.replace(self.folder / name)
        return True

    def _make_room(self, name: str, size: int) -> None:
        (self.folder / name).unlink(missing_ok=True)  # a batch met again after a restart
        named = self.folder.glob(f"{self._prefix}*{_ENDING}")
        there = sorted(named, key=lambda path: (path.stat().st_mtime_ns, path.name))  # positions go back at a restart
        taken = sum(path.stat().st_size for path in there)
        while there and (len(there) >= self._max_count or taken + size > self._max_bytes):
            oldest = there.pop(0)
            taken -= oldest.stat().st_size
            oldest.unlink()


def read_payload(letters_folder: Path, letter: DeadLetter) -> dict[str, Tensor]:
    """The raw input tensors of a dead batch.

    Raises:
        ArtifactMissingError: none was kept, or newer ones took its place.
        DamagedArtifactError: it is there, but torn.
    """
    path = letters_folder / PAYLOADS_FOLDER / Path(letter.payload or "none").name  # a name, never a way out of here
    if letter.payload is None or not path.is_file():
        raise ArtifactMissingError(
            f"no payload of position {letter.position} is kept (any more); keep more with LetterPolicy.max_payloads"
        )
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise DamagedArtifactError(f"{path} can't be read ({error}); the letter itself still stands") from error
