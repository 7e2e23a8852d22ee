from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failsoft.health.backoff import BackoffPolicy
from failsoft.training.pace.judgement import Finding, Look, Pace, at_full_share, judge
from failsoft.training.pace.policy import PacePolicy, RemedyPolicy
from failsoft.training.pace.remedy import Remedy
from failsoft.training.pace.shares import FULL, even, sizes
from failsoft.training.pace.standing import RankStanding, behind

POLICY = PacePolicy()
WINDOW_S = 5.0


@dataclass
class Cluster:
    """Ranks whose time for n samples is ``fixed + n * each``, with noise; steps of a remedy, window by window."""

    each_s: list[float]
    fixed_s: float = 0.005
    dear_s: float = 0.0
    """What rank 1 pays beside, at each update."""
    noise: float = 0.1
    batch: int = 64
    policy: RemedyPolicy = field(default_factory=RemedyPolicy)
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.chance = np.random.default_rng(0)
        self.remedy = Remedy(policy=self.policy, world=len(self.each_s))
        self.standings = [RankStanding(policy=POLICY) for _ in self.each_s]

    def times(self) -> list[float]:
        """Of one batch, without noise."""
        shares, updates = self.remedy.decision
        times = [self.fixed_s + n * each for n, each in zip(sizes(self.batch, shares), self.each_s, strict=True)]
        times[1] += updates * self.dear_s
        return times

    def windows(self, count: int) -> None:
        for _ in range(count):
            noise = np.exp(self.noise * self.chance.standard_normal((len(self.each_s), POLICY.window)))
            paces = [Pace.of((time * row).tolist()) for time, row in zip(self.times(), noise, strict=True)]
            shares = self.remedy.decision.shares
            findings = judge(at_full_share(paces, shares), POLICY)
            for rank, (standing, finding) in enumerate(zip(self.standings, findings, strict=True)):
                standing.met(finding, ranks=len(paces), light=shares[rank] < FULL)
            slowest_s = max(math.exp(pace.log_median) for pace in paces if pace is not None)
            slow = behind(self.standings)
            self.remedy.met(judge(paces, POLICY), slow, now_s=self.now_s, slowest_s=slowest_s)
            self.now_s += WINDOW_S

    @property
    def shares(self) -> tuple[int, ...]:
        return self.remedy.decision.shares


@pytest.mark.parametrize("factor", [1.6, 2.0, 3.0])
@pytest.mark.parametrize("world", [2, 4])
def test_a_slow_rank_gets_so_much_less_that_it_keeps_up(world: int, factor: float) -> None:
    cluster = Cluster([0.01] * (world - 1) + [0.01 * factor])
    before = max(cluster.times())
    cluster.windows(20)
    after = cluster.times()
    assert max(after) < 0.9 * before
    assert max(after) / min(after) < 1.25
    assert cluster.shares[:-1] == even(world - 1)


def test_a_rank_that_recovers_gets_its_share_back_and_is_no_longer_behind() -> None:
    cluster = Cluster([0.01, 0.02])
    cluster.windows(20)
    assert cluster.shares[1] < FULL
    cluster.each_s[1] = 0.01
    cluster.windows(30)
    assert cluster.shares == even(2)
    assert behind(cluster.standings) == ()


def test_a_rank_that_carries_more_than_its_part_is_not_called_slow_for_it() -> None:
    cluster = Cluster([0.01, 0.03])
    cluster.windows(20)
    cluster.each_s[1] = 0.01  # well again, but still with a lighter share: now the other one takes longer
    for _ in range(30):
        cluster.windows(1)
        assert behind(cluster.standings) in {(1,), ()}


def test_when_another_rank_becomes_the_slow_one_the_work_moves_on() -> None:
    cluster = Cluster([0.01, 0.02])
    cluster.windows(20)
    cluster.each_s[:] = [0.02, 0.01]
    cluster.windows(60)
    assert cluster.shares[0] < cluster.shares[1] == FULL
    assert behind(cluster.standings) == (0,)


def test_a_rank_that_is_well_keeps_its_share_for_good() -> None:
    cluster = Cluster([0.01] * 4, noise=0.3)
    cluster.windows(300)
    assert cluster.shares == even(4)


def test_a_lighter_share_that_fits_is_left_as_it_is() -> None:
    cluster = Cluster([0.01, 0.02])
    cluster.windows(20)
    settled = cluster.shares
    cluster.windows(100)
    assert cluster.shares == settled


def test_giving_back_waits_longer_after_each_relapse_and_the_wait_is_forgotten_after_a_long_time() -> None:
    policy = RemedyPolicy(patience=BackoffPolicy(first_s=30.0, factor=3.0, cap_s=600.0, jitter_fraction=0.0))
    remedy = Remedy(policy=policy, world=2)
    slow = (Finding(look=Look.KEEPS_UP, factor=0.5), Finding(look=Look.SLOW, factor=2.0))
    well = (Finding(look=Look.KEEPS_UP, factor=2.0), Finding(look=Look.KEEPS_UP, factor=0.5))
    now_s, waits = 0.0, []
    for number in range(5):
        remedy.met(slow, (1,), now_s=now_s)
        lowered_s = now_s
        while remedy.decision.shares != even(2):
            now_s += 1.0
            remedy.met(well, (1,), now_s=now_s)
        waits.append(now_s - lowered_s)
        now_s += 1.0 if number < 3 else 10_000.0
    assert waits == [30.0, 90.0, 270.0, 600.0, 30.0]


def test_at_its_floor_and_still_slow_updates_get_smaller_and_larger_again_afterwards() -> None:
    cluster = Cluster([0.01, 0.2], policy=RemedyPolicy(max_updates=4))
    cluster.windows(20)
    assert cluster.shares[1] == cluster.policy.floor
    assert cluster.remedy.decision.updates == 4
    cluster.each_s[1] = 0.01
    cluster.windows(200)
    assert cluster.remedy.decision == (even(2), 1)


def test_updates_stay_whole_where_the_policy_says_so() -> None:
    cluster = Cluster([0.01, 0.2], policy=RemedyPolicy(max_updates=1))
    cluster.windows(40)
    assert cluster.remedy.decision.updates == 1


FINDINGS = st.builds(
    Finding,
    look=st.sampled_from(list(Look)),
    factor=st.one_of(st.floats(0.05, 20.0), st.just(math.nan)),
)


@settings(max_examples=60)
@given(story=st.lists(st.tuples(FINDINGS, FINDINGS, FINDINGS), max_size=30), step_s=st.floats(0.0, 100.0))
def test_whatever_is_found_shares_stay_within_their_limits_and_all_ranks_come_to_the_same(
    story: list[tuple[Finding, Finding, Finding]], step_s: float
) -> None:
    policy = RemedyPolicy()
    ranks = [Remedy(policy=policy, world=3) for _ in range(3)]
    for number, findings in enumerate(story):
        slow = [rank for rank, one in enumerate(findings) if one.look is Look.SLOW and not math.isnan(one.factor)]
        known = tuple(Finding(look=Look.UNKNOWN) if math.isnan(one.factor) else one for one in findings)
        decisions = {rank.met(known, slow, now_s=number * step_s) for rank in ranks}
        (decision,) = decisions
        assert all(policy.floor <= share <= FULL for share in decision.shares)
        assert max(decision.shares) == FULL
        assert 1 <= decision.updates <= policy.max_updates


def test_smaller_updates_that_make_a_batch_dearer_are_taken_back_and_not_tried_again() -> None:
    cluster = Cluster(each_s=[0.001, 0.001], dear_s=0.3, noise=0.02)
    tried = []
    for _ in range(60):
        cluster.windows(1)
        tried.append(cluster.remedy.decision.updates)
    assert tried.count(2) == 1
    assert set(tried) == {1, 2}
    cluster.dear_s = 0.0
    cluster.windows(60)
    cluster.each_s[1] = 0.05  # another trouble, of the samples this time: it may be tried again
    cluster.windows(20)
    assert cluster.remedy.decision.updates > 1


@pytest.mark.parametrize("fixed_s", [0.0, 0.05, 0.5])
def test_a_rank_that_is_quick_again_gets_its_full_share_back_also_where_fixed_costs_hide_it(fixed_s: float) -> None:
    cluster = Cluster(each_s=[0.001, 0.02], fixed_s=fixed_s, noise=0.02)
    cluster.windows(10)
    lowered = cluster.shares
    cluster.each_s[1] = 0.001
    cluster.windows(80)
    assert lowered[1] < FULL
    assert cluster.shares == (FULL, FULL)


def test_a_rank_that_stays_slow_tries_more_of_its_share_less_and_less_often() -> None:
    cluster = Cluster(each_s=[0.001, 0.00321], fixed_s=0.0, noise=0.005)
    shares = []
    for _ in range(400):
        cluster.windows(1)
        shares.append(cluster.shares[1])
    settled = shares[5:]
    assert set(settled) == {5, 6}
    tries = [at for at in range(1, len(settled)) if settled[at] > settled[at - 1]]
    assert all(settled[at + 1] == 5 for at in tries if at + 1 < len(settled))  # given back at the very next window
    gaps = np.diff(tries)
    assert all(gaps[1:] >= gaps[:-1])
    assert len(tries) < 8
