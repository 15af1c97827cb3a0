"""No benchmark starves: through each policy's own order, with newcomers chosen against who waits.

The bound: a benchmark begins at the latest ``guard_s`` after it came, plus one run of the board for
each that was there before it, plus the run that is under way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeyard.plugins.builtin import BUILT_IN, registry
from edgeyard.plugins.queue_policies.fair_share import FairShare
from edgeyard.plugins.queue_policies.priority_age import PriorityAge
from edgeyard.plugins.queue_policies.priority_response import PriorityResponse
from edgeyard.plugins.queue_policies.shortest_first import ShortestFirst
from edgeyard.plugins.testing import NOW, pending, queue_of
from edgeyard.scheduler.framework.batch import TURN_SIZE
from edgeyard.scheduler.framework.protocols import QueuePolicy
from edgeyard.scheduler.framework.registry import Kind
from edgeyard.scheduler.model.decision import PendingBenchmark
from edgeyard.scheduler.model.knowledge import Entitlement, Knowledge

RUN_S = 60.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """One benchmark of the adversary: everything that a policy may prefer."""

    at_run: int
    user: str
    priority: int
    run_s: float
    due_s: float | None

    def pending(self, number: int) -> PendingBenchmark:
        came = NOW + timedelta(seconds=self.at_run * RUN_S)
        due = None if self.due_s is None else came + timedelta(seconds=self.due_s)
        return pending(
            f"b-{number:04}",
            user_id=self.user,
            submit_time=came,
            user_time_s=self.run_s,
            deadline=due,
        )


ARRIVALS = st.builds(
    Arrival,
    at_run=st.integers(0, 25),
    user=st.sampled_from(["ann", "bob", "eve"]),
    priority=st.integers(1, 100),
    run_s=st.floats(1, 1000),
    due_s=st.one_of(st.none(), st.floats(1, 5000)),
)


@pytest.mark.parametrize("name", sorted(BUILT_IN[Kind.QUEUE_POLICY]))
@settings(max_examples=25, deadline=None)
@given(arrivals=st.lists(ARRIVALS, min_size=1, max_size=30), guard_runs=st.integers(0, 12))
def test_everybody_begins_within_the_bound(
    name: str, arrivals: list[Arrival], guard_runs: int
) -> None:
    policy: QueuePolicy = BUILT_IN[Kind.QUEUE_POLICY][name]()  # type: ignore[assignment]
    guard_s = guard_runs * RUN_S
    jobs = [each.pending(number) for number, each in enumerate(arrivals)]
    begun: dict[int, int] = {}
    usage: dict[str, float] = {}
    for turn in range(26 + len(arrivals)):  # one board, one run a turn: the worst lab there is
        now = NOW + timedelta(seconds=turn * RUN_S)
        waiting = [n for n, each in enumerate(arrivals) if each.at_run <= turn and n not in begun]
        if not waiting:
            continue
        chosen = _first(policy, [jobs[n] for n in waiting], [arrivals[n] for n in waiting],
                        now_run=turn, guard_s=guard_s, usage=usage)  # fmt: skip
        begun[waiting[chosen]] = turn
        user = arrivals[waiting[chosen]].user
        usage[user] = usage.get(user, 0.0) + RUN_S
        assert now >= jobs[waiting[chosen]].submit_time
    assert len(begun) == len(arrivals)
    for number, each in enumerate(arrivals):
        before = sum(
            1
            for other, that in enumerate(arrivals)
            if other != number and that.at_run <= each.at_run and begun[other] >= each.at_run
        )
        assert begun[number] - each.at_run <= guard_runs + before


def _first(
    policy: QueuePolicy,
    jobs: list[PendingBenchmark],
    arrivals: list[Arrival],
    *,
    now_run: int,
    guard_s: float,
    usage: dict[str, float],
) -> int:
    """Index of the one that the policy puts first."""
    now = NOW + timedelta(seconds=now_run * RUN_S)
    ages = np.array([(now - each.submit_time).total_seconds() for each in jobs])
    priorities = np.array([each.priority for each in arrivals])
    knowledge = Knowledge(
        entitlements={user: Entitlement(usage_board_s=used) for user, used in usage.items()}
    )
    queue = queue_of(jobs, priorities, ages, knowledge=knowledge, guard_s=guard_s, now=now)
    return int(np.argmin(policy.order(queue)))


@settings(max_examples=30, deadline=None)
@given(
    shares=st.tuples(st.sampled_from([0.5, 1.0, 2.0, 5.0]), st.sampled_from([0.5, 1.0, 3.0])),
    runs=st.lists(st.tuples(st.floats(5, 300), st.floats(5, 300)), min_size=20, max_size=20),
    head_start=st.floats(0, 500),
)
def test_fair_share_gives_each_user_their_share(
    shares: tuple[float, float], runs: list[tuple[float, float]], head_start: float
) -> None:
    """With both backlogged, served per share differs by one run of each at most."""
    users = ("ann", "bob")
    left = {
        user: [pending(f"{user}-{n:02}", user_id=user, user_time_s=run[place])
               for n, run in enumerate(runs)]
        for place, user in enumerate(users)
    }  # fmt: skip
    used = {"ann": head_start, "bob": 0.0}
    longest = {user: max(run[place] for run in runs) for place, user in enumerate(users)}
    share = dict(zip(users, shares, strict=True))
    apart = max(used[user] / share[user] for user in users)
    allowed = sum(longest[user] / share[user] for user in users)
    while all(left.values()):
        jobs = [*left["ann"], *left["bob"]]
        knowledge = Knowledge(
            entitlements={
                user: Entitlement(usage_board_s=used[user], share=share[user]) for user in users
            }
        )
        zero = np.zeros(len(jobs))
        queue = queue_of(jobs, zero.astype(np.int64) + 50, zero, knowledge=knowledge)
        first = jobs[int(np.argmin(FairShare().order(queue)))]
        left[first.user_id].remove(first)
        used[first.user_id] += first.user_time_s or 0.0
        now_apart = abs(used["ann"] / share["ann"] - used["bob"] / share["bob"])
        assert now_apart <= max(apart, allowed) + 1e-6
        apart = min(apart, max(now_apart, allowed))


def test_fair_share_remembers_who_used_the_lab() -> None:
    jobs = [pending("a", user_id="ann"), pending("b", user_id="bob")]
    zero = np.zeros(2)
    knowledge = Knowledge(entitlements={"ann": Entitlement(usage_board_s=10_000.0)})
    queue = queue_of(jobs, np.array([90, 50]), zero, knowledge=knowledge)
    assert FairShare().order(queue).tolist() == [1, 0]
    assert FairShare().reason(queue, 0) == "its user used 10000 board-seconds lately"


USERS = ("ann", "bob", "cleo", "dan")


@settings(max_examples=40, deadline=None)
@given(
    jobs=st.lists(
        st.tuples(st.sampled_from(USERS), st.floats(1, 1000), st.integers(1, 100)),
        min_size=1,
        max_size=20,
    ),
    used=st.tuples(*[st.floats(0, 5000)] * 4),
    shares=st.tuples(*[st.sampled_from([0.5, 1.0, 3.0])] * 4),
)
def test_groups_of_one_that_used_the_same_change_nothing(
    jobs: list[tuple[str, float, int]],
    used: tuple[float, ...],
    shares: tuple[float, ...],
) -> None:
    """As do groups in which nobody is."""
    waiting = [
        pending(f"b-{n:02}", user_id=user, user_time_s=run_s)
        for n, (user, run_s, _) in enumerate(jobs)
    ]
    priorities = np.array([each[2] for each in jobs])
    zero = np.zeros(len(jobs))
    owed = {
        user: Entitlement(usage_board_s=usage, share=share)
        for user, usage, share in zip(USERS, used, shares, strict=True)
    }
    alone = {user: replace(each, group_id=f"of-{user}") for user, each in owed.items()}
    situations = (
        Knowledge(entitlements=owed),
        Knowledge(entitlements=owed, groups={"empty": Entitlement(usage_board_s=9.0)}),
        Knowledge(entitlements=alone, groups={f"of-{user}": each for user, each in owed.items()}),
    )
    orders = [
        FairShare().order(queue_of(waiting, priorities, zero, knowledge=known)).tolist()
        for known in situations
    ]
    assert orders[0] == orders[1] == orders[2]


@settings(max_examples=30, deadline=None)
@given(
    runs=st.lists(st.tuples(*[st.floats(5, 300)] * 4), min_size=12, max_size=12),
    shares=st.tuples(st.sampled_from([0.5, 1.0, 3.0]), st.sampled_from([1.0, 2.0])),
    own=st.sampled_from([0.5, 1.0, 4.0]),
)
def test_fair_share_is_of_groups_first_and_of_their_members_then(
    runs: list[tuple[float, ...]], shares: tuple[float, float], own: float
) -> None:
    """Three of one group, one of another: while all wait, groups differ by a run of each."""
    group_of = {"ann": "big", "bob": "big", "cleo": "big", "dan": "small"}
    share = {"big": shares[0], "small": shares[1]}
    share_of = {"ann": own, "bob": 1.0, "cleo": 1.0, "dan": 1.0}
    left = {
        user: [
            pending(f"{user}-{n:02}", user_id=user, user_time_s=run[place])
            for n, run in enumerate(runs)
        ]
        for place, user in enumerate(USERS)
    }
    longest = max(max(run) for run in runs)
    used, of_user = dict.fromkeys(share, 0.0), dict.fromkeys(USERS, 0.0)
    while all(left.values()):
        jobs = [each for user in USERS for each in left[user]]
        knowledge = Knowledge(
            entitlements={
                user: Entitlement(
                    usage_board_s=of_user[user], share=share_of[user], group_id=group_of[user]
                )
                for user in USERS
            },
            groups={
                name: Entitlement(usage_board_s=used[name], share=share[name]) for name in share
            },
        )
        zero = np.zeros(len(jobs))
        queue = queue_of(jobs, zero.astype(np.int64) + 50, zero, knowledge=knowledge)
        first = jobs[int(np.argmin(FairShare().order(queue)))]
        left[first.user_id].remove(first)
        used[group_of[first.user_id]] += first.user_time_s or 0.0
        of_user[first.user_id] += first.user_time_s or 0.0
        apart = abs(used["big"] / share["big"] - used["small"] / share["small"])
        assert apart <= sum(longest / each for each in share.values()) + 1e-6
        within = [of_user[user] / share_of[user] for user in ("ann", "bob", "cleo")]
        assert max(within) - min(within) <= longest * (1 + 1 / own) + 1e-6


def test_fair_share_says_what_the_group_has_used() -> None:
    jobs = [pending("a", user_id="ann"), pending("b", user_id="bob")]
    knowledge = Knowledge(
        entitlements={"ann": Entitlement(group_id="vision")},
        groups={"vision": Entitlement(usage_board_s=7200.0, share=2.0)},
    )
    queue = queue_of(jobs, np.array([90, 50]), np.zeros(2), knowledge=knowledge)
    assert FairShare().order(queue).tolist() == [1, 0]
    assert FairShare().reason(queue, 0) == (
        "its group vision used 7200 board-seconds lately, a share of 2; "
        "its user used 0 board-seconds lately"
    )


def test_the_shortest_runs_first_and_the_unknown_in_the_middle() -> None:
    jobs = [
        pending("long", user_time_s=500.0),
        pending("unknown"),
        pending("short", user_time_s=5.0),
        pending("mid", user_time_s=20.0),
    ]
    queue = queue_of(jobs, np.full(4, 50), np.array([9.0, 1.0, 1.0, 2.0]))
    order = np.argsort(ShortestFirst().order(queue))
    assert [jobs[row].benchmark_id for row in order] == ["short", "mid", "unknown", "long"]


BASES = st.sampled_from([62, 70, 80])
"""Points for type, user and deadline."""


@settings(max_examples=60, deadline=None)
@given(
    waiting=st.lists(
        st.tuples(BASES, st.floats(0, 8 * 3600), st.floats(1, 3000)), min_size=2, max_size=20
    ),
    guard_s=st.sampled_from([3600.0, 86400.0]),
)
def test_run_times_change_places_only_of_neighbours_that_differ_by_age(
    waiting: list[tuple[int, float, float]], guard_s: float
) -> None:
    """Whoever has other points, or has waited for the guard time, stands as by priority and age."""
    jobs = [
        pending(f"b-{n:02}", submit_time=NOW - timedelta(seconds=age), user_time_s=run_s)
        for n, (_, age, run_s) in enumerate(waiting)
    ]
    base = np.array([each[0] for each in waiting])
    ages = np.array([each[1] for each in waiting])
    points = np.minimum(base + np.floor(ages / 1800.0).astype(np.int64), 100)
    queue = replace(queue_of(jobs, points, ages, guard_s=guard_s), base_priorities=base)
    before, after = PriorityAge().order(queue), PriorityResponse().order(queue)
    assert sorted(after.tolist()) == list(range(len(jobs)))
    for one in range(len(jobs)):
        for other in range(len(jobs)):
            if base[one] != base[other] or queue.guarded[one]:
                assert (before[one] < before[other]) == (after[one] < after[other])


def test_of_equals_the_highest_response_ratio_comes_first() -> None:
    jobs = [
        pending("long", user_time_s=1200.0),
        pending("short", user_time_s=10.0),
        pending("middle", user_time_s=60.0),
        pending("unknown"),
    ]
    just_come = queue_of(jobs, np.full(4, 80), np.zeros(4))
    order = np.argsort(PriorityResponse().order(just_come))
    assert [jobs[row].benchmark_id for row in order] == ["short", "middle", "unknown", "long"]
    waited = queue_of(
        jobs[:2], np.full(2, 80), np.array([7200.0, 0.0])
    )  # 121 min / 1200 s > 1/10 s
    assert PriorityResponse().order(waited).tolist() == [0, 1]
    assert PriorityResponse().reason(waited, 0) == (
        "priority 80, waiting for 7200 s, expected to run for about 1200 s: response ratio 6"
    )
    by_submission = replace(waited, base_priorities=None)
    assert PriorityResponse().order(by_submission).tolist() == [0, 1]


def test_one_user_s_short_runs_come_before_their_long_ones_however_many_wait() -> None:
    jobs = [pending(f"long-{n:03}", user_id="ann", user_time_s=600.0) for n in range(100)]
    jobs.append(pending("short", user_id="ann", user_time_s=5.0))
    ages = np.array([600.0] * 100 + [0.0])
    ranks = PriorityResponse().order(queue_of(jobs, np.full(101, 80), ages))
    assert ranks[-1] == 0


def test_a_policy_chooses_by_name() -> None:
    assert set(registry(entry_points=False).names(Kind.QUEUE_POLICY)) == {
        "earliest_deadline", "f1", "f2", "f3", "f4", "fair_share", "fifo",
        "lookahead", "priority_age", "priority_response", "queue_hpc2n", "queue_lublin_1",
        "queue_lublin_2", "queue_sdsc_sp2", "random", "shortest_first", "ste_default",
        "ste_untrained", "tetris", "unicep", "wfp3",
    }  # fmt: skip


@pytest.mark.parametrize("waited_s", [3600.0, 3 * 86400.0])
@pytest.mark.parametrize(
    "name",
    ["priority_age", "priority_response", "earliest_deadline", "shortest_first", "fair_share"],
)
def test_ten_thousand_of_one_user_do_not_push_others_back(name: str, waited_s: float) -> None:
    """Also not when they have waited for so long that nobody may overtake them."""
    policy: QueuePolicy = BUILT_IN[Kind.QUEUE_POLICY][name]()  # type: ignore[assignment]
    jobs = [
        pending(
            f"flood-{number:05}", user_id="flood", submit_time=NOW - timedelta(seconds=waited_s)
        )
        for number in range(10_000)
    ]
    jobs.append(pending("late", user_id="ann", submit_time=NOW))
    ages = np.array([(NOW - each.submit_time).total_seconds() for each in jobs])
    priorities = np.array([90] * 10_000 + [50])  # the flood's are more urgent, too
    ranks = policy.order(queue_of(jobs, priorities, ages))
    assert ranks[-1] <= TURN_SIZE


def test_a_turn_is_a_user_s_most_urgent_and_a_guard_their_oldest() -> None:
    jobs = [
        pending(f"b-{number:03}", user_id="ann", submit_time=NOW - timedelta(seconds=100 - number))
        for number in range(40)
    ]
    ages = np.array([(NOW - each.submit_time).total_seconds() for each in jobs])
    priorities = np.array([10] * 39 + [90])
    queue = queue_of(jobs, priorities, ages, guard_s=0.0)
    assert queue.turns.tolist() == [0] * 31 + [1] * 8 + [0]
    assert queue.guarded.tolist() == [True] * 32 + [False] * 8
    assert queue.past_guard.all()
