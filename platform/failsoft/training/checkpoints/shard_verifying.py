"""Every byte of a sharded checkpoint is verified before it is gone on from: each rank reads its share of the files."""

from __future__ import annotations

import errno
import json

from failsoft.artifacts.manifest import verify_file, verify_names
from failsoft.artifacts.store import Artifact
from failsoft.errors import ArtifactMissingError, DamagedArtifactError
from failsoft.training.checkpoints.inspection import is_in_shards
from failsoft.training.ranks import Ranks

_DAMAGE = frozenset({errno.ENOENT, errno.EIO})
"""Reasons not to read a file that do say something about the file."""


def damage_in_shards(artifact: Artifact, ranks: Ranks) -> str:
    """What any rank found wrong; "" when every file is as it was written, or when it is not sharded.

    All ranks call it together, for the same checkpoint.

    Raises:
        ArtifactMissingError: on all ranks: one of them can't read it just now, which is no damage.
    """
    if not is_in_shards(artifact.manifest):
        return ""
    told = [json.loads(text) for text in ranks.gather(json.dumps(_checked(artifact, ranks)))]
    away = [f"rank {rank}: {why}" for rank, (_damage, why) in enumerate(told) if why]
    if away:
        raise ArtifactMissingError(
            f"not all ranks can read {artifact.name} ({'; '.join(away)}); put the run's folder on storage that all "
            "nodes share, or mend its mount, and start again"
        )
    return "; ".join(damage for damage, _ in told if damage)


def _checked(artifact: Artifact, ranks: Ranks) -> tuple[str, str]:
    """Damage in this rank's share, and why it can't be told."""
    try:
        if ranks.rank == 0:
            verify_names(artifact.path, artifact.manifest)
        for name in sorted(artifact.manifest.files)[ranks.rank :: ranks.world]:
            verify_file(artifact.path, artifact.manifest, name)
    except DamagedArtifactError as error:
        cause = error.__cause__
        passing = isinstance(cause, OSError) and cause.errno not in _DAMAGE
        return ("", str(error)) if passing else (str(error), "")
    return "", ""
