"""What an app is asked to do, as its gateways know it: no torch, nothing of Ray."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from failsoft.artifacts.bundle import Bundle
from failsoft.errors import ConfigError, FailsoftError
from failsoft.serving.fallback.ladder import FallbackLadder, LadderPolicy
from failsoft.serving.intake.inputs import Inputs, Texts
from failsoft.serving.quality.kinds import quality_named
from failsoft.serving.seam import Loader, PredictorSource, Quality, Rung, RungSource
from failsoft.serving.web.forms import AnswerForm


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is asked, how scores are judged, who answers instead, and how an answer looks."""

    rungs: RungSource
    """Makes the fallback of a release, from the best rung to the surest. Runs in the gateway process."""
    quality: Quality | str = "classification"
    """What scores mean and which are credible; a name is one of :data:`failsoft.serving.quality.kinds.KINDS`."""
    inputs: Inputs = field(default_factory=Texts)
    answers: AnswerForm = field(default_factory=AnswerForm)
    ladder_policy: LadderPolicy = field(default_factory=LadderPolicy)

    def __post_init__(self) -> None:
        """Refuse an unknown kind of quality, and a rung maker that is none."""
        _ = self.kind
        if not (isinstance(self.rungs, str) or callable(self.rungs)):
            raise ConfigError(
                f"rungs are {self.rungs!r}; give a function of a bundle, or its 'package.module:function'"
            )

    @property
    def kind(self) -> Quality:
        """The quality kind."""
        return quality_named(self.quality) if isinstance(self.quality, str) else self.quality

    def ladder_of(self, bundle: Bundle) -> FallbackLadder:
        """The fallback ladder of a release, its last rung proven.

        Raises:
            ConfigError: the rungs can't be made, or the last one does not answer everything in the app's own form.
            ArtifactError: the release lacks what a rung needs.
        """
        return FallbackLadder(
            _rungs_of(self.rungs, bundle),
            policy=self.ladder_policy,
            probes=self.inputs.probes,
            fits=self.answers.check,
        )


@dataclass(frozen=True, kw_only=True)
class AppSpec(Task):
    """A whole app: the task, and the model that does it."""

    predictor: PredictorSource
    """A class with ``load(bundle)``, a function of a bundle, or ``"package.module:Name"``. Only model replicas get it,
    so that what it imports stays out of the gateways."""
    resources: Mapping[str, Any] = field(default_factory=lambda: {"num_cpus": 0.1})
    """Of each model replica, as Ray's actor options: ``{"num_gpus": 1}``. By default replicas share the cores of a
    laptop."""

    def loader(self) -> Loader:
        """What makes a predictor of a bundle, fit to travel to a replica.

        Raises:
            ConfigError: it is neither a class with ``load`` nor a function, nor a path.
        """
        if isinstance(self.predictor, str):
            return _Imported(self.predictor)
        return _loader(self.predictor, named=repr(self.predictor))

    def task(self) -> Task:
        """The same without the predictor."""
        return Task(
            rungs=self.rungs,
            quality=self.quality,
            inputs=self.inputs,
            answers=self.answers,
            ladder_policy=self.ladder_policy,
        )


class _Imported:
    """Imports a predictor's class or function where it is called, in a model replica."""

    def __init__(self, path: str) -> None:
        _split(path)
        self._path = path

    def __call__(self, bundle: Bundle) -> Any:
        return _loader(imported(self._path), named=self._path)(bundle)


def app_named(path: str) -> AppSpec:
    """The app that ``"package.module:config"`` names.

    Raises:
        ConfigError: there is none.
    """
    found = imported(path)
    if not isinstance(found, AppSpec):
        raise ConfigError(f"{path} is a {type(found).__name__}; name an AppSpec, as docs/own_model.py has one")
    return found


def imported(path: str) -> Any:
    """What ``"package.module:name"`` names.

    Raises:
        ConfigError: there is no such module or name, or the module itself raises.
    """
    module, name = _split(path)
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{path} can't be imported here: {error}; it must be on the path of every replica") from error
    except Exception as error:  # anybody's module
        raise ConfigError(f"{module} raises when it is imported: {error.__class__.__name__}: {error}") from error


def _split(path: str) -> tuple[str, str]:
    module, colon, name = path.partition(":")
    if not (module and colon and name):
        raise ConfigError(f"{path!r} names nothing to import; write 'package.module:Name'")
    return module, name


def _loader(found: Any, *, named: str) -> Loader:
    load: Loader | None = getattr(found, "load", None)
    if callable(load):
        return load
    if callable(found) and not isinstance(found, type):
        made: Loader = found
        return made
    raise ConfigError(f"{named} makes no predictor: give a class with load(bundle), or a function of a bundle")


def _rungs_of(source: RungSource, bundle: Bundle) -> Sequence[Rung]:
    maker = imported(source) if isinstance(source, str) else source
    try:
        rungs = tuple(maker(bundle))
    except FailsoftError:
        raise
    except Exception as error:  # anybody's code: said in words, a gateway keeps the rungs that it has
        raise ConfigError(
            f"the rungs of release {bundle.name} can't be made: {error.__class__.__name__}: {error}; give a function "
            "of a bundle that returns a list of rungs, and look whether the release has every file that it reads"
        ) from error
    for rung in rungs:
        if not (isinstance(getattr(rung, "name", None), str) and callable(getattr(rung, "answer", None))):
            raise ConfigError(f"{rung!r} is no rung; it needs a name and an answer(item)")
    return rungs
