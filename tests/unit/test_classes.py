"""Which fields of pending benchmarks separate classes: what filters and scorers can tell apart."""

import math
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest

from edgeyard.plugins.testing import GIB, NOW, board, pending, snapshot_of
from edgeyard.scheduler.framework.batch_builder import build_batch
from edgeyard.scheduler.model.benchmark import (
    Affinity,
    Benchmark,
    BenchmarkFile,
    BenchmarkType,
    Binding,
    Constraint,
    FileRole,
    IfUnavailable,
    Spread,
    WaitingReason,
    WaitReason,
)
from edgeyard.scheduler.model.decision import PendingBenchmark, PinGrace
from edgeyard.scheduler.prediction.history import variant_of
from tests.builders import records as make

BENCHMARK = pending(benchmark_id="b-1")

OF_THE_CLASS: dict[str, object] = {
    "family": "rpi5",
    "engine": "tflite",
    "benchmark_type": BenchmarkType.TYPE2,
    "ram_bytes": GIB,
    "storage_bytes": GIB,
    "target_uid": "rpi4b-0001-0001",
    "constraints": (Constraint(attribute="memory.ram", operator=">", value="1"),),
    "affinities": (Affinity(attribute="rack", operator="=", value="b"),),
    "spreads": (Spread(attribute="rack"),),
    "spread_group": "campaign-2",
    "spread_counts": (("rpi4b-0001-0001", 1),),
    "deadline": NOW + timedelta(hours=1),
    "user_time_s": 60.0,
    "budget": 10.0,
    "extra": '{"team": "vision"}',
    "probe": True,
    "model_sha256": "ab" * 32,
    "nb_inference": 21,
    "variant": "threads=2",
    "ends_in_time": True,
}
OF_THE_BENCHMARK: dict[str, object] = {
    "benchmark_id": "b-2",
    "user_id": "somebody-else",
    "submit_time": NOW - timedelta(hours=1),
    "user_priority": 9,
    "start_time": NOW - timedelta(minutes=1),
    "binding": Binding.LOOSE,
    "not_ready": WaitReason(reason=WaitingReason.HELD, sentence="it is held"),
    "campaign_id": "campaign-2",
    "campaign_started": True,
    "tried_uids": frozenset({"rpi4b-0001-0001"}),
    "avoid_until": (("rpi4b-0001-0001", NOW + timedelta(hours=1)),),
    "job_completion_threshold": 50,
    "model_bytes": 12345,
    "gang_id": "campaign-3",
    "gang_size": 2,
    "gang_uids": frozenset({"rpi4b-0001-0001"}),
    "cleared_uid": "rpi4b-0001-0001",
    "pin": PinGrace(if_unavailable=IfUnavailable.NOTIFY, grace_s=300.0),
}


def classes_of(*queue: PendingBenchmark) -> list[Any]:
    batch = build_batch(snapshot_of([board("rpi4b-0001-0001")]), queue, NOW, seed=1)
    return list(batch.class_of_job)


@pytest.mark.parametrize("name", OF_THE_CLASS)
def test_a_benchmark_that_differs_in_what_it_runs_or_requires_has_a_class_of_its_own(
    name: str,
) -> None:
    assert OF_THE_CLASS[name] != getattr(BENCHMARK, name)
    other = replace(BENCHMARK, **{name: OF_THE_CLASS[name]})  # type: ignore[arg-type]
    assert classes_of(BENCHMARK, other, BENCHMARK) == [0, 1, 0]


def test_scorers_see_extra_and_budget_of_each_class() -> None:
    rich = replace(BENCHMARK, extra='{"team": "vision"}', budget=10.0)
    batch = build_batch(snapshot_of([board("rpi4b-0001-0001")]), (BENCHMARK, rich), NOW, seed=1)
    assert batch.extras == ({}, {"team": "vision"})
    assert math.isnan(batch.budgets[0])
    assert batch.budgets[1] == 10.0


@pytest.mark.parametrize("name", OF_THE_BENCHMARK)
def test_what_concerns_one_benchmark_alone_does_not_split_its_class(name: str) -> None:
    assert OF_THE_BENCHMARK[name] != getattr(BENCHMARK, name)
    other = replace(BENCHMARK, **{name: OF_THE_BENCHMARK[name]})  # type: ignore[arg-type]
    assert classes_of(BENCHMARK, other) == [0, 0]


@pytest.mark.parametrize(
    "change",
    [
        {"parameters": {"threads": 2}},
        {"input": {"x": {"shape": [1, 3]}}},
        {"precision": 0.02},
        {"odt_config": {"epochs": 3}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_else_the_run_time_depends_on_makes_another_variant(change: dict[str, Any]) -> None:
    plain = make.a_benchmark()
    assert variant_of(plain) == ""
    other = replace(plain, description=replace(plain.description, **change))
    assert variant_of(other) != ""


def test_another_dataset_makes_another_variant() -> None:
    def with_data(sha256: str) -> Benchmark:
        data = BenchmarkFile(role=FileRole.DATASET, position=0, name="data.npy", sha256=sha256)
        benchmark = make.a_benchmark()
        return replace(benchmark, files=(*benchmark.files, data))

    assert variant_of(with_data("ab" * 32)) != variant_of(with_data("cd" * 32))


def test_a_new_field_of_pending_benchmarks_is_assigned_to_one_of_both() -> None:
    names = {each.name for each in fields(PendingBenchmark)}
    assert OF_THE_CLASS.keys() | OF_THE_BENCHMARK.keys() == names
