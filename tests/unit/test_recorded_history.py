"""A lab's recorded history becomes a scenario of the same lab."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgeyard.errors import InvalidInput
from edgeyard.simulator.importers.history import import_history
from edgeyard.simulator.importers.machines import ImportedScenario, Selection
from edgeyard.simulator.scenario import (
    BoardGroup,
    Change,
    JobRow,
    LabScenario,
    LoadRow,
    Outage,
    PastFailure,
    PastRunRow,
    User,
)
from tests.builders.history import at, benchmark, board, load, outcome, user, write_export
from tests.builders.labs import simulate

pytest.importorskip("pyarrow")
ONE, TWO = "rpi5-0001-0001", "rpi5-0001-0002"


def imported(folder: Path) -> ImportedScenario:
    return import_history(folder, Selection(name="history"), source="--since")


def lab_of(found: ImportedScenario) -> LabScenario:
    assert found.scenario.lab is not None
    return found.scenario.lab


def jobs_of(folder: Path) -> dict[str, JobRow]:
    return {job.job_id: job for job in lab_of(imported(folder)).jobs}


def test_a_job_keeps_what_its_description_states(tmp_path: Path) -> None:
    stated = benchmark(
        "b", 5, target_uid=ONE, user_priority=9, deadline=at(500).isoformat(),
        start_time=at(60).isoformat(), user_time=90.0, user_budget=120.0, queue_timeout=300.0,
        max_retries=3, job_completion_threshold=40, preemptible=False, ram=3 << 20,
    )  # fmt: skip
    folder = write_export(tmp_path, [benchmark("a", 0), stated], [outcome("b", 60, 110)])
    job = jobs_of(folder)["b"]
    assert (job.submit_s, job.run_s, job.target_uid) == (5.0, 50.0, ONE)
    assert (job.deadline_s, job.start_s, job.queue_timeout_s) == (500.0, 60.0, 300.0)
    assert (job.user_priority, job.max_retries, job.job_completion_threshold) == (9, 3, 40)
    assert (job.user_time_s, job.user_budget, job.ram_mib) == (90.0, 120.0, 3)
    assert not job.preemptible


def test_benchmarks_that_never_ran_are_there_with_the_time_of_similar_ones(tmp_path: Path) -> None:
    folder = write_export(
        tmp_path,
        [
            benchmark("ran", 0),
            benchmark("other", 0, model="o.onnx"),
            benchmark("expired", 1, "expired", deadline=at(50).isoformat()),
            benchmark("cancelled", 2, "cancelled", ended_s=30, model="new.onnx"),
        ],
        [outcome("ran", 0, 100), outcome("other", 100, 120)],
    )
    jobs = jobs_of(folder)
    assert (jobs["expired"].run_s, jobs["cancelled"].run_s) == (100.0, 60.0)
    assert jobs["cancelled"].cancel_s == 30.0
    found = imported(folder)
    assert "2 jobs that never completed a run got the run time of similar jobs" in found.notes


def test_attempts_fail_again_unless_their_end_follows_from_the_policy(tmp_path: Path) -> None:
    folder = write_export(
        tmp_path,
        [benchmark("b", 0), benchmark("bad", 1, "failed")],
        [
            outcome("b", 0, 10, failure_category="network"),
            outcome("b", 10, 30, attempt=2, failure_category="preempted"),
            outcome("b", 30, 45, attempt=3, failure_category="cluster"),
            outcome("b", 50, 90, attempt=4),
            outcome("bad", 90, 95, failure_category="user_model"),
        ],
    )
    jobs = jobs_of(folder)
    network = PastFailure(category="network", after_s=10.0)  # type: ignore[arg-type]
    assert (jobs["b"].failures, jobs["b"].run_s) == ((network,), 40.0)
    assert [each.category for each in jobs["bad"].failures] == ["user_model"]
    run = simulate(imported(folder).scenario)
    status = dict(zip(run.jobs.job.tolist(), run.jobs.status.tolist(), strict=True))
    assert (status["b"], status["bad"]) == (2, 3)  # completed, failed


def test_a_host_that_reports_no_valid_type_does_not_spoil_the_history(tmp_path: Path) -> None:
    seen = [
        board(ONE, supports=["ort:TYPE1", "ort:TYPE4", "ort:fast", "ort:a:TYPE2"]),
        board(TWO, supports=["ort:TYPE100"]),
        board("rpi5-0001-0009", supports=[]),
    ]
    found = imported(write_export(tmp_path, [benchmark("b", 0)], [outcome("b", 0, 10)], seen))
    (group,) = lab_of(found).boards
    assert (group.uids, group.engines) == ((ONE,), {"ort": ("TYPE1", "TYPE4")})
    assert "boards without an engine that offers a type left out: 2" in found.notes
    simulate(found.scenario)


def test_all_boards_are_there_with_their_faults_outages_and_drains(tmp_path: Path) -> None:
    far = "rpi4b-0009-0001"
    odd: dict[str, Any] = {"host": "h2", "supports": ["tflite:TYPE1"], "rate": 2.0}
    seen = [
        board(ONE),
        board(ONE, 100, healthy=False),
        board(ONE, 160),
        board(TWO),
        board(TWO, 200, drained=True),
        board(TWO, 260),
        board(far, **odd),
        board(far, 300, online=False, **odd),
        board(far, 400, **odd),
        board("rpi5-0002-0001", 50, host="h3"),
    ]
    folder = write_export(
        tmp_path,
        [benchmark("b", 0)],
        [outcome("b", 0, 10), outcome("x", 290, 301, far, failure_category="cluster")],
        seen,
        [user("ada", max_running=2, share=3.0, credits=50.0)],
    )
    lab = lab_of(imported(folder))
    assert {uid for group in lab.boards for uid in group.uids} == {ONE, TWO, far, "rpi5-0002-0001"}
    assert BoardGroup(
        family="rpi4b", count=1, uids=(far,), hosts=("h2",),
        engines={"tflite": ("TYPE1",)}, ram_mib=4096, storage_mib=32768,  # type: ignore[dict-item]
    ) in lab.boards  # fmt: skip
    assert lab.outages == (
        Outage(what="board", name="rpi5-0002-0001", from_s=0, to_s=50),
        Outage(what="board", name=ONE, from_s=100, to_s=160),
        Outage(what="host", name="h2", from_s=300, to_s=400),  # its run was lost
    )
    assert lab.changes == (
        Change(at_s=200, what="drain", target_uid=TWO),
        Change(at_s=260, what="resume", target_uid=TWO),
    )
    assert lab.users == (User(name="ada", share=3.0, max_running=2, credits=50.0),)
    assert dict(lab.rates) == {"rpi4b": 2.0}


def test_boards_that_share_cores_share_them_again(tmp_path: Path) -> None:
    seen = [board(ONE, shares=[TWO]), board(TWO, shares=[ONE]), board("rpi5-0001-0003")]
    folder = write_export(tmp_path, [benchmark("b", 0)], [outcome("b", 0, 10)], seen)
    assert {(group.uids, group.sharing) for group in lab_of(imported(folder)).boards} == {
        ((ONE, TWO), 2),
        (("rpi5-0001-0003",), 1),
    }


def test_credits_bound_what_a_user_starts(tmp_path: Path) -> None:
    """100 credits: the second run of up to 60 may not start before the first one's are back."""
    folder = write_export(
        tmp_path,
        [benchmark("b1", 0, user_time=60.0), benchmark("b2", 1, user_time=60.0)],
        [outcome("b1", 0, 40), outcome("b2", 40, 80, TWO)],
        [board(ONE), board(TWO)],
        [user("ada", credits=100.0)],
    )
    run = simulate(imported(folder).scenario)
    assert run.jobs.start_s.tolist() == [0.0, 40.0]


def test_gangs_start_together_as_far_as_the_history_has_them(tmp_path: Path) -> None:
    rows = [
        *(benchmark(name, 0, count=2, campaign_id="pair") for name in ("a", "b")),
        *(benchmark(name, 0, count=3, campaign_id="trio") for name in ("c", "d", "e")),
        benchmark("half", 0, count=2, campaign_id="cut"),
        *(benchmark(name, 0, campaign_id="no gang") for name in ("f", "g")),
    ]
    folder = write_export(tmp_path, rows, [outcome("a", 0, 10)], [board(ONE), board(TWO)])
    found = imported(folder)
    assert {job.job_id: job.gang for job in lab_of(found).jobs} == {
        **{"a": "pair", "b": "pair"},
        **{"half": "", "f": "", "g": ""},
    }
    assert "1 job without the others of the gang" in found.notes
    assert "3 jobs of gangs that need more boards than the history has left out" in found.notes
    run = simulate(found.scenario)
    starts = dict(zip(run.jobs.job.tolist(), run.jobs.start_s.tolist(), strict=True))
    assert starts["a"] == starts["b"]


@pytest.mark.parametrize(
    ("benchmarks", "words"),
    [
        ([], "--since: no benchmark was submitted in the chosen time"),
        ([benchmark("b", 0, "expired")], "--since: no benchmark ran"),
        ([benchmark("b", 0, target="rpi9")], "--since: no board of the history can run any"),
    ],
)
def test_an_unusable_history_names_the_flag(
    tmp_path: Path, benchmarks: list[dict[str, object]], words: str
) -> None:
    ran = [outcome("b", 0, 10)] if benchmarks and "rpi9" in str(benchmarks) else []
    with pytest.raises(InvalidInput, match=words):
        imported(write_export(tmp_path, benchmarks, ran))


def test_a_table_that_is_missing_is_named(tmp_path: Path) -> None:
    folder = write_export(tmp_path, [benchmark("b", 0)], [outcome("b", 0, 10)])
    (folder / "boards.parquet").unlink()
    with pytest.raises(InvalidInput, match=r"boards.parquet: is missing \(accepted: a folder"):
        imported(folder)


def test_what_predictions_read_is_kept(tmp_path: Path) -> None:
    """Sizes, cores, the time limit, loads and the runs of before; also of a part of the history."""
    folder = write_export(
        tmp_path,
        [
            benchmark("before", -100),
            benchmark("b", 0, model_sha256="1" * 64, model_bytes=7_000, variant="v1"),
        ],
        [
            outcome("before", -100, -40, TWO, user_id="ben", nb_inference=50, variant="v2"),
            outcome("older", -90, -80, failure_category="thermal", benchmark_type="TYPE2"),
            outcome("b", 5, 105, run_s=80.0),
        ],
        [board(ONE, cpu_cores=4.0, max_run_s=900.0), board(TWO, max_run_s=900.0)],
        loads=[
            load("h1", -200, 0.25, 0.5),
            load("h1", 60, None, None, after_s=40),
            load("h1", 90, 1.25, float("nan"), after_s=60),
            load("elsewhere", 0, 0.5, 0.5),
        ],
    )
    found = import_history(folder, Selection(name="history", skip=1), source="--export")
    lab = lab_of(found)
    (job,) = lab.jobs
    assert (job.model, job.model_bytes, job.variant) == ("1" * 64, 7_000, "v1")
    assert (job.run_s, job.around_s, job.user_time_s) == (80.0, 20.0, None)
    assert {group.uids: group.cpu_cores for group in lab.boards} == {(ONE,): 4.0, (TWO,): None}
    assert lab.max_run_s == 900.0
    assert lab.loads == (
        LoadRow(host="h1", cpu=0.25, memory=0.5),
        LoadRow(host="h1", at_s=50.0),
        LoadRow(host="h1", at_s=75.0),
    )
    assert lab.past == (
        PastRunRow(
            target_uid=ONE, ended_s=80.0, run_s=10.0, failure="thermal",  # type: ignore[arg-type]
            model="0" * 64, user="ada", benchmark_type="TYPE2",  # type: ignore[arg-type]
        ),
        PastRunRow(
            target_uid=TWO, ended_s=40.0, run_s=60.0, model="0" * 64, user="ben",
            nb_inference=50, variant="v2",
        ),
    )  # fmt: skip


def test_a_run_longer_than_the_limit_is_not_cut_in_the_replay(tmp_path: Path) -> None:
    """It ran for 50 s under a limit that was 40 s later, and held its board for 60 s."""
    seen = [board(ONE, max_run_s=80.0), board(ONE, 30, max_run_s=40.0)]
    folder = write_export(tmp_path, [benchmark("b", 0)], [outcome("b", 0, 60, run_s=50.0)], seen)
    found = imported(folder)
    assert (lab_of(found).max_run_s, lab_of(found).jobs[0].user_time_s) == (40.0, 50.0)
    run = simulate(found.scenario)
    assert (run.jobs.status.tolist(), run.jobs.end_s.tolist()) == ([2], [60.0])
