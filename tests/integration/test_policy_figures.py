"""Figures of the benchmarks that each policy decided: in the API, the metrics and the CLI."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgeyard.benchmark_api.cli import app
from edgeyard.scheduler.model.attempt import AttemptState
from edgeyard.scheduler.model.benchmark import Failure, FailureCategory, Status
from tests.builders import records as make
from tests.builders.api import Api
from tests.builders.engine import A, Lab


@pytest.fixture
def began(api: Api) -> datetime:
    """When all benchmarks were submitted: an hour ago."""
    return api.clock.now() - timedelta(hours=1)


def ended(
    api: Api,
    began: datetime,
    benchmark_id: str,
    policy: str,
    *,
    start_s: float | None,
    end_s: float,
    user_id: str = "alice",
    status: Status = Status.COMPLETED,
    deadline_s: float | None = None,
    failures: tuple[FailureCategory, ...] = (),
) -> None:
    """Store a benchmark that was submitted an hour ago, with its attempts and its cycle."""

    def at(seconds: float) -> datetime:
        return began + timedelta(seconds=seconds)

    deadline = None if deadline_s is None else at(deadline_s)
    benchmark = make.a_benchmark(
        benchmark_id,
        user_id=user_id,
        submit_time=at(0),
        started_at=None if start_s is None else at(start_s),
        ended_at=at(end_s),
        status=status,
        description=make.a_description(deadline=deadline),
    )
    with api.store.write() as uow:
        uow.benchmarks.add(benchmark)
        for number, category in enumerate([*failures, None], start=1):
            if category is None and start_s is None:
                continue
            uow.attempts.add_all(
                [
                    make.an_attempt(
                        benchmark_id,
                        number,
                        job_id=f"{benchmark_id}-{number}",
                        state=AttemptState.ENDED,
                        started_at=at(1),
                        ended_at=at(end_s),
                        failure=None
                        if category is None
                        else Failure(category=category, sentence="it was so"),
                    )
                ]
            )
        if policy:
            uow.cycles.explain(benchmark_id, uow.cycles.add(make.a_record(policy=policy)))


@pytest.fixture
def figures(api: Api, began: datetime) -> Api:
    ended(api, began, "b-1", "default/1", start_s=10, end_s=30, deadline_s=20)
    preempted_and_lost = (FailureCategory.PREEMPTED, FailureCategory.BOARD_FAULT)
    ended(api, began, "b-2", "default/1", start_s=60, end_s=80, failures=preempted_and_lost)
    ended(
        api, began, "b-3", "own/2", start_s=None, end_s=100, status=Status.EXPIRED, deadline_s=100
    )
    ended(api, began, "b-4", "", start_s=0, end_s=50, user_id="bob")
    return api


def test_policies_are_judged_by_the_figures_of_simulations(figures: Api) -> None:
    answer = figures.as_("operator").get("/v1/policies/comparison")
    assert answer.status_code == 200, answer.text
    unknown, default, own = answer.json()["policies"]
    assert (unknown["policy"], default["policy"], own["policy"]) == ("", "default/1", "own/2")
    assert default["benchmarks"] == 2
    assert default["figures"]["wait_s"]["mean"] == 35
    assert default["figures"]["turnaround_s"]["mean"] == 55
    assert default["figures"]["bounded_slowdown"]["mean"] == (30 / 20 + 80 / 20) / 2
    assert (default["deadlines"], default["deadline_misses"]) == (1, 1)
    assert (default["preemptions"], default["failed_attempts"]) == (1, 1)
    assert own["statuses"] == {"expired": 1}
    assert own["figures"]["wait_s"] == {
        **{"jobs": 1, "at_least": 1},
        **dict.fromkeys(("mean", "low", "high", "p50", "p90", "p99", "max"), 100),
    }
    assert own["figures"]["slowdown"]["mean"] is None
    assert own["fairness"] is None


def test_only_what_ended_in_the_stated_time_counts(figures: Api, began: datetime) -> None:
    since, until = began + timedelta(seconds=60), began + timedelta(seconds=100)
    params = {"since": since.isoformat(), "until": until.isoformat()}
    answer = figures.as_("operator").get("/v1/policies/comparison", params=params)
    (only,) = answer.json()["policies"]
    assert (only["policy"], only["benchmarks"]) == ("default/1", 1)


def test_metrics_have_the_same_figures_and_name_nobody(figures: Api) -> None:
    text = figures.as_().get("/metrics").text
    for line in (
        'edgeyard_policy_benchmarks{policy="default/1",status="completed"} 2.0',
        'edgeyard_policy_benchmarks{policy="unknown",status="completed"} 1.0',
        'edgeyard_policy_wait_seconds{policy="default/1",statistic="mean"} 35.0',
        'edgeyard_policy_bounded_slowdown_ratio{policy="default/1",statistic="max"} 4.0',
        'edgeyard_policy_slowdown_ratio{policy="own/2",statistic="mean"} NaN',
        'edgeyard_policy_deadline_misses{policy="own/2"} 1.0',
        'edgeyard_policy_preemptions{policy="default/1"} 1.0',
    ):
        assert line in text
    assert "alice" not in text
    assert "b-1" not in text


def test_the_cli_shows_a_row_for_each_policy(figures: Api) -> None:
    environment = {
        "EDGEYARD_URL": figures.url,
        "EDGEYARD_TOKEN": figures.tokens["operator"],
        "EDGEYARD_COLUMNS": "200",
    }
    found = CliRunner().invoke(app, ["policies", "compare"], env=environment)
    assert found.exit_code == 0, found.stderr
    assert re.search(r"default/1 +2 +2 +35 +\S+ to \S+ +55 +2.75 +1 of 1", found.stdout)
    assert re.search(r"own/2 +1 +0 +≥ 100", found.stdout)
    assert re.search(r"\(not known\) +1", found.stdout)
    assert "no cycle was decided by a shadow policy" in found.stderr


def test_the_cycle_that_placed_a_benchmark_names_its_policy(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    benchmark_id = lab.submit()
    job_id = lab.running(benchmark_id)
    lab.complete(job_id)
    lab.turn()
    with lab.store.read() as uow:
        (found,) = uow.policies.ended(since=None, until=None, limit=10)
    assert found.benchmark_id == benchmark_id
    assert found.policy.startswith("default/")
    assert (found.status, found.attempts) == (Status.COMPLETED, 1)
    assert (found.preemptions, found.failed_attempts) == (0, 0)
