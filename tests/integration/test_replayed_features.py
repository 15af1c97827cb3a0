"""A recorded day, simulated again, shows models what they were shown at the decisions."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeyard.benchmark_api.cli.exporting import export_tables
from edgeyard.benchmark_api.settings import Settings
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.decide.cycle import CycleResult
from edgeyard.scheduler.framework.batch_builder import build_batch
from edgeyard.scheduler.framework.policy import load_policy
from edgeyard.scheduler.learning.features import COLUMNS, raw
from edgeyard.scheduler.model.benchmark import FailureCategory
from edgeyard.scheduler.model.decision import CycleInput
from edgeyard.scheduler.outcomes.rows import read_outcome_rows
from edgeyard.scheduler.store import SqlStore
from edgeyard.simulator.importers.history import TABLES, import_history
from edgeyard.simulator.importers.machines import Selection
from edgeyard.simulator.lab.world import simulate_lab
from edgeyard.simulator.scenario import (
    BoardGroup,
    JobRow,
    LabScenario,
    LoadRow,
    PastFailure,
    PastRunRow,
    Scenario,
)
from tests.virtual_service.lab import simulate_service
from tests.virtual_service.start import simulated_server

pytest.importorskip("pyarrow")

FAST, SLOW, OTHER = "fast-0001-0001", "slow-0001-0001", "slow-0001-0002"


def _job(name: str, submit_s: float, uid: str, run_s: float, **more: Any) -> JobRow:
    return JobRow(
        job_id=name,
        submit_s=submit_s,
        run_s=run_s,
        family=uid.split("-")[0],
        target_uid=uid,
        **more,
    )


DAY = Scenario(
    name="day",
    world="boards",
    duration_s=2000.0,
    lab=LabScenario(
        boards=(
            BoardGroup(family="fast", count=1, uids=(FAST,), hosts=("h1",), cpu_cores=8),
            BoardGroup(
                family="slow", count=2, uids=(SLOW, OTHER), hosts=("h1", "h2"),
                ram_mib=1024, cpu_cores=2,
            ),
        ),
        jobs=(
            _job("a", 10.0, FAST, 30.0, model="small", model_bytes=5_000, around_s=7.0),
            _job("b", 200.0, SLOW, 150.0, model="large", model_bytes=9_000_000),
            _job("c", 250.0, FAST, 40.0, model="small", model_bytes=5_000, user_time_s=90.0),
            _job("d", 500.0, FAST, 200.0, model="large", model_bytes=9_000_000, ram_mib=300),
            _job(
                "e", 600.0, OTHER, 20.0, model="small", model_bytes=5_000,
                failures=(PastFailure(category=FailureCategory.USER_MODEL, after_s=12.0),),
            ),
            _job("f", 900.0, OTHER, 20.0, model="small", model_bytes=5_000, nb_inference=50),
            _job("g", 1200.0, FAST, 20.0, model="small", model_bytes=5_000),
        ),
        past=(
            PastRunRow(target_uid=FAST, ended_s=7200.0, run_s=33.0, model="small"),
            PastRunRow(
                target_uid=SLOW, ended_s=3600.0, run_s=9.0, model="large",
                failure=FailureCategory.BOARD_FAULT,
            ),
        ),
        loads=(
            LoadRow(host="h1", cpu=0.25, memory=0.5),
            LoadRow(host="h2", at_s=100.0, cpu=0.75, memory=0.1),
            LoadRow(host="h1", at_s=400.0, cpu=0.9, memory=0.6),
            LoadRow(host="h2", at_s=750.0),
        ),
        max_run_s=900.0,
    ),
)  # fmt: skip
"""Benchmarks that each name their board, on hosts whose loads change between the decisions."""


def test_a_replayed_day_shows_models_what_was_kept_with_its_decisions(tmp_path: Path) -> None:
    """Every column, of every decision; log_history_s and the like to a thousandth."""
    policy, known = load_policy("default"), registry(entry_points=False)
    plugins = known.resolve(policy)
    url = f"sqlite:///{tmp_path}/edgeyard.db"
    stated: dict[str, Any] = {"default_user_time_s": 900.0}
    settings = Settings(data_dir=tmp_path, **stated)
    boot = partial(
        simulated_server,
        settings=settings,
        policy=policy,
        plugins=known,
        lease_s=600.0,
        full_repair_s=60.0,
    )
    simulate_service(DAY, policy.name, url, boot)
    store = SqlStore(url)
    try:
        kept = read_outcome_rows(store)
    finally:
        store.close()
    assert len(kept) == 7
    assert sum(kept.left_out.values()) == 2  # what ended before the day was decided by no cycle
    export_tables(tmp_path / "out", TABLES, None, None, tmp_path, None)
    replayed = import_history(tmp_path / "out", Selection(name="history")).scenario

    boards: list[str] = []
    found: dict[str, list[float]] = {name: [] for name in COLUMNS}

    def watch(now_s: float, given: CycleInput, result: CycleResult) -> None:
        batch = build_batch(given.snapshot, given.pending, given.now, given.seed, given.knowledge)
        for placement in result.placements:
            job = [each.benchmark_id for each in given.pending].index(placement.benchmark_id)
            row = np.array([batch.class_of_job[job]])
            place = np.array([given.snapshot.uids.index(placement.target_uid)])
            boards.append(placement.target_uid)
            for name, values in raw(batch, row, place, list(COLUMNS)).items():
                found[name].append(float(values[0]))

    simulate_lab(replayed, policy, plugins, watch=watch)
    assert boards == kept.boards.tolist()
    for name, values in kept.values.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-3, atol=1e-6, err_msg=name)
    known_columns = {name for name, values in kept.values.items() if np.isfinite(values).any()}
    assert {
        "log_model_bytes", "log_board_cores", "host_cpu", "host_memory", "host_busy",
        "log_history_s", "failure_rate", "log_bound_s",
    } <= known_columns  # fmt: skip
    assert np.isnan(kept.values["host_cpu"]).any()
    assert len(set(kept.values["host_busy"].tolist())) > 1
