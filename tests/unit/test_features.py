"""Columns for models: what they compute has a version, and is the same in training and in use."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from benchmarks.examples import Run, board_of, examples
from benchmarks.predictors import FAILURE_COLUMNS
from edgeyard.devices.attributes import attributes_of, board_from_attributes
from edgeyard.devices.machine import machine_attributes
from edgeyard.devices.model import Host, LocalSlice
from edgeyard.plugins.testing import NOW, all_pairs, board, pending, snapshot_of
from edgeyard.scheduler.engine import queue_cache
from edgeyard.scheduler.framework.batch_builder import build_batch, kind_of
from edgeyard.scheduler.learning.features import COLUMNS, features_version, raw
from edgeyard.scheduler.model.benchmark import (
    Benchmark,
    BenchmarkFile,
    BenchmarkType,
    FileRole,
    JobDescription,
)
from edgeyard.scheduler.model.decision import CycleInput
from edgeyard.scheduler.model.history import History, PastRun
from edgeyard.scheduler.model.knowledge import Knowledge
from edgeyard.scheduler.twin.document import (
    read_twin_data,
    twin_data,
    write_twin_data,
)
from edgeyard.scheduler.twin.twin import Twin
from edgeyard.training.ste.cycle_inputs import cycle_input
from tests.builders.columns import digest_of, sample


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_that_computes_something_else_has_another_digest(name: str) -> None:
    column = COLUMNS[name]
    digest = digest_of(column)
    assert digest == column.digest, (
        f"column {name} computes other values than those of its digest; if this is meant, state "
        f'digest "{digest}" in features.py and run `make docs`: models that read it have to be '
        "trained again"
    )
    assert digest_of(column, lambda value: value * 1.001) != digest
    assert digest_of(column, lambda value: value + 0.001) != digest


def test_the_sample_has_missing_values_of_each_column_that_may_miss() -> None:
    batch = sample()
    pairs = all_pairs(batch)
    values = raw(batch, pairs.rows, pairs.boards, list(COLUMNS))
    missing = {name for name, each in values.items() if np.isnan(each).any()}
    assert missing == {
        "log_budget", "log_asked_ram_bytes", "log_model_bytes", "log_board_cores", "host_cpu",
        "host_memory",
    }  # fmt: skip
    assert all(np.isfinite(each).any() for each in values.values())


@pytest.mark.parametrize(
    ("offline", "share"),
    [([], 0.5), (["rpi4b-0001-0003"], 1 / 3), (["rpi4b-0001-0001", "rpi4b-0001-0002"], 0.5)],
)
def test_utilisation_is_the_busy_share_of_the_boards_that_are_online(
    offline: list[str], share: float
) -> None:
    # the second and the third are busy
    boards = [board(f"rpi4b-0001-000{number}", busy=number in (2, 3)) for number in range(1, 5)]
    batch = build_batch(snapshot_of(boards, offline=offline), [pending()], NOW, 0, Knowledge())
    pairs = all_pairs(batch)
    values = raw(batch, pairs.rows, pairs.boards, ["lab_utilisation"])["lab_utilisation"]
    assert values.tolist() == pytest.approx([share] * len(pairs))


def test_utilisation_is_missing_where_no_board_is_online() -> None:
    batch = build_batch(
        snapshot_of([board("rpi4b-0001-0001")], offline=["rpi4b-0001-0001"]), [pending()], NOW, 0,
        Knowledge(),
    )  # fmt: skip
    pairs = all_pairs(batch)
    values = raw(batch, pairs.rows, pairs.boards, ["lab_utilisation"])["lab_utilisation"]
    assert len(values) == 1
    assert np.isnan(values).all()


def test_the_version_of_inputs_is_that_of_their_columns_alone() -> None:
    version = features_version(["log_history_s", "log_bound_s", "log_bound_s?"])
    assert version == features_version(["log_bound_s", "log_history_s"])
    assert version != features_version(["log_history_s"])


RUN = Run(
    group="g",
    board="emumid-0001-0001",
    family="emumid",
    model="5" * 64,
    engine="ort",
    nb_inference=12,
    run_s=3.0,
    user_time_s=45.0,
    model_bytes=123_456,
    ram_bytes=1 << 29,
    cores=2,
)
PAST = [replace(RUN, run_s=2.0), replace(RUN, run_s=2.5), replace(RUN, board="other", run_s=9.0)]


def input_in_use(run: Run) -> CycleInput:
    """Return what the scheduler reads of a real board and a real benchmark like those of a run."""
    cores = LocalSlice(cpus=tuple(range(run.cores or 1)), threads=1)
    board = replace(board_of(run.board, run), attributes={}, local=cores)
    published = attributes_of(replace(board, attributes=machine_attributes(board)))
    twin = Twin([replace(board, attributes={})])
    twin.refresh([Host("h", "h", True, (board_from_attributes(published),))], NOW)
    benchmark = Benchmark(
        benchmark_id="one",
        user_id="ada",
        submit_time=NOW - timedelta(hours=1),
        description=JobDescription(
            model="net.onnx",
            runtime=run.engine,
            benchmark_type=BenchmarkType.TYPE1,
            target=run.family,
            nb_inference=run.nb_inference,
            user_time_s=run.user_time_s,
        ),
        files=(
            BenchmarkFile(
                role=FileRole.MODEL,
                position=0,
                name="net.onnx",
                sha256=run.model,
                size_bytes=run.model_bytes,
            ),
        ),
    )
    pending = queue_cache.pending_of(benchmark)
    history = History(
        PastRun(
            benchmark_id=f"past-{row}",
            user_id="ada",
            target_uid=each.board,
            family=each.family,
            kind=kind_of(pending),
            run_s=each.run_s,
            failure=each.failure or None,
            ended_at=NOW - timedelta(hours=2),
        )
        for row, each in enumerate(PAST)
    )
    return CycleInput(
        snapshot=twin.snapshot(NOW, drained={}, holders={}),
        pending=[pending],
        now=NOW,
        knowledge=Knowledge(runs=history),
    )


def posted_to_a_twin(given: CycleInput) -> CycleInput:
    """Return what the test environment's scheduler reads of the same."""
    body = write_twin_data(twin_data(given))
    return cycle_input(read_twin_data(body), runs=given.knowledge.runs)


@pytest.mark.parametrize("user_time_s", [45.0, None])
def test_a_model_reads_the_same_in_use_as_in_training(user_time_s: float | None) -> None:
    run = replace(RUN, user_time_s=user_time_s)
    trained = examples([run], PAST, FAILURE_COLUMNS).values
    given = input_in_use(run)
    for each in (given, posted_to_a_twin(given)):
        batch = build_batch(each.snapshot, each.pending, each.now, 0, each.knowledge)
        pairs = all_pairs(batch)
        used = raw(batch, pairs.rows, pairs.boards, FAILURE_COLUMNS)
        for name in FAILURE_COLUMNS:
            assert np.isfinite(used[name]).all(), name
            assert used[name] == pytest.approx(trained[name], abs=1e-9), name


def test_the_queue_of_a_family_counts_its_own_benchmarks_and_its_online_boards() -> None:
    boards = [board(f"{family}-0001-000{row}") for family, row in (("a", 1), ("a", 2), ("b", 1))]
    jobs = [pending(f"job-{row}", family=family) for row, family in enumerate("aaab")]
    snapshot = snapshot_of(boards, offline=["a-0001-0002"])
    batch = build_batch(snapshot, jobs, NOW, 0, Knowledge())
    pairs = all_pairs(batch)
    values = raw(batch, pairs.rows, pairs.boards, ["log_family_queue"])["log_family_queue"]
    by_family = {batch.families[row]: value for row, value in zip(pairs.rows, values, strict=True)}
    assert by_family == pytest.approx({"a": np.log(1 + 3 / 1), "b": np.log(1 + 1 / 1)})


def test_the_queue_of_a_family_is_missing_where_none_of_its_boards_is_online() -> None:
    snapshot = snapshot_of([board("a-0001-0001")], offline=["a-0001-0001"])
    batch = build_batch(snapshot, [pending(family="a")], NOW, 0, Knowledge())
    pairs = all_pairs(batch)
    values = raw(batch, pairs.rows, pairs.boards, ["log_family_queue"])["log_family_queue"]
    assert np.isnan(values).all()
