"""The look-ahead: the queue is rolled out under several rules, and the best one orders it."""

import json
import math
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeyard.plugins.builtin import registry
from edgeyard.plugins.queue_policies.lookahead import Lookahead
from edgeyard.scheduler.framework.batch import Outlook, Queue
from edgeyard.scheduler.framework.named import policy_named
from edgeyard.scheduler.kernel.rollouts import (
    RULES,
    RunningJobs,
    WaitingJobs,
    look_ahead,
    roll_out,
    work_for,
)
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


def test_the_reason_states_the_rule_and_the_slowdowns_that_are_expected() -> None:
    queue = queue_of([100.0, 10.0])
    policy = Lookahead(rules=("fcfs", "sjf"))
    assert policy.order(queue).tolist() == [1, 0]
    # sjf: 10 s at 5, 100 s at 15: (1.5 + 1.15) / 2; fcfs: (1.05 + 11.5) / 2
    assert policy.reason(queue, 0) == (
        "order of rule sjf: expected mean bounded slowdown 1.32 against 6.28 by fcfs"
    )


def test_each_family_has_a_rule_of_its_own() -> None:
    queue = queue_of([100.0, 10.0, 20.0, 20.0], pools=[0, 0, 1, 1], waits_s=[4, 3, 2, 1])
    policy = Lookahead(rules=("fcfs", "sjf"))
    assert policy.order(queue).tolist() == [2, 0, 1, 3]
    assert "rule sjf" in policy.reason(queue, 0)
    assert "rule fcfs" in policy.reason(queue, 2)


def test_who_has_waited_too_long_is_overtaken_by_nobody() -> None:
    queue = queue_of([1e6, 10.0, 10.0], waits_s=[101.0, 50.0, 1.0])
    assert Lookahead().order(queue).tolist() == [2, 0, 1]
    bounded = Lookahead(max_wait_s=100.0)
    assert bounded.order(queue).tolist() == [0, 1, 2]
    assert bounded.reason(queue, 0) == "waiting for 101 s, so no younger one may overtake it"


def test_samples_of_earlier_runs_count_next_to_the_request() -> None:
    queue = queue_of([100.0, 90.0])
    outlook = queue.outlook
    assert outlook is not None
    likely = Outlook(
        **{
            name: getattr(outlook, name)
            for name in Outlook.__dataclass_fields__
            if name not in ("samples_s", "weights")
        },
        samples_s=np.array([[10.0], [np.nan]]),
        weights=np.array([[1.0], [0.0]]),
    )
    queue.__dict__["outlook"] = likely
    assert Lookahead(rules=("sjf",)).order(queue).tolist() == [1, 0]
    assert Lookahead(rules=("sjf",), request_weight=1.0).order(queue).tolist() == [0, 1]


def plain_slowdowns(
    order: list[int],
    jobs: WaitingJobs,
    free: int,
    running: list[tuple[float, float, int]],
    later_jobs: float,
) -> float:
    """Sum of weight times delay, by a simulation as one writes it first.

    ``running`` states when each ends, its bound and its processors; ``later_jobs`` of the mean
    weight wait until the last has started.
    """
    now, cost, queue, ends = 0.0, 0.0, list(order), sorted(running)
    while queue:
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
            cost += jobs.weight[chosen] * now
            free -= jobs.procs[chosen]
            end, bound = now + jobs.run_s[chosen], now + jobs.bound_s[chosen]
            ends = sorted([*ends, (end, bound, int(jobs.procs[chosen]))])
            started = True
        if queue:
            now, _, procs = ends.pop(0)
            free += procs
    return cost + later_jobs * float(jobs.weight.mean()) * now


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


@given(job_rows, running_rows, st.sampled_from([0.0, 2.0]))
def test_rollouts_equal_a_plain_simulation(
    rows: list[tuple[int, int, int, int]], running: list[tuple[int, int, int]], later_jobs: float
) -> None:
    rows = sorted(rows, reverse=True)  # the oldest first
    # no two end in one instant: their order is no question here
    run_s = np.array([each[1] + number / 64 for number, each in enumerate(rows)])
    wait_s = np.array([each[0] for each in rows], dtype=np.float64)
    jobs = WaitingJobs(
        submit_s=100.0 - wait_s,
        wait_s=wait_s,
        run_s=run_s,
        bound_s=run_s + [each[3] for each in rows],
        weight=1.0 / np.maximum(run_s, 10.0),
        procs=np.array([each[2] for each in rows]),
        first=np.zeros(len(rows), dtype=np.int64),
    )
    free = 8 - sum(procs for _, procs, _ in running)
    costs = np.zeros(len(RULES))
    rules = np.arange(len(RULES))
    ends = [
        (end + number / 7, end + number / 7 + beyond, procs)
        for number, (end, procs, beyond) in enumerate(running)
    ]
    runs = RunningJobs(
        left_s=np.array([end for end, _, _ in ends], dtype=np.float64),
        bound_s=np.array([bound for _, bound, _ in ends], dtype=np.float64),
        procs=np.array([procs for _, _, procs in ends], dtype=np.int64),
    )
    order = look_ahead(rules, jobs, free, runs, 100, math.inf, later_jobs, costs, False)
    keys = {"fcfs": jobs.submit_s, "sjf": run_s, "smallest area": run_s * jobs.procs}
    for rule, key in keys.items():
        by_rule = np.argsort(key, kind="stable").tolist()
        expected = plain_slowdowns(by_rule, jobs, free, ends, later_jobs)
        assert costs[RULES.index(rule)] == pytest.approx(expected)
    found = plain_slowdowns(order.tolist(), jobs, free, ends, later_jobs)
    assert found == pytest.approx(costs.min())
    pruned = np.zeros(len(RULES))
    again = look_ahead(rules, jobs, free, runs, 100, math.inf, later_jobs, pruned, True)
    assert again.tolist() == order.tolist()


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
    run_s = np.array([float(run) for run, _, _ in rows])
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
    weight = 2.0 ** np.arange(len(waiting))  # so a sum tells the starts of all
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
        free,
        RunningJobs(
            left_s=started + run_s[rows_left] - now,
            bound_s=started + requested_s[rows_left] - now,
            procs=procs[rows_left],
        ),
        work_for(len(waiting), len(rows_left)),
        math.inf,
        0.0,
        math.inf,
    )
    assert found == pytest.approx(float(weight @ (machine.start[waiting] - now)), rel=1e-12)


def test_many_short_ones_with_long_requests_are_not_kept_behind_a_wide_one() -> None:
    """Nobody passes the wide one by its request; by what is expected all would."""
    short: list[Job] = [(float(number), 4, 1, 85_000) for number in range(200)]
    wide: Job = (0.5, 60_000, 100, 80_000)
    log = log_of([*short, wide])
    for name in ("lookahead", "learned_lookahead"):
        found = replay(log, KNOWN.queue_policy(name), processors=100, backfilling=Backfilling.EASY)
        best = replay(
            log,
            KNOWN.queue_policy("shortest_first"),
            processors=100,
            backfilling=Backfilling.EASY,
        )
        mean = found.schedule.bounded_slowdown().mean()
        assert mean <= 1.1 * best.schedule.bounded_slowdown().mean(), name


def test_a_family_without_boards_keeps_the_order_of_age() -> None:
    queue = queue_of([100.0, 10.0], waits_s=[2.0, 1.0])
    outlook = queue.outlook
    assert outlook is not None
    outlook.running_pools[:] = 7
    assert Lookahead().order(queue).tolist() == [0, 1]
    assert "none of its boards is available" in Lookahead().reason(queue, 0)


def test_only_the_oldest_are_rolled_out_and_all_are_ordered() -> None:
    runs_s = [float(1 + job % 7) for job in range(1500)]
    ranks = Lookahead().order(queue_of(runs_s, waits_s=[float(1500 - job) for job in range(1500)]))
    assert sorted(ranks.tolist()) == list(range(1500))


def test_without_numba_the_same_starts_come_out() -> None:
    rng = np.random.default_rng(1)
    columns = rng.integers(1, [900, 90, 5, 120], size=(120, 4)).tolist()
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
    for name in ("lookahead", "learned_lookahead"):
        found = replay(
            log.part(5000, 1024),
            KNOWN.queue_policy(name),
            processors=128,
            backfilling=Backfilling.EASY,
        )
        assert found.schedule.bounded_slowdown().mean() == pytest.approx(1.0, abs=0.001)
