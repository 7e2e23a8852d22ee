"""Where failsoft keeps its files: ``--home`` or ``$FAILSOFT_HOME``, else ``.failsoft`` in the working folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from failsoft.artifacts.store import ArtifactStore
from failsoft.artifacts.tokens import TokenPlace
from failsoft.errors import ConfigError
from failsoft.health.clock import Clock

HOME_VARIABLE = "FAILSOFT_HOME"
TOKEN_VARIABLE = "FAILSOFT_TOKEN"  # noqa: S105 -- the variable's name, no secret
ALERT_TOKEN_VARIABLE = "FAILSOFT_ALERT_TOKEN"  # noqa: S105 -- the same
LABEL_TOKEN_VARIABLE = "FAILSOFT_LABEL_TOKEN"  # noqa: S105 -- likewise
VIEWER_TOKEN_VARIABLE = "FAILSOFT_VIEWER_TOKEN"  # noqa: S105 -- likewise


@dataclass(frozen=True, kw_only=True)
class Home:
    """Paths below one root. Nothing is made before it is needed."""

    root: Path

    @classmethod
    def find(cls, given: Path | None = None) -> Home:
        """The given root, else the environment's, else ``.failsoft`` here; always absolute."""
        root = given or Path(os.environ.get(HOME_VARIABLE) or ".failsoft")
        return cls(root=root.expanduser().absolute())

    @property
    def ledger(self) -> Path:
        """The event ledger that both sides write."""
        return self.root / "ledger.jsonl"

    @property
    def serving(self) -> Path:
        """Durable state of the rollout controller."""
        return self.root / "serving"

    @property
    def faults(self) -> Path:
        """Marks of planned faults; drills only."""
        return self.root / "faults"

    @property
    def runs(self) -> Path:
        """One folder for each training run."""
        return self.root / "runs"

    def run(self, name: str) -> Path:
        """The folder of one training run.

        Raises:
            ConfigError: the name leads elsewhere: out of the folder of runs, or to that folder itself.
        """
        refuse_run_name(name)
        return self.runs / name

    def checkpoints(self, run: str, clock: Clock) -> ArtifactStore:
        """The disk checkpoints of one run."""
        return ArtifactStore(self.run(run) / "checkpoints", clock, kind="checkpoint")

    def releases(self, clock: Clock) -> ArtifactStore:
        """The published releases."""
        return ArtifactStore(self.root / "releases", clock, kind="release")

    @property
    def candidates(self) -> Path:
        """Releases in the making, and those that failed their gates, for whoever wants to know why."""
        return self.root / "candidates"

    def operator_token(self) -> str:
        """The secret for operator routes: ``$FAILSOFT_TOKEN``, else a file that only its owner may read.

        The file is made when it is absent. Of several the first, which is what our commands send.

        Raises:
            ConfigError: the file can be read by others, what is there is too short to be a token, or only its digest.
        """
        return self.operator_tokens().plain

    def operator_tokens(self) -> TokenPlace:
        """All secrets that open operator routes, as :meth:`operator_token`; for whoever compares."""
        return self._tokens("operator", TOKEN_VARIABLE)

    def label_token(self) -> str:
        """The secret of whoever sends right labels later and may do nothing else; as :meth:`operator_token`.

        It is in ``$FAILSOFT_LABEL_TOKEN``, else in a file of its own.
        """
        return self.label_tokens().plain

    def label_tokens(self) -> TokenPlace:
        """All of those, for whoever compares."""
        return self._tokens("label", LABEL_TOKEN_VARIABLE)

    def alert_token(self) -> str:
        """The secret of whoever sends alerts, and may order what ``alerts.toml`` allows; as :meth:`operator_token`.

        It is in ``$FAILSOFT_ALERT_TOKEN``, else in a file of its own.
        """
        return self.alert_tokens().plain

    def alert_tokens(self) -> TokenPlace:
        """All of those, for whoever compares."""
        return self._tokens("alert", ALERT_TOKEN_VARIABLE)

    def viewer_token(self) -> str:
        """The secret of whoever reads the console and may do nothing else; as :meth:`operator_token`.

        It is in ``$FAILSOFT_VIEWER_TOKEN``, else in a file of its own.
        """
        return self.viewer_tokens().plain

    def viewer_tokens(self) -> TokenPlace:
        """All of those, for whoever compares."""
        return self._tokens("viewer", VIEWER_TOKEN_VARIABLE)

    def reader_token(self) -> str | None:
        """What reads a gateway that strangers may not read: the viewer's secret, else the operator's.

        None where neither is there in the open; unlike the others this makes no file.

        Raises:
            ConfigError: a file can be read by others, or what is there is no token.
        """
        for whose, variable in (("viewer", VIEWER_TOKEN_VARIABLE), ("operator", TOKEN_VARIABLE)):
            if os.environ.get(variable) or (self.root / f"{whose}-token").exists():
                place = self._tokens(whose, variable)
                if place.is_plain:
                    return place.plain
        return None

    def _tokens(self, whose: str, variable: str) -> TokenPlace:
        return TokenPlace(whose=whose, variable=variable, path=self.root / f"{whose}-token")


def refuse_run_name(name: str) -> None:
    """Raise a ConfigError for what is no name of a folder below the runs."""
    if not name or name.startswith(".") or any(sign in name for sign in "/\\\0"):
        raise ConfigError(f"run is {name!r}; it names a folder, use letters, digits, dashes and underscores")


def run_names(runs: Path) -> list[str]:
    """Names of the runs there, sorted; hidden folders, which other programs leave anywhere, are none."""
    if not runs.is_dir():
        return []
    return sorted(path.name for path in runs.iterdir() if path.is_dir() and not path.name.startswith("."))
