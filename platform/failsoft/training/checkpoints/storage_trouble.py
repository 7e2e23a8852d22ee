"""Trouble with either place of the checkpoints, told as a degradation that begins, gets worse and ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from failsoft.health.ledger import Ledger
from failsoft.training.checkpoints.writer_news import News, NewsKind
from failsoft.training.degradation import Degradation, DegradationKind, Degradations

_LOCAL, _REMOTE = "local", "remote"
_PLACES: Mapping[NewsKind, str] = {
    NewsKind.PUBLISHED: _LOCAL,
    NewsKind.FAILED: _LOCAL,
    NewsKind.REPLACED: _LOCAL,
    NewsKind.MIRRORED: _REMOTE,
    NewsKind.MIRROR_FAILED: _REMOTE,
    NewsKind.MIRROR_DROPPED: _REMOTE,
}
_WELL = frozenset({NewsKind.PUBLISHED, NewsKind.MIRRORED})
_LATE = frozenset({NewsKind.REPLACED, NewsKind.MIRROR_DROPPED})
_COST: Mapping[str, str] = {
    _LOCAL: "a restart repeats more work than planned",
    _REMOTE: "what is newer than the last copy is lost with this disk",
}


@dataclass(kw_only=True)
class StorageTrouble:
    """Listens to what becomes of checkpoints, on rank 0."""

    ledger: Ledger
    _where: dict[str, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """All is well until something else is heard."""
        self._degradations = Degradations(lambda kind, why, **data: self.ledger.record(kind, why, **self._where | data))

    def heard(self, news: News) -> None:
        """One piece of news; the same trouble again is silent."""
        place = _PLACES.get(news.kind)
        if place is None:
            return
        self._where = {"position": news.ticket.position, "step": news.ticket.step}
        if news.kind in _WELL:
            self._degradations.ended(DegradationKind.STORAGE, why=f"{news.ticket.name} is there", name=place)
        elif news.kind in _LATE and any(one.name == place for one in self._degradations.open):
            return  # it is refused already, which is worse
        else:
            self._degradations.began(
                Degradation(
                    kind=DegradationKind.STORAGE,
                    name=place,
                    cause=news.why,
                    level="late" if news.kind in _LATE else "refused",
                    cost=_COST[place],
                    way_back="the next checkpoint that gets there",
                )
            )
