"""Finds out what kind of corpus lies in a folder, and reads it."""

from __future__ import annotations

from pathlib import Path

from failsoft.errors import CorpusError
from failsoft.models.clinc import DATA_FILE, read_clinc
from failsoft.models.corpus import Corpus
from failsoft.models.embedded import embedded_corpus
from failsoft.models.snips import TEST_FILES, TRAIN_FILES, read_snips


def load_corpus(path: Path | None, *, seed: int = 0) -> Corpus:
    """The corpus in a folder, or the embedded one without a folder.

    Args:
        path: a folder with published files of SNIPS or CLINC150; None for the generated corpus.
        seed: of the generated corpus, or of the choice of a validation split where none is published.

    Raises:
        CorpusError: the folder is absent, or holds no corpus that can be read.
    """
    if path is None:
        return embedded_corpus(seed=seed)
    if not path.is_dir():
        raise CorpusError(f"{path} is not a folder; give the folder that holds the corpus files")
    if (path / DATA_FILE).exists():
        return read_clinc(path)
    if any(path.glob(TRAIN_FILES)) or any(path.glob(TEST_FILES)):
        return read_snips(path, seed=seed)
    raise CorpusError(
        f"{path} holds no corpus: looked for {TRAIN_FILES} and {TEST_FILES} (SNIPS), and for {DATA_FILE} (CLINC150)"
    )
