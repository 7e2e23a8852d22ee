"""Meets a dead batch again, on the state that it met, and says what was to blame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from failsoft.errors import ArtifactError
from failsoft.health.ledger import Event
from failsoft.training.letters.blame import Blame, blame
from failsoft.training.letters.case import Case
from failsoft.training.letters.diagnosis import Cause, Diagnosis, Evidence, Seen, diagnose
from failsoft.training.letters.fingerprints import device_of
from failsoft.training.letters.history import changes_since, history_of
from failsoft.training.letters.letter import DeadLetter
from failsoft.training.letters.letterbook import LetterBook
from failsoft.training.letters.precision import Precision, computes_low
from failsoft.training.letters.rebuild import Rebuild
from failsoft.training.letters.rewalk import Reached, Walker, Watch
from failsoft.training.letters.trials import Limits, Share, Trial, Trials
from failsoft.training.rng import capture_rng, restore_rng
from failsoft.training.spikes import SpikePolicy, spike_limit

_REPEATS = 3
_PEERS = 4
_PEERS_FOR_SPIKES = 12


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What meeting the batch again showed."""

    position: int
    letters: tuple[DeadLetter, ...]
    diagnosis: Diagnosis
    evidence: Evidence
    trials: tuple[Trial, ...]
    blamed: Blame
    """Samples that are bad alone."""
    reached: str
    """How the state was reached, and whether it is the one that the batch met."""
    notes: tuple[str, ...] = ()

    def as_data(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "position": self.position,
            "reason": self.letters[0].reason,
            "cause": self.diagnosis.cause,
            "why": self.diagnosis.why,
            "state_met": self.evidence.state_met,
            "draws_met": self.evidence.draws_met,
            "reached": self.reached,
            "trials": [trial.as_data() for trial in self.trials],
            "blamed_samples": list(self.blamed.samples),
            "every_sample_looked_at": self.blamed.complete,
            "notes": list(self.notes),
        }


@dataclass(kw_only=True)
class Replayer:
    """Replays dead batches of one run. Changes nothing on disk; the generators are as before when it is done."""

    rebuild: Rebuild
    book: LetterBook
    events: Iterable[Event] = ()
    """The run's own events in the ledger, for its rollbacks."""
    fresh_seeds: Sequence[int] = (101, 102)
    """Seeds of the fresh weights."""
    max_walk: int = 10_000
    """Batches that may be walked again to reach the state."""
    watch: Watch = lambda _done, _total: None
    say: Callable[[str], object] = lambda _what: None
    """Told what is done next."""

    def replay(self, position: int) -> Replay:
        """Meet the batch at ``position`` again, with as many threads as its process had.

        Raises:
            ConfigError: no letter is of this position.
        """
        case = Case(rebuild=self.rebuild, book=self.book, letters=self.book.of_batch(position))
        before, threads = capture_rng(), torch.get_num_threads()
        torch.set_num_threads(case.first.threads or threads)
        try:
            return self._judge(case)
        finally:
            torch.set_num_threads(threads)
            restore_rng(before)

    def _judge(self, case: Case) -> Replay:
        hearing = _Hearing(case=case, say=self.say)
        reached = self._reach(case, hearing.notes)
        evidence = hearing.on_state(reached)
        evidence = hearing.on_others(evidence, self.fresh_seeds)
        evidence = replace(evidence, changed=changes_since(self.events, case.letters, self.rebuild.identity))
        found = diagnose(evidence)
        return Replay(
            position=case.position,
            letters=case.letters,
            diagnosis=found,
            evidence=evidence,
            trials=tuple(hearing.trials),
            blamed=Blame() if evidence.spoils_all else self._blame(case, found.cause, reached, hearing),
            reached=_in_words(reached, evidence.state_met),
            notes=tuple(hearing.notes),
        )

    def _reach(self, case: Case, notes: list[str]) -> Reached | None:
        self.say("walking to the state that it met")
        walker = Walker(
            rebuild=self.rebuild,
            history=history_of(self.book, self.events),
            world=case.world,
            max_walk=self.max_walk,
            watch=self.watch,
        )
        try:
            reached = walker.to(case.position)
        except ArtifactError as error:
            notes.append(str(error))
            return None
        notes += reached.notes
        return reached

    def _blame(self, case: Case, cause: Cause, reached: Reached | None, hearing: _Hearing) -> Blame:
        bad = any(trial.seen is Seen.BAD for trial in hearing.trials)
        if not bad or cause in {Cause.HARDWARE, Cause.STATE}:
            return Blame()
        self.say("which samples are bad alone")
        if reached is None:
            model = self.rebuild.parts(self.fresh_seeds[0]).state.model
            return blame(Trials(loss=self.rebuild.loss), model, case.whole)
        limits = case.limits() if case.is_spike else None
        return blame(hearing.setting(reached), reached.parts.state.model, case.whole, limits=limits)


@dataclass(kw_only=True)
class _Hearing:
    """Tries one batch in every way, and takes down what was seen."""

    case: Case
    say: Callable[[str], object]
    trials: list[Trial] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.case.overtaken:
            self.notes.append("the run met this batch again after a restart, and did not refuse it then")

    def on_state(self, reached: Reached | None) -> Evidence:
        """As trained, several times, and in higher precision; nothing is known where no state was reached."""
        case = self.case
        if reached is None:
            return Evidence(alleged=case.alleged)
        model, trials, limits = reached.parts.state.model, self.setting(reached), case.limits()
        shares = case.shares(device_of(model), lambda rank: restore_rng(reached.generators[rank]))
        met = case.met(model)
        where = "the state that it met" if met else "the nearest state"
        names = [f"as trained on {where}, {number} of {_REPEATS}" for number in range(1, _REPEATS + 1)]
        return Evidence(
            alleged=case.alleged,
            state_met=met,
            draws_met=case.draws_met(model),
            as_trained=tuple(self._seen(trials.run(name, model, shares, limits=limits)) for name in names),
            trained_low=trials.loss_scale != 1.0
            or computes_low(model, trials.autocast_dtype)
            or trials.computes_low(model, shares),
            single=self._lifted(trials, Precision.SINGLE, model, shares, where),
            double=self._lifted(trials, Precision.DOUBLE, model, shares, where),
            peers=tuple(trials.run("peer", model, peer, limits=limits).seen for peer in case.peers(_PEERS)),
        )

    def on_others(self, evidence: Evidence, seeds: Sequence[int]) -> Evidence:
        """In float32 on other weights: what is bad on all weights lies in the data, unless other data is bad, too."""
        fresh = tuple(self._on_fresh_weights(seed) for seed in seeds)
        bad = all(seen is Seen.BAD for seen in fresh)
        peers = [self._peers_on_fresh_weights(seed) for seed in seeds if bad and not self.case.is_spike]
        return replace(evidence, fresh=fresh, fresh_peers=tuple(seen for some in peers for seen in some))

    def _peers_on_fresh_weights(self, seed: int) -> list[Seen]:
        model, trials = self.case.rebuild.parts(seed).state.model, Trials(loss=self.case.rebuild.loss)
        self.say(f"other batches on fresh weights of seed {seed}")
        return [trials.run("peer", model, peer, how=Precision.SINGLE).seen for peer in self.case.peers(_PEERS)]

    def _on_fresh_weights(self, seed: int) -> Seen:
        model = self.case.rebuild.parts(seed).state.model
        trials = Trials(loss=self.case.rebuild.loss)
        name, limits = f"float32 on fresh weights of seed {seed}", self._fresh_limits(trials, model)
        shares = self.case.shares(device_of(model))
        return self._seen(trials.run(name, model, shares, how=Precision.SINGLE, limits=limits))

    def setting(self, reached: Reached) -> Trials:
        """The precision and loss scale of training."""
        guard = reached.parts.guard
        scaler = guard.scaler if guard.scaler is not None and guard.scaler.is_enabled() else None
        return Trials(
            loss=self.case.rebuild.loss,
            autocast_dtype=guard.policy.autocast_dtype,
            loss_scale=1.0 if scaler is None else scaler.get_scale(),
        )

    def _lifted(self, trials: Trials, how: Precision, model: nn.Module, shares: Sequence[Share], where: str) -> Seen:
        return self._seen(trials.run(f"{how} on {where}", model, shares, how=how, limits=self.case.limits()))

    def _seen(self, trial: Trial) -> Seen:
        self.say(trial.name)
        self.trials.append(trial)
        return trial.seen

    def _fresh_limits(self, trials: Trials, model: nn.Module) -> Limits:
        """What is a spike among other batches on these weights; the run's own limit says nothing about them."""
        if not self.case.is_spike:
            return Limits()
        peers = [trials.run("peer", model, peer, how=Precision.SINGLE) for peer in self.case.peers(_PEERS_FOR_SPIKES)]
        values = [value for peer in peers if (value := peer.grad_norm if self.case.by_norm else peer.loss) is not None]
        if len(values) < 2:
            return Limits()
        limit = spike_limit(values, SpikePolicy())
        return Limits(grad_norm=limit) if self.case.by_norm else Limits(loss=limit)


def _in_words(reached: Reached | None, met: bool | None) -> str:  # noqa: FBT001 -- the answer is the datum
    if reached is None:
        return "no state of the run could be reached"
    way = f"from {reached.started_from} through {reached.walked} updates to position {reached.position}"
    if met is None:
        return f"{way}; the letter has no digest of the model, so whether this is the state that it met is unknown"
    return f"{way}: " + ("the state that it met, bit for bit" if met else "not the state that it met, but the nearest")
