"""The look-ahead: the queue is rolled out under several rules, and the best one orders it."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeyard.plugins.builtin import registry
from edgeyard.plugins.queue_policies.lookahead import Lookahead
from edgeyard.scheduler.decide.cycle import CycleResult
from edgeyard.scheduler.framework.batch import Outlook, PastArrivals, Queue
from edgeyard.scheduler.framework.named import policy_named
from edgeyard.scheduler.kernel.rollouts import (
    FUTURES,
    RULES,
    ArrivedJobs,
    RunningJobs,
    WaitingJobs,
    look_ahead,
    roll_out,
    work_for,
)
from edgeyard.scheduler.model.decision import CycleInput
from edgeyard.simulator.lab.world import simulate_lab
from edgeyard.training.worlds import processors as world
from edgeyard.training.worlds.replay import Backfilling, replay
from tests.builders.labs import lab_scenario
from tests.builders.logs import Job, log_of
from tests.traces import trace

KNOWN = registry(entry_points=False)
pytestmark = pytest.mark.slow  # its functions compile for ten seconds


def starts(jobs: list[Job], processors: int = 4) -> list[float]:
    found = replay(
        log_of(jobs),
        KNOWN.queue_policy("lookahead"),
        processors=processors,
        backfilling=Backfilling.EASY,
    )
    return [float(start) for start in found.schedule.start]


def test_the_short_ones_start_first_where_that_lowers_the_mean_slowdown() -> None:
    jobs: list[Job] = [(0, 100, 4), (1, 1000, 4), (2, 10, 4), (3, 20, 4)]
    assert starts(jobs) == [0, 130, 100, 110]


def test_a_wide_job_waits_for_several_narrow_ones_of_the_same_length() -> None:
    # smallest area first: two of 2 processors run together, then the one of 4
    jobs: list[Job] = [(0, 50, 4), (1, 50, 4), (2, 50, 2), (3, 50, 2)]
    assert starts(jobs) == [0, 100, 50, 50]


def queue_of(
    runs_s: list[float], *, pools: list[int] | None = None, waits_s: list[float] | None = None
) -> Queue:
    """A queue of jobs that take one processor each; each pool has one, which is busy for 5 s."""
    count = len(runs_s)
    pools = pools or [0] * count
    waits = np.array(waits_s or [0.0] * count, dtype=np.float64)
    number = max(pools, default=0) + 1
    none = np.zeros((number, 0))
    return Queue(
        now=datetime(2026, 1, 1, tzinfo=UTC),
        ids=tuple(f"b{job}" for job in range(count)),
        users=("u",) * count,
        priorities=np.full(count, 50),
        ages_s=waits,
        waits_s=waits,
        slacks_s=np.full(count, np.nan),
        partly_running=np.zeros(count, dtype=bool),
        usage_board_s=np.zeros(count),
        shares=np.ones(count),
        submit_times_s=1e9 - waits,
        processors=np.ones(count, dtype=np.int64),
        guard_s=math.inf,
        estimate=lambda: np.array(runs_s),
        look_out=lambda: Outlook(
            names=tuple(f"family{pool}" for pool in range(number)),
            pools=np.array(pools, dtype=np.int64),
            free=np.zeros(number, dtype=np.int64),
            samples_s=np.zeros((count, 0)),
            weights=np.zeros((count, 0)),
            running_pools=np.arange(number),
            running_processors=np.ones(number, dtype=np.int64),
            elapsed_s=np.full(number, 5.0),
            requested_s=np.full(number, 10.0),
            running_samples_s=none,
            running_weights=none,
        ),
    )


def test_the_reason_states_the_rule_and_what_it_is_expected_to_save() -> None:
    queue = queue_of([100.0, 10.0])
    assert Lookahead().order(queue).tolist() == [1, 0]
    assert Lookahead().reason(queue, 0) == (
        "order of rule run² x processors: no other rule is expected to delay less"
    )


def test_each_family_has_a_queue_of_its_own() -> None:
    queue = queue_of([100.0, 10.0, 20.0, 20.0], pools=[0, 0, 1, 1], waits_s=[4, 3, 2, 1])
    assert Lookahead().order(queue).tolist() == [2, 0, 1, 3]


def test_who_has_waited_too_long_is_overtaken_by_nobody() -> None:
    queue = queue_of([1e6, 10.0, 10.0], waits_s=[101.0, 50.0, 1.0])
    assert Lookahead().order(queue).tolist() == [2, 0, 1]
    bounded = Lookahead(max_wait_s=100.0)
    assert bounded.order(queue).tolist() == [0, 1, 2]
    assert bounded.reason(queue, 0) == "waiting for 101 s, so no younger one may overtake it"


def test_samples_of_earlier_runs_count_next_to_the_request() -> None:
    queue = queue_of([100.0, 90.0])
    assert Lookahead().order(queue).tolist() == [1, 0]
    outlook = queue.outlook
    assert outlook is not None
    queue.__dict__["outlook"] = replace(
        outlook, samples_s=np.array([[10.0], [np.nan]]), weights=np.array([[1.0], [0.0]])
    )
    queue.__dict__.pop("_derived")
    assert Lookahead().order(queue).tolist() == [0, 1]


def past_of(rows: list[tuple[float, float]]) -> PastArrivals:
    """Arrivals of the first pool by how long ago and how long they ran, one processor each."""
    ago_s, run_s = np.array(rows, dtype=np.float64).T
    count = len(rows)
    return PastArrivals(
        pools=np.zeros(count, dtype=np.int64),
        ago_s=ago_s,
        processors=np.ones(count, dtype=np.int64),
        requested_s=run_s,
        run_s=run_s,
        samples_s=np.zeros((count, 0)),
        weights=np.zeros((count, 0)),
    )


def test_the_queue_is_rolled_out_in_futures_like_the_past() -> None:
    queue = queue_of([100.0, 10.0])
    outlook = queue.outlook
    assert outlook is not None
    rows = [(3600.0 - 60.0 * number, 30.0) for number in range(60)]
    queue.__dict__["outlook"] = replace(outlook, past=past_of(rows))
    Lookahead().order(queue)
    assert Lookahead().reason(queue, 0).endswith("in 16 futures like the past")


def past_jobs(ago_s: NDArray[np.float64], run_s: float) -> ArrivedJobs:
    """Jobs of one processor that arrived so long ago and ran for as long as they asked for."""
    each = np.full(len(ago_s), run_s)
    return ArrivedJobs(ago_s, each, each, each, np.ones(len(ago_s), dtype=np.int64))


def wide_and_narrow(arrivals: bool) -> tuple[int, list[int]]:
    """The rule and the order of a wide job of 50 s and a long one, on four processors."""
    waiting = WaitingJobs(
        submit_s=np.array([1000.0, 1001.0]),
        wait_s=np.array([100.0, 99.0]),
        run_s=np.array([60.0, 100.0]),
        bound_s=np.array([60.0, 100.0]),
        weight=1.0 / np.array([60.0, 100.0]),
        procs=np.array([4, 1]),
        first=np.zeros(2, dtype=np.int64),
    )
    running = RunningJobs(np.array([30.0]), np.array([30.0]), np.array([2]))
    # a job of one processor and 10 s arrives every 8 s: they would keep the wide one waiting
    ago_s = np.arange(4000.0, 0.0, -8.0) if arrivals else np.zeros(0)
    past = past_jobs(ago_s, 10.0)
    costs = np.empty((len(RULES), FUTURES))
    rule, order = look_ahead(waiting, running, 2, past, costs)
    tried = np.isfinite(costs)
    assert tried[0].sum() == (FUTURES if arrivals else 1)
    return rule, order.tolist()


def test_all_rules_meet_the_same_futures_and_few_arrivals_make_none() -> None:
    # the base puts the narrow one first, which keeps the wide one waiting for longer
    rule, order = wide_and_narrow(arrivals=False)
    assert (RULES[rule], order) == ("fcfs", [0, 1])
    assert sorted(wide_and_narrow(arrivals=True)[1]) == [0, 1]


def two_jobs(procs: list[int]) -> WaitingJobs:
    return WaitingJobs(
        submit_s=np.array([1000.0, 1001.0]),
        wait_s=np.array([2.0, 1.0]),
        run_s=np.array([600.0, 20.0]),
        bound_s=np.array([600.0, 20.0]),
        weight=1.0 / np.array([600.0, 20.0]),
        procs=np.array(procs),
        first=np.zeros(2, dtype=np.int64),
    )


@pytest.mark.parametrize(
    "ago_s",
    [
        np.full(500, 5.0),  # all in one instant
        np.linspace(60.0, 0.0, 500),  # all within a minute
        np.linspace(60.0, 0.0, 7),  # too few
    ],
)
def test_a_past_that_shows_nothing_keeps_the_base(ago_s: NDArray[np.float64]) -> None:
    running = RunningJobs(np.array([30.0]), np.array([30.0]), np.array([1]))
    costs = np.empty((len(RULES), FUTURES))
    past = past_jobs(ago_s, 30.0)
    rule, order = look_ahead(two_jobs([1, 1]), running, 0, past, costs)
    assert (rule, order.tolist()) == (0, [1, 0])


def test_futures_end_where_a_job_can_never_start_and_more_arrives_than_can_run() -> None:
    """One is wider than the machine; 100 times as much arrives as it can run."""
    running = RunningJobs(np.array([30.0]), np.array([30.0]), np.array([1]))
    costs = np.empty((len(RULES), FUTURES))
    past = past_jobs(np.linspace(3600.0, 1.0, 1000), 360.0)
    _, order = look_ahead(two_jobs([8, 1]), running, 0, past, costs)
    assert sorted(order.tolist()) == [0, 1]
    assert np.isfinite(costs[0]).all()


def plain_cost(
    order: list[int],
    jobs: WaitingJobs,
    arrive_s: list[float],
    free: int,
    running: list[tuple[float, float, int]],
    until_s: float,
) -> float:
    """Sum of weight times delay, by a simulation as one writes it first.

    ``running`` states when each ends, its bound and its processors.
    """
    now, cost, ends = 0.0, 0.0, sorted(running)
    coming = sorted((at, job) for job, at in enumerate(arrive_s) if at > 0)
    queue = [job for job in order if arrive_s[job] == 0]
    while True:
        started = True
        while started and queue:
            started = False
            if jobs.procs[queue[0]] <= free:
                chosen = queue[0]
            else:
                there, when = free, now
                for bound, procs in sorted((bound, procs) for _, bound, procs in ends):
                    if there >= jobs.procs[queue[0]] and bound > when:
                        break
                    there, when = there + procs, bound
                spare = there - jobs.procs[queue[0]]
                fitting = [
                    job
                    for job in queue[1:]
                    if jobs.procs[job] <= free
                    and (now + jobs.bound_s[job] <= when or jobs.procs[job] <= spare)
                ]
                if not fitting:
                    break
                chosen = fitting[0]
            queue.remove(chosen)
            cost += jobs.weight[chosen] * (now - arrive_s[chosen])
            free -= jobs.procs[chosen]
            end, bound = now + jobs.run_s[chosen], now + jobs.bound_s[chosen]
            ends = sorted([*ends, (end, bound, int(jobs.procs[chosen]))])
            started = True
        if not queue and not coming:
            return cost
        now = min([at for at, _ in coming[:1]] + [end for end, _, _ in ends[:1]])
        if now > until_s:
            left = [jobs.weight[job] * (until_s - arrive_s[job]) for job in queue]
            return cost + float(sum(left))
        if coming and coming[0][0] == now:
            queue = sorted([*queue, coming.pop(0)[1]], key=order.index)
        else:
            free += ends.pop(0)[2]


job_rows = st.lists(
    st.tuples(
        st.integers(0, 60), st.integers(1, 60), st.integers(1, 8), st.sampled_from([0, 7, 300])
    ),
    min_size=1,
    max_size=9,
)
running_rows = st.lists(
    st.tuples(st.integers(1, 60), st.integers(1, 3), st.sampled_from([0, 9])), max_size=2
)


@given(job_rows, running_rows, st.randoms(use_true_random=False), st.sampled_from([50.0, math.inf]))
def test_rollouts_equal_a_plain_simulation(
    rows: list[tuple[int, int, int, int]],
    running: list[tuple[int, int, int]],
    random: Random,
    until_s: float,
) -> None:
    # no two things happen in one instant: their order is no question here
    arrive_s = sorted(
        0.0 if at < 30 else at + number / 1024 for number, (at, _, _, _) in enumerate(rows)
    )
    run_s = np.array([each[1] + number / 64 for number, each in enumerate(rows)])
    jobs = WaitingJobs(
        submit_s=100.0 + np.array(arrive_s),
        wait_s=np.zeros(len(rows)),
        run_s=run_s,
        bound_s=run_s + [each[3] for each in rows],
        weight=1.0 / np.maximum(run_s, 10.0),
        procs=np.array([each[2] for each in rows]),
        first=np.zeros(len(rows), dtype=np.int64),
    )
    free = 8 - sum(procs for _, procs, _ in running)
    ends = [
        (end + number / 7, end + number / 7 + beyond, procs)
        for number, (end, procs, beyond) in enumerate(running)
    ]
    order = list(range(len(rows)))
    random.shuffle(order)
    found = roll_out(
        np.array(order),
        jobs,
        np.array(arrive_s),
        run_s,
        free,
        RunningJobs(
            left_s=np.array([end for end, _, _ in ends], dtype=np.float64),
            bound_s=np.array([bound for _, bound, _ in ends], dtype=np.float64),
            procs=np.array([procs for _, _, procs in ends], dtype=np.int64),
        ),
        work_for(len(rows), len(ends)),
        math.inf,
        until_s,
    )
    assert found == pytest.approx(plain_cost(order, jobs, arrive_s, free, ends, until_s))


@given(
    st.lists(
        st.tuples(st.integers(1, 40), st.integers(1, 4), st.sampled_from([1, 3, 1000])),
        min_size=1,
        max_size=14,
    ),
    st.integers(0, 20),
)
def test_a_rollout_starts_jobs_when_a_replay_does(
    rows: list[tuple[int, int, int]], events: int
) -> None:
    """Run times are as expected; requests are up to a thousand times too long."""
    count = len(rows)
    # no two jobs end in one instant: their order would be that of their starts
    run_s = np.array([run + 0.5 ** (number + 1) for number, (run, _, _) in enumerate(rows)])
    requested_s = run_s * [factor for _, _, factor in rows]
    procs = np.array([wide for _, wide, _ in rows])
    jobs = world.Jobs(np.zeros(count), run_s, requested_s, requested_s, procs)
    machine, queue = world.empty_machine(jobs, 4)
    ranks = np.arange(count)
    world.advance(jobs, machine, queue, ranks, world.EASY, False, count + events)
    now = float(machine.times[world.NOW])
    waiting = world.waiting(machine).copy()
    rows_left = machine.running[: machine.counts[world.RUNNING]]
    rows_left = rows_left[np.argsort(machine.start[rows_left], kind="stable")]
    free = int(machine.counts[world.FREE])
    started = machine.start[rows_left].copy()
    while world.advance(jobs, machine, queue, ranks, world.EASY, False, 1):
        pass
    assert not np.isnan(machine.start).any()
    weight = np.exp2(np.arange(len(waiting), dtype=np.float64))  # so a sum tells the starts of all
    found = roll_out(
        np.arange(len(waiting)),
        WaitingJobs(
            submit_s=np.zeros(len(waiting)),
            wait_s=np.full(len(waiting), now),
            run_s=run_s[waiting],
            bound_s=requested_s[waiting],
            weight=weight,
            procs=procs[waiting],
            first=np.zeros(len(waiting), dtype=np.int64),
        ),
        np.zeros(len(waiting)),
        run_s[waiting],
        free,
        RunningJobs(
            left_s=started + run_s[rows_left] - now,
            bound_s=started + requested_s[rows_left] - now,
            procs=procs[rows_left],
        ),
        work_for(len(waiting), len(rows_left)),
        math.inf,
        math.inf,
    )
    assert found == pytest.approx(float(weight @ (machine.start[waiting] - now)), rel=1e-12)


def test_many_short_ones_with_long_requests_are_not_kept_behind_a_wide_one() -> None:
    """Nobody passes the wide one by its request; by what is expected all would."""
    short: list[Job] = [(float(number), 4, 1, 85_000) for number in range(200)]
    wide: Job = (0.5, 60_000, 100, 80_000)
    log = log_of([*short, wide])
    ours, best = (
        replay(log, KNOWN.queue_policy(name), processors=100, backfilling=Backfilling.EASY)
        for name in ("lookahead", "shortest_first")
    )
    mean = ours.schedule.bounded_slowdown().mean()
    assert mean <= 1.1 * best.schedule.bounded_slowdown().mean()


def test_a_family_without_boards_keeps_the_order_of_age() -> None:
    queue = queue_of([100.0, 10.0], waits_s=[2.0, 1.0])
    outlook = queue.outlook
    assert outlook is not None
    outlook.running_pools[:] = 7
    assert Lookahead().order(queue).tolist() == [0, 1]
    assert Lookahead().reason(queue, 0) == "by age: none of its boards is available"


def test_only_the_oldest_are_rolled_out_and_all_are_ordered() -> None:
    runs_s = [float(1 + job % 7) for job in range(1500)]
    ranks = Lookahead().order(queue_of(runs_s, waits_s=[float(1500 - job) for job in range(1500)]))
    assert sorted(ranks.tolist()) == list(range(1500))


def test_without_numba_the_same_starts_come_out() -> None:
    rng = np.random.default_rng(1)
    columns = rng.integers(1, [900, 90, 5, 120], size=(40, 4)).tolist()
    jobs: list[Job] = [(float(s), float(r), int(n), float(q)) for s, r, n, q in columns]
    script = (
        "import sys, json; sys.modules['numba'] = None\n"
        "from tests.unit.test_lookahead import starts\n"
        "from edgeyard.scheduler.kernel.compiled import COMPILED\n"
        "jobs = [tuple(job) for job in json.loads(sys.argv[1])]\n"
        "print(json.dumps([COMPILED, starts(jobs)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(jobs)],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == [False, starts(jobs)]


def test_it_lowers_the_slowdown_in_a_simulated_lab() -> None:
    long = [{"run_s": each, "user_time_s": each} for each in (600, 500)]
    jobs = [*long, *[{"run_s": 20, "submit_s": 1, "user_time_s": 20}] * 4]
    scenario = lab_scenario(boards=[{"family": "rpi5", "count": 1}], jobs=jobs)
    by_age, ahead = (
        simulate_lab(scenario, policy, KNOWN.resolve(policy))
        for policy in (policy_named("fifo", KNOWN), policy_named("lookahead", KNOWN))
    )
    assert ahead.jobs.end_s[2:].max() < by_age.jobs.end_s[2:].max()
    assert sorted(ahead.jobs.status.tolist()) == sorted(by_age.jobs.status.tolist())


def test_a_lab_draws_futures_from_its_own_past_and_explains_them() -> None:
    jobs = [
        {"run_s": 20 + 40 * (row % 3), "submit_s": 30.0 * row, "user_time_s": 100}
        for row in range(24)
    ]
    scenario = lab_scenario(boards=[{"family": "rpi5", "count": 1}], jobs=jobs)
    reasons: list[str] = []

    def watch(now_s: float, given: CycleInput, result: CycleResult) -> None:
        queue = result.decided.queue
        reasons.extend(Lookahead().reason(queue, row) for row in range(len(queue.ids)))

    policy = policy_named("lookahead", KNOWN)
    simulate_lab(scenario, policy, KNOWN.resolve(policy), watch=watch)
    assert not any("futures" in each for each in reasons[:5])  # hardly any arrived until then
    assert reasons[len(reasons) // 2].startswith("order of rule")
    assert " in 16 futures like the past" in reasons[len(reasons) // 2]


def test_a_machine_of_a_log_comes_out_better_than_by_its_best_simple_rule() -> None:
    from edgeyard.training.worlds.swf import read_swf

    log = read_swf(trace("KTH-SP2-1996-2.1-cln.swf.gz"))

    def mean(name: str) -> float:
        return float(
            np.mean(
                [
                    replay(
                        log.part(first, 1024),
                        KNOWN.queue_policy(name),
                        processors=100,
                        backfilling=Backfilling.EASY,
                    )
                    .schedule.bounded_slowdown()
                    .mean()
                    for first in (1981, 2756)
                ]
            )
        )

    assert mean("lookahead") < min(map(mean, ("fifo", "shortest_first", "f1")))


def test_it_delays_nobody_on_a_log_without_a_queue() -> None:
    """On NASA-iPSC the bounded slowdown is 1 under each rule."""
    from edgeyard.training.worlds.swf import read_swf

    log = read_swf(trace("NASA-iPSC-1993-3.1-cln.swf.gz"))
    found = replay(
        log.part(5000, 1024),
        KNOWN.queue_policy("lookahead"),
        processors=128,
        backfilling=Backfilling.EASY,
    )
    assert found.schedule.bounded_slowdown().mean() == pytest.approx(1.0, abs=0.001)
