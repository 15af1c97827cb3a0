"""The decision cycle: who is placed where, and why the others wait."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeyard.devices.model import Board, BoardEngine
from edgeyard.plugins.filters.health import HealthFilter
from edgeyard.plugins.filters.quota import QuotaFilter
from edgeyard.plugins.scorers.best_fit import BestFit
from edgeyard.plugins.scorers.fastest import Fastest
from edgeyard.plugins.scorers.reliable import Reliable
from edgeyard.plugins.testing import GIB, NOW, board, past_run, pending, snapshot_of
from edgeyard.scheduler.decide.cycle import CycleResult, decide
from edgeyard.scheduler.decide.record import Recorder, cycle_input_of, result_of
from edgeyard.scheduler.framework.batch import Batch, Pairs, Queue
from edgeyard.scheduler.framework.policy import load_policy
from edgeyard.scheduler.framework.protocols import (
    Answer,
    Proposal,
    Refusal,
    ScorerKind,
    ScoreUnit,
)
from edgeyard.scheduler.framework.registry import WeightedScorer
from edgeyard.scheduler.model.benchmark import (
    BenchmarkType,
    Binding,
    Constraint,
    WaitingReason,
    WaitReason,
)
from edgeyard.scheduler.model.decision import CycleInput
from edgeyard.scheduler.model.history import History
from edgeyard.scheduler.model.knowledge import Knowledge
from edgeyard.scheduler.prediction.forecast import forecasts
from tests.builders.decision import cycle, places, plugins, policy

ONE, TWO, THREE = "rpi4b-0001-0001", "rpi4b-0001-0002", "rpi4b-0001-0003"


def older(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def why(result: CycleResult, benchmark_id: str = "b-1") -> tuple[WaitingReason, str]:
    waiting = result.waiting[benchmark_id]
    return waiting.reason, waiting.sentence


# --- who is placed -------------------------------------------------------------------------------


def test_a_benchmark_gets_the_only_board_that_fits() -> None:
    result = cycle(snapshot_of([board("rpi5-0001-0001"), board(ONE)]), [pending()])
    (placement,) = result.placements
    assert placement.target_uid == ONE
    assert placement.family == "rpi4b"
    assert placement.binding is Binding.STRICT
    assert placement.priority == 80
    assert placement.allowed_uids == ()
    assert dict(result.waiting) == {}
    assert result.order == ("b-1",)
    assert result.faults == ()


def test_the_queue_goes_by_priority_then_age_then_started_campaigns() -> None:
    jobs = [
        pending("a", user_priority=5),
        pending("b", user_priority=9),
        pending("c", user_priority=5, submit_time=older(60)),
        pending("d", user_priority=5, campaign_started=True),
        pending("e", benchmark_type=BenchmarkType.TYPE2, user_priority=9),
    ]
    assert cycle(snapshot_of([]), jobs).order == ("b", "c", "d", "a", "e")


def test_a_started_campaign_comes_before_one_that_is_a_few_seconds_older() -> None:
    jobs = [
        pending("older", submit_time=older(20)),
        pending("started", submit_time=older(5), campaign_started=True),
        pending("much-older", submit_time=older(100)),
    ]
    assert cycle(snapshot_of([]), jobs).order == ("much-older", "started", "older")


def test_a_benchmark_that_cannot_be_placed_delays_no_other() -> None:
    jobs = [
        pending("first", family="rpi5", submit_time=older(9000)),
        pending("held", not_ready=WaitReason(reason=WaitingReason.HELD, sentence="held")),
        pending("huge", ram_bytes=64 * GIB, submit_time=older(9000)),
        pending("last"),
    ]
    snapshot = snapshot_of([board("rpi5-0001-0001", busy=True), board(ONE)])
    assert places(cycle(snapshot, jobs)) == {"last": ONE}


def test_a_crowd_for_one_family_holds_up_no_other() -> None:
    crowd = [pending(f"crowd-{n}", submit_time=older(9000 + n)) for n in range(5)]
    snapshot = snapshot_of([board(ONE), board("rpi5-0001-0001")])
    placed = places(cycle(snapshot, [*crowd, pending("last", family="rpi5")]))
    assert placed == {"crowd-4": ONE, "last": "rpi5-0001-0001"}


def test_an_idle_board_is_chosen_and_less_loaded_hosts_come_first() -> None:
    boards = [board(ONE, busy=True), board(TWO), board(THREE), board("rpi4b-0001-0004")]
    hosts = {ONE: "full", TWO: "full", THREE: "idle", "rpi4b-0001-0004": "idle"}
    snapshot = snapshot_of(boards, hosts=hosts)
    for seed in range(5):
        jobs = [pending("a", submit_time=older(9)), pending("b"), pending("c")]
        assert places(cycle(snapshot, jobs[:1], seed=seed))["a"] in (THREE, "rpi4b-0001-0004")
        assert set(places(cycle(snapshot, jobs, seed=seed)).values()) == {
            TWO,
            THREE,
            "rpi4b-0001-0004",
        }


def test_benchmarks_of_one_cycle_spread_over_hosts() -> None:
    boards = [board(f"rpi4b-0001-000{n}") for n in range(1, 5)]
    hosts = {each.target_uid: f"host-{index // 2}" for index, each in enumerate(boards)}
    for seed in range(5):
        result = cycle(snapshot_of(boards, hosts=hosts), [pending("a"), pending("b")], seed=seed)
        assert {hosts[uid] for uid in places(result).values()} == {"host-0", "host-1"}


def test_equal_boards_take_turns_by_the_seed() -> None:
    snapshot = snapshot_of([board(ONE), board(TWO)])
    chosen = {places(cycle(snapshot, [pending()], seed=seed))["b-1"] for seed in range(20)}
    assert chosen == {ONE, TWO}


def test_a_retry_goes_to_another_board_and_to_the_same_only_if_there_is_none() -> None:
    both = snapshot_of([board(ONE), board(TWO)])
    only = snapshot_of([board(ONE), board(TWO, busy=True)])
    again = pending(tried_uids=frozenset({ONE, "rpi4b-0009-0009"}))
    for seed in range(5):
        assert places(cycle(both, [again], seed=seed)) == {"b-1": TWO}
    assert places(cycle(only, [again])) == {"b-1": ONE}


def test_boards_that_share_cores_are_not_used_in_one_cycle() -> None:
    fast = board("emufast-0001-0001", shares_with=frozenset({"emumid-0001-0001"}))
    mid = board("emumid-0001-0001", shares_with=frozenset({"emufast-0001-0001"}))
    jobs = [pending("a", family="emufast"), pending("b", family="emumid")]
    result = cycle(snapshot_of([fast, mid]), jobs)
    assert places(result) == {"a": "emufast-0001-0001"}
    assert why(result, "b") == (
        WaitingReason.PRIORITY,
        "a benchmark ahead in the queue uses the cores of its board emumid-0001-0001",
    )
    verdict = result.explanation("b").verdicts[1]
    assert verdict.reason is WaitingReason.PRIORITY
    assert "shares cores with emufast-0001-0001" in verdict.sentence


def test_a_pinned_benchmark_gets_its_board_even_if_another_scores_higher() -> None:
    boards = [board(ONE), board(TWO), board(THREE, busy=True)]
    snapshot = snapshot_of(boards, hosts={ONE: "a", TWO: "b", THREE: "a"})
    assert places(cycle(snapshot, [pending()])) == {"b-1": TWO}
    assert places(cycle(snapshot, [pending(target_uid=ONE)])) == {"b-1": ONE}


def test_drained_unknown_unhealthy_and_offline_boards_are_never_used() -> None:
    boards = [board(f"rpi4b-0001-000{n}", healthy=n != 3) for n in range(1, 6)]
    snapshot = snapshot_of(boards, drained=[ONE], unknown=[TWO], offline=["rpi4b-0001-0004"])
    jobs = [pending(f"b-{n}") for n in range(5)]
    assert set(places(cycle(snapshot, jobs)).values()) == {"rpi4b-0001-0005"}


# --- why it waits --------------------------------------------------------------------------------


def test_an_offline_board_is_named_with_what_is_wrong() -> None:
    snapshot = snapshot_of([board(ONE)], offline=[ONE], reasons={ONE: "host pi-host is down"})
    assert why(cycle(snapshot, [pending()])) == (
        WaitingReason.BOARD_OFFLINE,
        f"waits for {ONE}, which is offline (host pi-host is down)",
    )


def test_a_busy_board_is_named_with_who_holds_it() -> None:
    snapshot = snapshot_of([board(ONE, busy=True, busy_reason="runs b-0")])
    assert why(cycle(snapshot, [pending()])) == (
        WaitingReason.BOARD_BUSY,
        f"its board {ONE} is busy (runs b-0)",
    )


def test_those_behind_others_show_how_many() -> None:
    jobs = [pending(f"b-{n:02}", submit_time=older(100 - n)) for n in range(40)]
    result = cycle(snapshot_of([board(ONE, busy=True)]), jobs)
    assert why(result, "b-00")[0] is WaitingReason.BOARD_BUSY
    assert why(result, "b-01")[1] == f"1 benchmark comes first; its board {ONE} is busy"
    assert why(result, "b-03") == (
        WaitingReason.PRIORITY,
        f"3 benchmarks come first; its board {ONE} is busy",
    )
    # A count that would change for everybody with each benchmark that ends is shown roughly.
    assert why(result, "b-39")[1].startswith("at least 20 benchmarks come first")
    free = cycle(snapshot_of([board(ONE), board(TWO)]), jobs[:4])
    assert why(free, "b-03") == (
        WaitingReason.PRIORITY,
        "3 benchmarks come first for its 2 boards",
    )


def test_only_those_that_want_the_same_boards_come_first() -> None:
    jobs = [
        pending("other", family="rpi5", submit_time=older(99)),
        pending("held", not_ready=WaitReason(reason=WaitingReason.HELD, sentence="held")),
        pending("mine", submit_time=older(1)),
    ]
    snapshot = snapshot_of([board(ONE, busy=True), board("rpi5-0001-0001", busy=True)])
    assert why(cycle(snapshot, jobs), "mine")[0] is WaitingReason.BOARD_BUSY


def test_the_nearest_board_is_reported_and_the_others_are_counted() -> None:
    boards = [board(f"rpi4b-0001-000{n}", busy=n == 4) for n in range(1, 5)] + [
        board("rpi5-0001-0001")
    ]
    snapshot = snapshot_of(boards, drained=[ONE], offline=[TWO, THREE])
    assert why(cycle(snapshot, [pending()])) == (
        WaitingReason.BOARD_BUSY,
        "waits for one of 4 boards: rpi4b-0001-0004 is busy; others: 1 drained, 2 offline",
    )


@pytest.mark.parametrize(
    ("asked", "reason", "sentence"),
    [
        (
            {"family": "rpi9"},
            WaitingReason.NO_SUCH_FAMILY,
            "no board of family rpi9 is known; known families: rpi4b, rpi5",
        ),
        (
            {"engine": "tflite"},
            WaitingReason.ENGINE_MISSING,
            "no board of family rpi4b has engine tflite; engines there: ort",
        ),
        (
            {"benchmark_type": BenchmarkType.TYPE3},
            WaitingReason.TYPE_UNSUPPORTED,
            "no board of family rpi4b supports TYPE3 with ort; supported there: TYPE1, TYPE2",
        ),
        (
            {"ram_bytes": 64 * GIB},
            WaitingReason.MEMORY,
            "no board that fits otherwise has 64 GiB of RAM; the most there is: 4 GiB",
        ),
        (
            {"storage_bytes": 64 * GIB},
            WaitingReason.STORAGE,
            "no board that fits otherwise has 64 GiB of storage; the most there is: 32 GiB",
        ),
        (
            {"target_uid": TWO},
            WaitingReason.CLUSTER_CONSTRAINT,
            f"no board {TWO} is known",
        ),
        (
            {"constraints": (Constraint(attribute="rack", operator="=", value="b"),)},
            WaitingReason.CLUSTER_CONSTRAINT,
            "no board that fits otherwise meets the constraint rack = b; found there: a",
        ),
    ],
)
def test_what_can_never_run_is_refused_with_what_is_accepted(
    asked: dict[str, Any], reason: WaitingReason, sentence: str
) -> None:
    snapshot = snapshot_of([board(ONE, attributes={"rack": "a"}), board("rpi5-0001-0001")])
    result = cycle(snapshot, [pending(**asked), pending("other")])
    assert why(result) == (reason, sentence)
    assert result.never == {"b-1"}
    assert places(result) == {"other": ONE}


def test_infeasible_benchmarks_do_not_count_for_positions_in_the_queue() -> None:
    jobs = [
        pending("never", family="rpi9", user_priority=10),
        pending("first", user_priority=9),
        pending("second", user_priority=1),
        pending("z-last", family="rpi9", user_priority=1),
    ]
    result = cycle(snapshot_of([board(ONE)]), jobs)
    content = {each: result.explanation(each) for each in result.order}
    assert {name: each.rank for name, each in content.items()} == {
        "never": 0,
        "first": 1,
        "second": 2,
        "z-last": 3,
    }
    assert [content[name].never_ahead for name in ("never", "first", "second", "z-last")] == [
        0,
        1,
        1,
        1,
    ]
    predicted = forecasts(result.decided.forecast_input)
    assert {name: each.place for name, each in predicted.items()} == {"first": 1, "second": 2}


def test_a_benchmark_that_fits_an_absent_board_only_is_not_infeasible() -> None:
    snapshot = snapshot_of([board(ONE)], offline=[ONE])
    camera = (Constraint(attribute="camera", operator="=", value="true"),)
    progress = (Constraint(attribute="dynamic.progress", operator=">", value="50"),)
    jobs = [pending(), pending("camera", constraints=camera), pending("p", constraints=progress)]
    assert cycle(snapshot, jobs).never == frozenset()


def test_a_board_outside_the_inventory_does_not_make_a_benchmark_feasible() -> None:
    result = cycle(snapshot_of([board(ONE)], unknown=[ONE]), [pending()])
    assert result.never == {"b-1"}
    assert why(result) == (
        WaitingReason.UNKNOWN_BOARD,
        "no board that hosts report is in the inventory",
    )
    assert cycle(snapshot_of([]), [pending()]).never == {"b-1"}


def test_a_start_time_holds_until_it_is_due() -> None:
    snapshot = snapshot_of([board(ONE)])
    job = pending(start_time=NOW + timedelta(minutes=5))
    assert why(cycle(snapshot, [job])) == (
        WaitingReason.START_TIME,
        "it starts at 2026-11-21 12:05:00 UTC at the earliest",
    )
    assert places(cycle(snapshot, [job], now=NOW + timedelta(minutes=5))) == {"b-1": ONE}


def test_what_is_not_ready_is_reported_as_it_was_submitted() -> None:
    fetching = WaitReason(reason=WaitingReason.FETCHING, sentence="model.onnx is being downloaded")
    result = cycle(snapshot_of([board(ONE)]), [pending(not_ready=fetching)])
    assert result.waiting["b-1"] is fetching
    assert result.placements == ()


def test_a_twin_that_is_too_old_places_nobody_and_says_how_old_it_is() -> None:
    jobs = [pending(), pending("never", family="rpi9"), pending("drained", family="rpi5")]
    boards = [board(ONE), board("rpi5-0001-0001")]
    result = cycle(snapshot_of(boards, drained=["rpi5-0001-0001"], age_s=95.0), jobs)
    assert result.placements == ()
    assert why(result) == (
        WaitingReason.CLUSTER_UNREACHABLE,
        "the last answer of the cluster is more than 1 min old (of 2026-11-21 11:58:25 UTC); "
        "nothing is placed on knowledge older than 60 s",
    )
    assert why(result, "never")[0] is WaitingReason.NO_SUCH_FAMILY
    assert why(result, "drained")[0] is WaitingReason.BOARD_DRAINED
    assert places(cycle(snapshot_of(boards, age_s=60.0), jobs)) == {
        "b-1": ONE,
        "drained": "rpi5-0001-0001",
    }


def test_a_cluster_that_never_answered_is_reported() -> None:
    result = cycle(snapshot_of([board(ONE)], age_s=math.inf), [pending()])
    assert why(result)[1].startswith("the cluster has not answered yet")


@pytest.mark.parametrize("age_s", [60.1, math.inf, math.nan])
@pytest.mark.parametrize("of", ["default", "learned", "native"])
def test_a_policy_without_staleness_decides_on_what_was_last_known(of: str, age_s: float) -> None:
    snapshot, named = snapshot_of([board(ONE)], age_s=age_s), plugins(of).filters
    stale = cycle(snapshot, [pending()], of=of)
    assert why(stale)[0] is WaitingReason.CLUSTER_UNREACHABLE
    (verdict,) = stale.explanation("b-1").verdicts
    assert (verdict.reason, verdict.never) == (WaitingReason.CLUSTER_UNREACHABLE, False)
    said = "was last heard of at " if math.isfinite(age_s) else "has not been reported yet"
    assert verdict.sentence.startswith(f"{ONE} {said}")
    others = tuple(each for each in named if each.name != "staleness")
    assert len(others) == len(named) - 1
    without = cycle(snapshot, [pending()], of=of, more_plugins={"filters": others})
    assert places(without) == {"b-1": ONE}


def test_reasons_stay_the_same_while_nothing_happens() -> None:
    jobs = [pending(f"b-{n}") for n in range(5)] + [pending("x", family="rpi9")]

    def reported(seconds: int) -> dict[str, WaitReason]:
        now = NOW + timedelta(seconds=seconds)
        snapshot = snapshot_of([board(ONE, busy=True)], age_s=5.0, now=now)
        return dict(cycle(snapshot, jobs, now=now, seed=seconds).waiting)

    assert reported(0) == reported(1) == reported(17)


def test_the_reasons_are_a_mapping_of_those_that_wait() -> None:
    result = cycle(snapshot_of([board(ONE)]), [pending("a"), pending("b")])
    assert list(result.waiting) == ["b"]
    assert len(result.waiting) == 1
    assert "a" not in result.waiting
    assert "nobody" not in result.waiting


# --- binding -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "age_s", "binding"),
    [
        (None, 0.0, Binding.STRICT),
        (None, 15.0, Binding.STRICT),
        (None, 15.1, Binding.FILTERED),
        (Binding.LOOSE, 0.0, Binding.LOOSE),
        (Binding.STRICT, 59.0, Binding.STRICT),
    ],
)
def test_the_binding_is_its_own_or_follows_the_age_of_the_twin(
    own: Binding | None, age_s: float, binding: Binding
) -> None:
    result = cycle(snapshot_of([board(ONE)], age_s=age_s), [pending(binding=own)])
    assert result.placements[0].binding is binding


def test_the_native_policy_binds_loosely_but_a_stated_board_is_kept() -> None:
    snapshot = snapshot_of([board(ONE), board(TWO)])
    (loose,) = cycle(snapshot, [pending("a")], of="native").placements
    assert (loose.binding, loose.binding_reason) == (Binding.LOOSE, "")
    jobs = [pending("a"), pending("b", target_uid=ONE, submit_time=older(9))]
    strict, other = cycle(snapshot, jobs, of="native").placements
    assert (strict.binding, strict.target_uid) == (Binding.STRICT, ONE)
    assert "names its board" in strict.binding_reason
    # Otherwise Nomad could give it the board of the first.
    assert (other.binding, other.allowed_uids) == (Binding.FILTERED, (TWO,))


def test_under_native_a_busy_board_keeps_no_job_from_the_cluster_s_queue() -> None:
    snapshot = snapshot_of([board(ONE, busy=True)])
    (placement,) = cycle(snapshot, [pending("a")], of="native").placements
    assert placement.binding is Binding.LOOSE
    assert not cycle(snapshot, [pending("a", ram_bytes=64 * GIB)], of="native").placements


@pytest.mark.parametrize(
    ("limit", "words"),
    [({"drained": [ONE]}, "is drained"), ({"unknown": [ONE]}, "is not in the inventory")],
)
def test_a_job_that_can_t_be_loose_says_why(limit: Mapping[str, Any], words: str) -> None:
    (placement,) = cycle(
        snapshot_of([board(ONE), board(TWO)], **limit), [pending(binding=Binding.LOOSE)]
    ).placements
    assert (placement.binding, placement.allowed_uids) == (Binding.FILTERED, (TWO,))
    assert placement.binding_reason.startswith(f"filtered instead of loose: {ONE} {words}")


def lists_only(uid: str, *more: str) -> Board:
    """Return a board whose engine lists TYPE4 without declaring it."""
    engine = BoardEngine("memory", supported_types=frozenset({"TYPE4", *more}))
    return replace(board(uid), engines=(engine,))


MEMORY = {"engine": "memory", "benchmark_type": BenchmarkType("TYPE4")}
"""A benchmark of a type that its engine has to declare."""


@pytest.mark.parametrize("binding", [Binding.LOOSE, Binding.FILTERED])
def test_the_cluster_gives_no_job_a_board_that_lists_its_type_and_does_not_declare_it(
    binding: Binding,
) -> None:
    snapshot = snapshot_of([lists_only(ONE), board(TWO, engines={"memory": ["TYPE4"]})])
    assert snapshot.supports["memory", "TYPE4"].tolist() == [True, True]
    assert snapshot.offers["memory", "TYPE4"].tolist() == [False, True]
    for name in ("default", "native", "learned"):
        (placement,) = cycle(snapshot, [pending(binding=binding, **MEMORY)], of=name).placements
        assert (placement.binding, placement.allowed_uids) == (Binding.FILTERED, (TWO,))
        if binding is Binding.LOOSE:
            assert placement.binding_reason == (
                f"filtered instead of loose: {ONE} lists TYPE4 with memory, "
                "but its host does not declare what that means"
            )


def test_a_type_that_no_board_declares_has_a_waiting_reason_of_its_own() -> None:
    job = pending(**MEMORY)
    assert why(cycle(snapshot_of([lists_only(ONE, "TYPE1"), lists_only(TWO)]), [job])) == (
        WaitingReason.TYPE_UNDECLARED,
        "boards of family rpi4b list TYPE4 with memory, but no host of them declares what it "
        "means; supported there: TYPE1",
    )


def test_a_record_of_a_cycle_keeps_which_types_are_not_declared() -> None:
    jobs = [pending(**MEMORY)]
    given = CycleInput(snapshot=snapshot_of([lists_only(ONE)]), pending=jobs, now=NOW)
    result = decide(given, policy(), plugins())
    again = decide(cycle_input_of(Recorder().record(given, result)), policy(), plugins())
    assert again.waiting["b-1"] == result.waiting["b-1"]
    assert again.waiting["b-1"].reason is WaitingReason.TYPE_UNDECLARED


def test_a_loose_job_with_constraints_or_a_threshold_is_filtered_and_says_so() -> None:
    constraint = Constraint(attribute="family", operator="=", value="rpi4b")
    for changes in ({"constraints": (constraint,)}, {"job_completion_threshold": 90}):
        job = pending(binding=Binding.LOOSE, **changes)
        (placement,) = cycle(snapshot_of([board(ONE)]), [job]).placements
        assert placement.binding is Binding.FILTERED
        assert "constraints or a threshold" in placement.binding_reason


@pytest.mark.parametrize("kept_out", ["drained", "unknown"])
@pytest.mark.parametrize("binding", [Binding.LOOSE, Binding.FILTERED])
def test_a_job_that_states_no_board_is_kept_from_excluded_ones(
    kept_out: str, binding: Binding
) -> None:
    boards = [board(ONE), board(TWO), board(THREE, busy=True), board("rpi5-0001-0001")]
    job = pending(binding=binding)
    (free,) = cycle(snapshot_of(boards), [job]).placements
    assert free.allowed_uids == ()
    limit: dict[str, Any] = {kept_out: [ONE]}
    (limited,) = cycle(snapshot_of(boards, **limit), [job]).placements
    assert limited.allowed_uids == (TWO, THREE)
    # An excluded board of another family is none of its business.
    elsewhere: dict[str, Any] = {kept_out: ["rpi5-0001-0001"]}
    assert cycle(snapshot_of(boards, **elsewhere), [job]).placements[0].allowed_uids == ()


def test_an_unhealthy_board_and_one_where_it_failed_are_excluded_too() -> None:
    boards = [board(ONE, healthy=False), board(TWO), board(THREE)]
    (first,) = cycle(snapshot_of(boards), [pending(binding=Binding.LOOSE)]).placements
    assert first.allowed_uids == (TWO, THREE)
    again = pending(binding=Binding.LOOSE, tried_uids=frozenset({THREE}))
    assert cycle(snapshot_of(boards), [again]).placements[0].allowed_uids == (TWO,)


def test_a_filtered_job_looks_only_at_boards_that_meet_all_it_states() -> None:
    boards = [board(ONE), board(TWO, ram_bytes=GIB)]
    snapshot = snapshot_of(boards, drained=[TWO])
    asks: dict[str, Any] = {"ram_bytes": 2 * GIB}
    (filtered,) = cycle(snapshot, [pending(binding=Binding.FILTERED, **asks)]).placements
    (loose,) = cycle(snapshot, [pending(binding=Binding.LOOSE, **asks)]).placements
    assert filtered.allowed_uids == ()  # its job's own constraint keeps it off the small board
    assert loose.allowed_uids == ()  # nor does a loose one need a list: it states its memory, too


@pytest.mark.parametrize("slow", [ONE, TWO])
def test_a_benchmark_s_own_reservation_keeps_it_off_no_board(slow: str) -> None:
    """It may run on the board that is reserved for it, and on the better one that it got."""
    runs = History(
        past_run(uid, run_s=60.0 if uid == slow else 5.0, ago_s=60.0 * number)
        for uid in (ONE, TWO)
        for number in range(1, 10)
    )
    knowledge = Knowledge(runs=runs)
    snapshot = replace(snapshot_of([board(ONE), board(TWO)]), guarded=True)
    job = pending(binding=Binding.FILTERED, start_time=NOW)
    (placement,) = cycle(snapshot, [job], knowledge=knowledge).placements
    assert placement.target_uid != slow
    assert placement.allowed_uids == (ONE, TWO)
    # One that is reserved for another benchmark is none of its boards.
    other = pending("other", target_uid=slow, start_time=NOW + timedelta(seconds=20))
    (alone,) = cycle(snapshot, [job, other], knowledge=knowledge).placements
    assert alone.allowed_uids == (placement.target_uid,)


def test_an_allow_list_has_a_bound_and_holds_the_chosen_board() -> None:
    boards = [board(f"rpi4b-0001-{n:04}") for n in range(1, 301)]
    snapshot = snapshot_of(boards, drained=[ONE])
    (placement,) = cycle(snapshot, [pending(binding=Binding.LOOSE)]).placements
    assert 2 <= len(placement.allowed_uids) <= 101
    assert placement.target_uid in placement.allowed_uids
    assert ONE not in placement.allowed_uids


# --- explanations --------------------------------------------------------------------------------


def test_an_explanation_reports_every_board() -> None:
    snapshot = snapshot_of(
        [board(ONE), board(TWO), board("rpi5-0001-0001")], drained=[TWO], reasons={TWO: "cleaning"}
    )
    explanation = cycle(snapshot, [pending("a", submit_time=older(60)), pending("b")]).explanation(
        "b"
    )
    assert explanation.policy == f"default/{load_policy('default').version}"
    assert (explanation.rank, explanation.rank_reason) == (
        1,
        "priority 80, waiting for 0 s, its run time is not known",
    )
    assert sum(explanation.priority_parts.values()) == explanation.priority == 80
    assert [each.sentence for each in explanation.verdicts] == [
        f"{ONE} goes to a benchmark ahead in the queue",
        f"{TWO} is drained (cleaning)",
        "rpi5-0001-0001 is of family rpi5, not rpi4b",
    ]
    assert [each.never for each in explanation.verdicts] == [False, False, True]
    assert explanation.verdicts[0].scores["least_loaded"] == 1.0
    assert explanation.placement is None
    assert explanation.waiting is not None
    assert not explanation.never


def test_what_each_scorer_makes_of_a_board_adds_up_to_its_cost() -> None:
    weighted_scorers = (
        WeightedScorer(scorer=Fastest()),
        WeightedScorer(scorer=Reliable()),
        WeightedScorer(scorer=BestFit()),
    )
    runs = History(
        past_run(uid, run_s=run_s, ago_s=ago_s)
        for ago_s in (3600.0, 1800.0, 900.0)
        for uid, run_s in ((ONE, 10.0), (TWO, 20.0))
    )
    result = cycle(
        snapshot_of([board(ONE), board(TWO, ram_bytes=2 * GIB)]),
        [pending(ram_bytes=GIB)],
        knowledge=Knowledge(runs=runs),
        more_plugins={"scorers": weighted_scorers},
    )
    explanation = result.explanation("b-1")
    quick, slow = explanation.verdicts
    assert quick.scores["fastest"] == pytest.approx(10.0, rel=0.05)
    assert (slow.scores["best_fit"] or 0.0) > (quick.scores["best_fit"] or 0.0)
    for each in (quick, slow):
        assert sum(part or 0.0 for part in each.cost_parts_s.values()) == pytest.approx(each.cost_s)
        assert each.cost_error_s is not None
        assert each.cost_s is not None
        assert 0.0 < each.cost_error_s < each.cost_s
    assert quick.score is not None
    assert slow.score is not None
    assert slow.score < 0.7 < quick.score
    assert [(part.scorer, part.unit) for part in explanation.scorers] == [
        ("fastest", "seconds"),
        ("reliable", "failure"),
        ("best_fit", "preference"),
    ]
    assert re.fullmatch(
        r"expected to end at 2026-11-21 12:00:10 UTC "
        rf"\(\d+ s ± [\d.]+ s\); \d+ s sooner than on {TWO}",
        explanation.choice,
    )


@pytest.mark.parametrize(
    ("other_s", "fails_every", "sentence"),
    [
        (16.0, 5, f"{TWO} is expected to be 4 s faster, but fails one run in five"),
        (24.0, 5, f"4 s sooner than on {TWO}, which fails one run in five"),
        (20.0, 5, f"{TWO} is as fast, but fails one run in five"),
        (24.0, 0, f"4 s sooner than on {TWO}"),
        (20.0, 0, f"{TWO} is expected to be as good"),
    ],
)
def test_an_explanation_compares_the_board_with_the_next_best_one(
    other_s: float, fails_every: int, sentence: str
) -> None:
    runs = [past_run(ONE, run_s=20.0, ago_s=100.0 + number) for number in range(200)]
    for number in range(200):
        failure = "board_fault" if fails_every and number % fails_every == 0 else None
        runs.append(
            past_run(
                TWO,
                run_s=None if failure else other_s,
                failure=failure,
                ago_s=100.0 + number,
            )
        )
    result = cycle(
        snapshot_of([board(ONE), board(TWO)]),
        [pending()],
        knowledge=Knowledge(runs=History(runs)),
        explore_share=0.0,
    )
    assert places(result) == {"b-1": ONE}
    choice = result.explanation("b-1").choice
    assert choice.startswith("expected to end at 2026-11-21 12:00:20 UTC (20 s ± ")
    assert choice.split("; ", 1)[1] == sentence


@pytest.mark.parametrize(
    ("nb_inference", "expected"),
    [(1_000, r"100 s ± 600 s"), (1_000_000, r"100000 s ± 100000 s")],
)
def test_the_error_of_a_run_time_is_at_most_its_time_limit(
    nb_inference: int, expected: str
) -> None:
    """Runs of 20 inferences say little of many more; their errors grow with the square."""
    runs = History(past_run(ONE, run_s=2.0, ago_s=ago_s) for ago_s in (3600.0, 1800.0, 900.0))
    result = cycle(
        snapshot_of([board(ONE)]),
        [pending(nb_inference=nb_inference)],
        knowledge=Knowledge(runs=runs, max_run_s=600.0),
    )
    assert f"({expected})" in result.explanation("b-1").choice


def test_a_placed_benchmark_is_explained_with_its_scores() -> None:
    result = cycle(snapshot_of([board(ONE)]), [pending()])
    explanation = result.explanation("b-1")
    (verdict,) = explanation.verdicts
    assert verdict.reason is None
    assert verdict.scores == {
        "fastest": None,  # nothing ran yet
        "reliable": None,
        "host_load": None,
        "affinity": None,
        "campaign_spread": None,
        "least_loaded": 1.0,
    }
    assert (verdict.score, verdict.cost_s) == (1.0, None)
    assert explanation.choice == (
        "no past run predicts these boards: chosen by the policy's preferences"
    )
    assert explanation.placement is result.placements[0]
    assert explanation.waiting is None
    with pytest.raises(KeyError):
        result.explanation("nobody")


def test_a_policy_without_scorers_does_not_claim_to_have_preferences() -> None:
    known = Knowledge(runs=History([past_run(ONE)]))
    explanation = cycle(
        snapshot_of([board(ONE)]), [pending()], of="native", knowledge=known
    ).explanation("b-1")
    assert explanation.choice == (
        "the policy has no scorers, so it prefers none of the boards that fit"
    )


# --- plugins that fail ---------------------------------------------------------------------------


class Scorer:
    name, objective, kind = "mine", "test", ScorerKind.HEURISTIC
    unit = ScoreUnit.PREFERENCE

    def __init__(self, answer: Callable[[Pairs], Any]) -> None:
        self.says = answer

    def score(self, batch: Batch, pairs: Pairs) -> Any:
        return self.says(pairs)


def nonsense(pairs: Pairs) -> Any:
    return np.full(len(pairs), 7.0)


def silent(pairs: Pairs) -> Any:
    return np.full(len(pairs), np.nan)


def test_the_heuristic_answers_when_every_scorer_fails() -> None:
    boards = [board(ONE), board(TWO), board(THREE, busy=True)]
    snapshot = snapshot_of(boards, hosts={ONE: "a", TWO: "b", THREE: "a"})
    for seed in range(5):
        result = cycle(
            snapshot,
            [pending()],
            seed=seed,
            more_plugins={"scorers": (WeightedScorer(scorer=Scorer(nonsense)),)},
        )
        assert places(result) == {"b-1": TWO}
        assert result.fallback
        assert [str(fault) for fault in result.faults] == ["mine answered: a preference above 1"]


@pytest.mark.parametrize(("seconds", "believed"), [(1e9, True), (1e11, False), (1e30, False)])
def test_seconds_that_lead_beyond_the_calendar_are_refused(seconds: float, believed: bool) -> None:
    scorer = Scorer(lambda pairs: np.full(len(pairs), seconds))
    scorer.unit = ScoreUnit.SECONDS
    result = cycle(
        snapshot_of([board(ONE)]),
        [pending()],
        more_plugins={"scorers": (WeightedScorer(scorer=scorer),)},
    )
    refused = [] if believed else ["mine answered: more than 1e+10 seconds"]
    assert [str(fault) for fault in result.faults] == refused
    assert result.explanation("b-1").choice.startswith("expected to end at") == believed
    assert places(result) == {"b-1": ONE}


def test_a_scorer_may_abstain_and_is_shown_as_having_done_so() -> None:
    result = cycle(
        snapshot_of([board(ONE)]),
        [pending()],
        more_plugins={"scorers": (WeightedScorer(scorer=Scorer(silent)),)},
    )
    (verdict,) = result.explanation("b-1").verdicts
    assert verdict.scores == {"mine": None}
    assert places(result) == {"b-1": ONE}


def test_a_cycle_is_recorded_whose_plugins_answer_numbers_of_numpy() -> None:
    class Detailed(Scorer):
        def answer(self, batch: Batch, pairs: Pairs) -> Answer:
            return Answer(scores=self.says(pairs), facts={"mean": np.mean([1.0, 2.0])})  # type: ignore[dict-item]  # as authors write it

    class Half:
        name = "half"

        def evaluate(
            self, batch: Batch, pairs: Pairs, proposals: Sequence[Proposal]
        ) -> Mapping[str, float]:
            return {each.scorer: np.float64(0.5) for each in proposals}

    own: dict[str, Any] = {
        "scorers": (WeightedScorer(scorer=Detailed(lambda pairs: np.ones(len(pairs)))),),
        "evaluator": Half(),
    }
    given = CycleInput(snapshot=snapshot_of([board(ONE)]), pending=[pending()], now=NOW)
    result = cycle(given.snapshot, given.pending, more_plugins=own)
    read = result_of(Recorder().record(given, result), replace(plugins(), **own))
    assert read.explanation("b-1") == result.explanation("b-1")
    (part,) = read.explanation("b-1").scorers
    assert part.reward == 0.5


def test_placing_goes_on_without_any_scorer() -> None:
    broken = (WeightedScorer(scorer=Scorer(lambda pairs: 1 / 0)),)
    result = cycle(
        snapshot_of([board(ONE)]), [pending()], more_plugins={"scorers": broken, "fallback": None}
    )
    assert places(result) == {"b-1": ONE}


def test_a_filter_that_fails_lets_nothing_pass_and_is_named() -> None:
    class Broken(HealthFilter):
        name = "broken"

        def admit(self, batch: Batch) -> NDArray[np.uint8]:
            raise ValueError("no answer today")

    result = cycle(snapshot_of([board(ONE)]), [pending()], more_plugins={"filters": (Broken(),)})
    assert result.placements == ()
    assert result.never == frozenset()
    assert why(result) == (
        WaitingReason.FILTER_FAILED,
        "filter broken failed: ValueError: no answer today; nothing that it would judge is placed "
        "until an operator repairs it or takes it out of the policy",
    )
    (verdict,) = result.explanation("b-1").verdicts
    assert verdict.reason is WaitingReason.FILTER_FAILED


def test_a_filter_of_accounts_that_fails_is_no_reservation_either() -> None:
    class Broken(QuotaFilter):
        name = "broken"

        def ledger(self, batch: Batch) -> Any:
            raise ValueError("no answer today")

    result = cycle(snapshot_of([board(ONE)]), [pending()], more_plugins={"filters": (Broken(),)})
    reason, sentence = why(result)
    assert reason is WaitingReason.FILTER_FAILED
    assert "broken failed: ValueError: no answer today" in sentence


def test_a_filter_whose_words_fail_still_refuses() -> None:
    class Wordless:
        name = "wordless"
        refusals = (Refusal(WaitingReason.QUOTA, never=True),)

        def admit(self, batch: Batch) -> NDArray[np.uint8]:
            return np.ones((1, batch.shape[1]), dtype=np.uint8)

        def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
            raise KeyError("x")

        def explain_infeasible(self, batch: Batch, row: int, boards: NDArray[np.intp]) -> str:
            raise KeyError("x")

    result = cycle(snapshot_of([board(ONE)]), [pending()], more_plugins={"filters": (Wordless(),)})
    assert why(result) == (
        WaitingReason.QUOTA,
        f"no known board can run it: {ONE} is refused by filter wordless",
    )


def test_a_queue_policy_that_fails_is_replaced_by_priority_and_age() -> None:
    class Broken:
        name = "broken"

        def order(self, queue: Queue) -> NDArray[np.intp]:
            return np.zeros(len(queue.ids), dtype=int)

        def reason(self, queue: Queue, job: int) -> str:
            raise ValueError

    jobs = [pending("a"), pending("b", user_priority=9), pending("c", submit_time=older(60))]
    result = cycle(snapshot_of([]), jobs, more_plugins={"queue_policy": Broken()})
    assert result.order == ("b", "c", "a")
    assert result.faults[0].plugin == "broken"
    assert result.explanation("a").rank_reason == "by priority and age"
