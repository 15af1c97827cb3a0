"""A recorded cycle explains what the cycle itself explained, and decides the same again."""

from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from edgeyard.plugins.testing import NOW, sample_pending, sample_snapshot
from edgeyard.scheduler.decide.cycle import decide
from edgeyard.scheduler.decide.record import Recorder, cycle_input_of, policy_of, result_of
from edgeyard.scheduler.model.benchmark import BenchmarkType
from edgeyard.scheduler.model.decision import BoardHolder, CycleInput, Snapshot
from edgeyard.scheduler.model.history import History, PastRun, RunKind
from edgeyard.scheduler.model.knowledge import HostLoad, Knowledge, Lease
from tests.builders.decision import plugins, policy


@st.composite
def cycles(draw: st.DrawFn) -> CycleInput:
    seed = draw(st.integers(0, 50))
    snapshot = sample_snapshot(draw(st.integers(0, 12)), seed)
    starts = st.sampled_from([None, None, NOW, NOW + timedelta(minutes=5)])
    waiting = [
        replace(each, start_time=draw(starts))
        for each in sample_pending(draw(st.integers(0, 15)), seed)
    ]
    holders = [
        BoardHolder(
            benchmark_id=f"h-{uid}",
            target_uid=uid,
            priority=draw(st.integers(1, 100)),
            progress=draw(st.none() | st.floats(0, 100)),
            preemptible=True,
            started_at=draw(st.sampled_from([None, NOW - timedelta(minutes=3)])),
            strict=draw(st.booleans()),
        )
        for uid in snapshot.uids[: draw(st.integers(0, 3))]
    ]
    kind = RunKind(engine="ort", benchmark_type=BenchmarkType.TYPE1, model_sha256="ab" * 32)
    runs = tuple(
        PastRun(
            benchmark_id=f"past-{number}",
            user_id="ann",
            target_uid="rpi4b-0001-0001",
            family="rpi4b",
            kind=kind,
            run_s=10.0 + number,
            failure=None,
            ended_at=NOW - timedelta(hours=30 - number),
        )
        for number in range(draw(st.integers(0, 30)))
    )
    return CycleInput(
        snapshot=snapshot,
        pending=waiting,
        now=NOW,
        holders=holders,
        knowledge=Knowledge(
            runs=History(runs),
            host_loads={"pi-host": HostLoad(cpu=0.5, memory=0.1)},
            leases=(
                Lease(
                    lease_id="l",
                    target_uid="x86-0001-0001",
                    since=NOW,
                    until=NOW + timedelta(hours=1),
                    reason="fan",
                ),
            ),
            weights={"least_loaded": 0.7},
        ),
        seed=draw(st.integers(0, 3)),
    )


@settings(max_examples=40, deadline=None)
@given(cycles(), st.sampled_from(["default", "native"]))
def test_a_record_explains_as_its_cycle_did(given_: CycleInput, name: str) -> None:
    result = decide(given_, policy(name), plugins(name))
    restored = result_of(Recorder().record(given_, result), plugins(name))
    assert restored.order == result.order
    assert restored.placements == result.placements
    assert restored.preemptions == result.preemptions
    for each in given_.pending:
        assert restored.explanation(each.benchmark_id) == result.explanation(each.benchmark_id)


@settings(max_examples=40, deadline=None)
@given(cycles(), st.sampled_from(["default", "native"]))
def test_a_record_decides_the_same_byte_for_byte(given_: CycleInput, name: str) -> None:
    recorder = Recorder()
    first = recorder.record(given_, decide(given_, policy(name), plugins(name)))
    again = cycle_input_of(first)
    assert list(again.knowledge.runs) == list(given_.knowledge.runs)
    second = Recorder().record(again, decide(again, policy_of(first), plugins(name)))
    assert second.parts == first.parts
    assert second.digest == first.digest


def test_what_stayed_the_same_is_the_same_bytes() -> None:
    snapshot, recorder = sample_snapshot(9), Recorder()

    def parts(snapshot: Snapshot, seed: int) -> dict[str, bytes]:
        taken = CycleInput(snapshot=snapshot, pending=sample_pending(9), now=NOW, seed=seed)
        return dict(recorder.record(taken, decide(taken, policy(), plugins())).parts)

    first, second = parts(snapshot, 1), parts(snapshot, 2)
    third = parts(replace(snapshot, busy=~snapshot.busy), 2)
    assert first["snapshot"] == second["snapshot"] != third["snapshot"]
    assert first["policy"] == second["policy"]
    assert first["outcome"] != second["outcome"] or first["knowledge"] != second["knowledge"]
