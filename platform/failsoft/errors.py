"""Every error that failsoft raises on purpose, in one tree.

::

    FailsoftError
    ├── ConfigError             a setting is impossible or unsafe; raised when the setting is made
    ├── CorpusError             input data is absent, malformed or not in the promised form
    ├── SampleError             one sample is not as it must be; training goes on without it
    ├── SourceError             where samples come from is out of reach, or does not answer in time
    ├── IllegalMoveError        a state machine was asked for a move that its table does not list
    ├── ArtifactError           something on disk
    │   ├── ArtifactMissingError      nothing (whole) is there
    │   ├── DamagedArtifactError      a file is torn, changed or absent: its digest does not fit
    │   └── IncompatibleArtifactError whole, but not for this code or this model
    │       └── UntrustedArtifactError   whole, but not made by a holder of the key
    ├── TrainingError
    │   ├── NoSnapshotError     a rollback was asked for before the first healthy snapshot
    │   ├── DropRateError       too many batches were refused: the data is ill, not the step
    │   ├── NoProgressError     restarts no longer move the run forward
    │   ├── LoaderError         not one sample can be loaded, or the workers that load them die again and again
    │   ├── DriverLostError     the process that held the run's workers is gone; another one takes its place
    │   ├── NoRayError          there is no Ray to connect to; a supervisor waits for one
    │   ├── StorageAwayError    what the run is written to was out of reach for too long; the same command goes on
    │   └── PreemptedError      the run was told to leave; what it had is saved, the same command goes on
    ├── ServingError
    │   ├── BadRequestError     the caller sent something that no model can answer
    │   ├── NotLoadedError      the release that is wanted is still being read; nothing is known of it yet
    │   ├── SaturatedError      more is asked at once than this process may hold; ask again in a moment
    │   ├── PlanStoreError      a routing plan could not be made durable, so it was not made true
    │   └── NotAuthorizedError  an operator route was called without its token
    └── GateError               a release did not pass its gates

Messages name the thing, the value, and the mend: what to do, or which command to run next. Where one was raised too
deep to know a command, ``failsoft`` adds that of its kind (``mend``). A command that ends in one of them exits with its
``exit_status``: 1, but for the two above, which a scheduler must not answer by trying again.
(2 is a command line that can't be parsed, and a release that ``failsoft gate`` refuses.)
"""

from __future__ import annotations

from typing import ClassVar


class FailsoftError(Exception):
    """Root of the tree: catch this to catch whatever failsoft raises on purpose."""

    exit_status: ClassVar[int] = 1
    """Of a command that ends in this error."""

    mend: ClassVar[str] = "failsoft doctor"
    """What to do next where the message does not say; each leaf may know better."""


class ConfigError(FailsoftError):
    """A setting is impossible or unsafe."""

    mend = "the command with --help, or failsoft settings"


class CorpusError(FailsoftError):
    """Input data is absent, malformed, or not in the promised form."""

    mend = "mend the data, or leave --data out for the embedded corpus"


class SampleError(FailsoftError):
    """One sample is not as it must be: malformed, or its digest does not fit. Says nothing of the others."""

    mend = "failsoft dlq ls RUN"


class SourceError(FailsoftError):
    """Where samples come from is out of reach, or does not answer in time. Says nothing of any sample."""

    mend = "failsoft dlq ls RUN"


class IllegalMoveError(FailsoftError):
    """A state machine was asked for a move that its table does not list."""

    mend = "failsoft status"


class ArtifactError(FailsoftError):
    """Something on disk is not as it must be."""


class ArtifactMissingError(ArtifactError):
    """Nothing whole is there."""

    mend = "failsoft runs, or failsoft release ls"


class DamagedArtifactError(ArtifactError):
    """A file is torn, changed or absent: its size or digest does not fit the manifest."""

    mend = "failsoft ckpt verify RUN, or failsoft release ls"


class IncompatibleArtifactError(ArtifactError):
    """Whole, but written for other code or another model."""

    mend = "train or publish it again with this version; what is there: failsoft release ls"


class UntrustedArtifactError(IncompatibleArtifactError):
    """Whole, but a signing key is set and nobody who has it made this."""

    mend = "failsoft release sign"


class TrainingError(FailsoftError):
    """The training run cannot go on by itself."""

    mend = "failsoft runs RUN"


class NoSnapshotError(TrainingError):
    """A rollback was asked for before the first healthy snapshot was taken."""


class DropRateError(TrainingError):
    """Too many batches were refused or samples skipped: the data is ill, not a step."""

    mend = "failsoft dlq ls RUN"

    exit_status = 3


class NoProgressError(TrainingError):
    """Neither rollbacks nor restarts move the run forward."""

    mend = "failsoft events --side training"

    exit_status = 4


class LoaderError(TrainingError):
    """Not one sample can be loaded, or the workers that load them die again and again."""

    mend = "failsoft dlq ls RUN"


def training_error(kind: str, diagnosis: str) -> TrainingError:
    """A diagnosis that came by way of the ledger, as the error that it was; a plain one where the kind is unknown."""
    kinds = {error.__name__: error for error in (NoSnapshotError, DropRateError, NoProgressError, LoaderError)}
    return kinds.get(kind, TrainingError)(diagnosis)


class DriverLostError(TrainingError):
    """The process that held the run's workers is gone (killed, out of memory, ended by a library), or Ray failed it."""

    mend = "the same command again, it goes on"


class NoRayError(TrainingError):
    """There is no Ray to connect to."""

    mend = "failsoft doctor"


class StorageAwayError(TrainingError):
    """What the run is written to was out of reach for longer than it may be."""

    mend = "failsoft doctor, then the same command again, it goes on"


class PreemptedError(TrainingError):
    """The run was told to leave: what it had is saved, and the same command goes on from there."""

    mend = "the same command again, it goes on"

    exit_status = 143
    """128 + SIGTERM: what schedulers expect of a process that was asked to end and did."""


class ServingError(FailsoftError):
    """The serving side cannot do what it was asked."""

    mend = "failsoft status"


class BadRequestError(ServingError):
    """The caller sent something that no model can answer."""

    mend = "the API's description, at /docs of the gateway"


class NotLoadedError(ServingError):
    """The release that is wanted is still being read: that says nothing about it, nor about any other."""


class SaturatedError(ServingError):
    """More is asked at once than this process may hold; asking again in a moment is right."""

    mend = "ask again in a moment"


class PlanStoreError(ServingError):
    """A routing plan could not be made durable, so it was not made true."""

    mend = "failsoft doctor"


class PlanOvertakenError(PlanStoreError):
    """Another controller has written the plan since this one read it: that one leads, and this one must end."""


class NotAuthorizedError(ServingError):
    """An operator route was called without its token."""

    mend = "failsoft doctor"


class GateError(FailsoftError):
    """A release did not pass its gates."""

    mend = "failsoft gate RELEASE"

    gates: tuple[str, ...] = ()
    """Names of those that it did not pass."""


def error_named(kind: str, message: str) -> FailsoftError:
    """An error of another process as the leaf that it was there; a plain training error where the name is no leaf."""
    kinds = [FailsoftError]
    for found in kinds:  # grows while it is walked: the whole tree, from the root
        kinds += found.__subclasses__()
    return next((leaf for leaf in kinds if leaf.__name__ == kind), TrainingError)(message)
