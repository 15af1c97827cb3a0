"""``edgeyard sim replay``: what it prints, writes, and refuses."""

from __future__ import annotations

import csv
import json
import os
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from edgeyard.benchmark_api.cli import app
from edgeyard.scheduler.framework.policy import read_policy
from edgeyard.simulator.runs import load_run
from tests.builders.cli import printed, refusal
from tests.builders.logs import swf_line, write_swf

NOTES = (
    "1 job with run time 0 left out",
    "3 jobs without a requested time taken to request the run time",
)
LINES = [swf_line(1, 0, 100, 3), swf_line(2, 1, 50, 4), swf_line(4, 2.5, 90), swf_line(5, 3, 0)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_swf(tmp_path / "log.swf", LINES)


def replay(log: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["sim", "replay", str(log), *options])


@pytest.mark.slow
def test_the_json_has_the_figures_of_the_jobs(log: Path) -> None:
    assert json.loads(printed(replay(log, "--backfill", "easy", "--json"))) == {
        "jobs": 3,
        "mean_wait_s": 33.0,
        "mean_bounded_slowdown": pytest.approx((1 + 149 / 50 + 1) / 3),
        "utilisation": pytest.approx((300 + 200 + 90) / (4 * 150)),
        "makespan_s": 150.0,
        "max_wait_s": 99.0,
        "notes": list(NOTES),
    }


def test_the_starts_are_seconds_of_the_log(log: Path, tmp_path: Path) -> None:
    path = tmp_path / "starts.csv"
    assert replay(log, "--backfill", "easy", "--starts", str(path)).exit_code == 0
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["job", "submit", "start", "end", "procs"],
        ["1", "0", "0", "100", "3"],
        ["2", "1", "100", "150", "4"],
        ["4", "2.5", "2.5", "92.5", "1"],
    ]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["log.swf", "starts.csv"]


def test_people_get_a_table_and_the_rules_that_were_applied(log: Path) -> None:
    found = replay(log)
    assert found.exit_code == 0
    assert "bounded slowdown (10 s)" in found.stdout
    assert "3 jobs on 4 processors" in found.stdout
    assert "no schedule of these jobs reaches a mean turnaround below" in found.stdout
    assert found.stderr.splitlines() == [f"of the log: {each}" for each in NOTES]
    assert max(map(len, found.stdout.splitlines()[:6])) <= 80


@pytest.mark.slow
@pytest.mark.parametrize("submit_s", [0, 5])
def test_a_minute_of_one_user_is_replayed_by_the_look_ahead(submit_s: int, tmp_path: Path) -> None:
    """Nothing is known of users, and a past of a minute or of an instant shows no futures."""
    lines = [swf_line(job, job * submit_s, 40 - job, 2, requested=4000) for job in range(1, 13)]
    found = replay(
        write_swf(tmp_path / "one.swf", lines), "--queue", "lookahead", "--backfill", "easy"
    )
    assert "12 jobs on 4 processors" in printed(found)
    assert "all of one user" in found.stdout
    assert "fairness" not in found.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "queue",
    ["fcfs", "sjf", "f1", "f2", "f3", "f4", "wfp3", "unicep", "fair_share", "earliest_deadline"],
)
@pytest.mark.parametrize("backfill", ["none", "easy", "conservative", "rlscheduler"])
def test_every_queue_and_backfilling_has_its_name(log: Path, queue: str, backfill: str) -> None:
    found = printed(replay(log, "--queue", queue, "--backfill", backfill, "--json"))
    assert json.loads(found)["jobs"] == 3


def test_a_policy_brings_its_queue_and_its_backfilling(log: Path, tmp_path: Path) -> None:
    policy = tmp_path / "mine.toml"
    text = read_policy("default").replace('name = "default"', 'name = "mine"', 1)
    text = re.sub(r"(?m)^queue_policy = .*$", 'queue_policy = "fifo"', text, count=1)
    policy.write_text(re.sub(r"(?m)^backfill = .*$", 'backfill = "easy"', text, count=1))
    expected = replay(log, "--backfill", "easy", "--json")
    out = tmp_path / "run.npz"
    found = printed(replay(log, "--policy", str(policy), "--json", "--out", str(out)))
    assert json.loads(found) == json.loads(expected.stdout)
    assert load_run(out).meta.policy == "mine"
    assert json.loads(replay(log, "--policy", "easy", "--json").stdout)["jobs"] == 3
    both = replay(log, "--policy", str(policy), "--queue", "sjf")
    assert "--queue: is part of the policy of --policy" in both.stderr
    assert "planner = 'met' has no effect on an SWF log" in replay(log, "--policy", "met").stderr


def test_a_part_of_the_kept_jobs(log: Path) -> None:
    part = replay(log, "--skip", "1", "--count", "1", "--json")
    assert json.loads(part.stdout)["jobs"] == 1
    found = refusal(replay(log, "--skip", "3", "--json"))
    assert "--skip:" in found
    assert "has only 3 jobs with a run time" in found


def test_a_machine_of_another_size(log: Path, tmp_path: Path) -> None:
    assert json.loads(replay(log, "--procs", "8", "--json").stdout)["max_wait_s"] == 0
    found = refusal(replay(log, "--procs", "2"))
    assert "line 2: fields 5 and 8 (processors): job 1 needs 3, and the machine has 2" in found
    found = refusal(replay(write_swf(tmp_path / "bare.swf", LINES, procs=None)))
    assert "neither MaxProcs nor MaxNodes (accepted: --procs with a number)" in found


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_jobs_that_the_rules_touched_are_counted_on_stderr(log: Path, options: tuple[str]) -> None:
    found = replay(log, *options)
    assert found.stderr.splitlines() == [f"of the log: {each}" for each in NOTES]


def test_an_unknown_queue_names_the_known_ones(log: Path) -> None:
    found = refusal(replay(log, "--queue", "sfj"))
    assert "has no 'sfj'" in found
    assert "shortest_first" in found
    assert "such as fcfs, sjf" in found


def test_a_log_that_fails_leaves_the_earlier_file_of_starts_alone(tmp_path: Path) -> None:
    path = tmp_path / "starts.csv"
    path.write_text("earlier\n")
    log = write_swf(tmp_path / "log.swf", [*LINES, swf_line(9, "nan", 5)])
    assert "line 6: field 2 (submit time) is nan" in refusal(replay(log, "--starts", str(path)))
    assert path.read_text() == "earlier\n"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["log.swf", "starts.csv"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_an_error(log: Path) -> None:
    assert "No space left" in refusal(replay(log, "--starts", "/dev/full"))


def test_starts_may_go_to_a_pipe(log: Path) -> None:
    if not os.path.exists("/dev/null"):
        pytest.skip("needs /dev/null")
    assert replay(log, "--starts", "/dev/null").exit_code == 0


def test_a_folder_that_is_missing_is_named_before_the_replay(log: Path, tmp_path: Path) -> None:
    found = refusal(replay(log, "--starts", str(tmp_path / "no" / "starts.csv")))
    assert f"--starts: there is no folder {tmp_path / 'no'}" in found


def test_the_starts_do_not_replace_the_log(log: Path, tmp_path: Path) -> None:
    """Neither by its own name nor by a link to it."""
    before = log.read_bytes()
    link = tmp_path / "starts.csv"
    link.symlink_to(log)
    for path in (log, link):
        assert "--starts: is the log itself" in refusal(replay(log, "--starts", str(path)))
    assert log.read_bytes() == before


def test_starts_and_run_are_two_files(log: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "both")
    assert "--out: is the file of --starts" in refusal(replay(log, "--starts", path, "--out", path))
    assert not Path(path).exists()


def test_a_log_that_is_missing_is_named(tmp_path: Path) -> None:
    assert "no.swf: No such file or directory" in refusal(replay(tmp_path / "no.swf"))
