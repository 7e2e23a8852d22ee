"""A supervised run of the intent and NER job on the Ray of $RAY_ADDRESS: ``python -m … CONFIG``, its config as JSON.

Prints the digest of the final state.
"""

from __future__ import annotations

import sys

from pydantic import TypeAdapter

from failsoft.errors import FailsoftError
from failsoft.training.survival.notice import Notice
from train_jobs.config import JobConfig
from train_jobs.entry import hearing, supervise_job


def main(config: JobConfig) -> int:
    notice = Notice()
    try:
        with hearing(notice):
            print(supervise_job(config, notice=notice, say=print).weights_digest)
    except FailsoftError as error:
        print(f"{type(error).__name__}: {error}")
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main(TypeAdapter(JobConfig).validate_json(sys.argv[1])))
