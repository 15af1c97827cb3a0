"""Importers: what a trace becomes, which rules apply, and what is refused with line and field."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from edgeyard.benchmark_api.cli import app
from edgeyard.simulator.importers import columns, machines
from edgeyard.simulator.scenario import (
    NodeGroup,
    NodeJob,
    PastFailure,
    Scenario,
    load_scenario,
    scenario_hash,
)
from edgeyard.training.worlds.simulated_nodes import node_columns
from tests.builders.cli import refusal
from tests.builders.history import benchmark, outcome, write_export
from tests.builders.logs import swf_line, write_swf
from tests.traces import trace

TABLE_3 = "job_id,cpus_req,mem_req,time_run\n74426695482326,5,15360,415\n"
NODES = "node_id,cpu_cores,memory,cpu_load,memory_load\nr8015356-n976057,48,393216,3.62,4.08\n"
SLURM = (
    "id_job,id_user,nodes_alloc,cpus_req,mem_req,timelimit,time_submit,time_start,time_end,tres_req"
)
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
    "deletion_time,scheduled_time"
)
OPENB_NODES = (
    "sn,cpu_milli,memory_mib,gpu,model\na,32000,1000,2,T4\nb,32000,1000,2,T4\nc,8000,9,0,\n"
)
PER_CPU = 2**63


def imported(file: Path, *options: str | Path) -> tuple[Scenario, Result]:
    out = file.parent / "out.json"
    result = run(file, *options, "--out", out)
    assert result.exit_code == 0, result.output
    return load_scenario(out), result


def run(file: Path, *options: str | Path) -> Result:
    return CliRunner().invoke(app, ["scenarios", "import", str(file), *map(str, options)])


def write(path: Path, text: str) -> Path:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def jobs_of(scenario: Scenario) -> tuple[NodeJob, ...]:
    assert scenario.nodes is not None
    return scenario.nodes.jobs


def test_table_3_of_decice_becomes_json(tmp_path: Path) -> None:
    jobs = write(tmp_path / "jobs.csv", TABLE_3)
    nodes = write(tmp_path / "nodes.csv", NODES)
    scenario, _ = imported(jobs, "--nodes", nodes)
    assert (scenario.name, scenario.world) == ("jobs", "nodes")
    assert jobs_of(scenario) == (
        NodeJob(job_id="74426695482326", submit_s=0, run_s=415, cpus=5, memory_mb=15360),
    )
    assert scenario.nodes is not None
    assert scenario.nodes.nodes == (
        NodeGroup(
            cpu_cores=48,
            memory_mb=393216,
            name="node1",
            node_ids=("r8015356-n976057",),
            cpu_load=0.0754,
            memory_load=0.0408,
        ),
    )


def test_slurm_logs_share_a_jobs_needs_by_its_nodes(tmp_path: Path) -> None:
    rows = (
        '7,u1,2,80,1000,60,50,60,160,"1=80,2=2000,4=2,1002=4"',
        f'8,u2,1,4,{PER_CPU + 100},4294967295,40,45,50,"1=4,1001=1"',
        '9,u2,1,4,100,0,45,0,0,""',  # never started
    )
    path = write(tmp_path / "slurm-log.csv.gz", "\n".join([SLURM, *rows]) + "\n")
    scenario, result = imported(path)
    assert jobs_of(scenario) == (
        NodeJob(job_id="8", submit_s=0, run_s=5, cpus=4, memory_mb=400, gpus=1, user="u2"),
        NodeJob(
            job_id="7",
            submit_s=10,
            run_s=100,
            cpus=40,
            memory_mb=1000,
            gpus=2,
            nodes=2,
            requested_s=3600,
            user="u1",
        ),
    )
    assert "1 job that never ran, or with run time 0, left out" in result.stderr
    assert scenario.name == "slurm-log"


def test_alibaba_pods_get_shares_of_gpus(tmp_path: Path) -> None:
    rows = (
        "p1,1500,10,1,250,T4|V100,LS,Succeeded,100,300,200",
        "p2,1000,10,0,0,,LS,Pending,100,300,",
        "p3,32000,10,2,1000,,LS,Failed,50,60,50",
    )
    path = write(tmp_path / "pods.csv", "\n".join([PODS, *rows]) + "\n")
    nodes = write(tmp_path / "nodes.csv", OPENB_NODES)
    scenario, result = imported(path, "--nodes", nodes)
    assert jobs_of(scenario) == (
        NodeJob(job_id="p3", submit_s=0, run_s=10, cpus=32, memory_mb=10, gpus=2),
        NodeJob(job_id="p1", submit_s=50, run_s=100, cpus=1.5, memory_mb=10, gpus=0.25),
    )
    for note in ("1 job that never ran", "request a certain GPU model may get any GPU"):
        assert note in result.stderr
    assert scenario.nodes is not None
    assert [(each.count, each.gpus) for each in scenario.nodes.nodes] == [(2, 2), (1, 0)]
    assert [each.node_ids for each in scenario.nodes.nodes] == [("a", "b"), ("c",)]
    assert "--nodes: is missing" in run(path).stderr


def test_an_swf_log_keeps_the_jobs_that_a_replay_keeps(tmp_path: Path) -> None:
    lines = [swf_line(1, 10, 100, 3), swf_line(2, 11, -1, 4), swf_line(3, 12, 0), swf_line(4, 9, 5)]
    path = write_swf(tmp_path / "log.swf", lines)
    scenario, result = imported(path, "--name", "mine")
    assert [(job.job_id, job.submit_s, job.run_s, job.cpus) for job in jobs_of(scenario)] == [
        ("4", 0, 5, 1),
        ("1", 1, 100, 3),
        ("2", 2, 10, 4),
    ]
    assert scenario.name == "mine"
    assert "1 job with run time 0 left out" in result.stderr
    skipped, _ = imported(path, "--skip", "1", "--count", "1", "--node", "2x8:64")
    assert [job.job_id for job in jobs_of(skipped)] == ["1"]
    assert skipped.nodes is not None
    assert skipped.nodes.nodes == (NodeGroup(count=2, cpu_cores=8, memory_mb=64, name="node1"),)


def test_a_requested_time_of_0_in_a_log_refuses_no_other_job(tmp_path: Path) -> None:
    lines = [swf_line(1, 0, 5, requested=0), swf_line(2, 1, 5, requested=9)]
    scenario, result = imported(write_swf(tmp_path / "log.swf", lines))
    assert [job.requested_s for job in jobs_of(scenario)] == [None, 9]
    assert "1 job with a requested time of 0 taken to request none" in result.stderr


def test_a_labs_history_becomes_jobs_on_its_boards(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    outcomes = [
        outcome("b1", 0, 3, failure_category="network"),
        outcome("b1", 10, 60, attempt=2),
        outcome("b2", 60, 80),
    ]
    write_export(tmp_path, [benchmark("b2", 30), benchmark("b1", 0)], outcomes)
    scenario, _ = imported(tmp_path)
    assert scenario.lab is not None
    assert [(job.job_id, job.submit_s, job.run_s) for job in scenario.lab.jobs] == [
        ("b1", 0, 50),
        ("b2", 30, 20),
    ]
    assert scenario.lab.jobs[0].failures == (PastFailure(category="network", after_s=3.0),)  # type: ignore[arg-type]
    (tmp_path / "outcomes.parquet").write_text("x" * 100)
    assert "is not a Parquet file" in run(tmp_path).stderr
    (tmp_path / "outcomes.parquet").unlink()
    assert "outcomes.parquet: is missing" in run(tmp_path).stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("job,cpus,mem\n1,2,3\n", ["the format cannot be recognized"]),
        ("job_id,cpus_req,time_run\n1,2,3\n", ["line 1", "no column mem_req"]),
        ("job_id,cpus_req,mem_rec,time_run\n1,2,3,4\n", ["line 1", "did you mean mem_rec?"]),
        ("job_id,cpus_req,mem_req\n1,2,3\n", ["line 1", "time_run nor the columns time_start"]),
        (TABLE_3 + "1,2\n", ["line 3", "has 2 fields", "4 fields"]),
        (TABLE_3 + "1,2,3,nan\n", ["line 3", "field time_run is nan"]),
        (TABLE_3 + "1,2,3,inf\n", ["line 3", "field time_run is inf"]),
        (TABLE_3 + "1,2,3,-4\n", ["line 3", "field time_run is -4", "from 0"]),
        (TABLE_3 + "1,x,3,4\n", ["line 3", "field cpus_req is 'x'", "a number"]),
        (TABLE_3 + "1,2.5,3,4\n", ["line 3", "field cpus_req is 2.5", "a whole number"]),
        (TABLE_3 + ",2,3,4\n", ["line 3", "field job_id is empty"]),
        (TABLE_3 + "74426695482326,2,3,4\n", ["line 3", "occurs twice: on line 2 too"]),
        (TABLE_3 + "1,49,3,4\n", ["line 3", "fields cpus_req, mem_req", "--drop-large"]),
        (TABLE_3 + '1,"2,3,4\n', ["is not valid CSV"]),
        (TABLE_3[:33], ["has a header, but no rows"]),
        (TABLE_3.replace("415", "0"), ["no job ran"]),
        (TABLE_3 + "1,2,3,4\n" + "\ud800", ["utf-8"]),
        ("", ["the format cannot be recognized"]),
    ],
    ids=[
        *("header", "missing", "near", "time", "cut", "nan", "inf", "negative", "text", "half"),
        *("empty", "twice", "large", "quote", "no rows", "none ran", "bytes", "empty file"),
    ],
)
def test_a_wrong_line_is_refused_and_nothing_is_written(
    tmp_path: Path, text: str, words: list[str]
) -> None:
    path = tmp_path / "jobs.csv"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    out = tmp_path / "out.json"
    refused = refusal(run(path, "--out", out, "--node", "2x48:4000000"))
    assert all(word in refused for word in words), refused
    assert [each.name for each in tmp_path.iterdir()] == ["jobs.csv"]


def test_jobs_that_no_node_can_run_are_left_out_on_demand(tmp_path: Path) -> None:
    path = write(tmp_path / "jobs.csv", TABLE_3 + "1,49,3,4\n2,4,3,4\n")
    scenario, result = imported(path, "--node", "48:20000", "--drop-large")
    assert [job.job_id for job in jobs_of(scenario)] == ["74426695482326", "2"]
    assert "1 job that no node can run left out" in result.stderr


def test_a_supercloud_log_without_stated_nodes_leaves_out_what_its_machine_cannot_run(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "jobs.csv", TABLE_3 + "1,49,3,4\n2,4,3,4\n")
    scenario, result = imported(path)
    assert [job.job_id for job in jobs_of(scenario)] == ["74426695482326", "2"]
    assert "1 job that no node can run left out" in result.stderr


def test_imported_nodes_keep_their_ids_in_the_simulated_world(tmp_path: Path) -> None:
    nodes = write(
        tmp_path / "nodes.csv", NODES + "b,8,64,0,0\nr8015356-n976058,48,393216,3.62,4.08\n"
    )
    scenario, _ = imported(write(tmp_path / "jobs.csv", TABLE_3), "--nodes", nodes)
    assert scenario.nodes is not None
    names = node_columns(scenario.nodes).names
    assert names == ("r8015356-n976057", "r8015356-n976058", "b")


def test_damaged_compression_and_too_many_rows_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = "".join(f"{number},1,1,1\n" for number in range(300))
    path = write(tmp_path / "jobs.csv.gz", TABLE_3 + rows)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    options = ("--out", tmp_path / "out.json")
    assert "damaged or incomplete" in run(path, "--format", "supercloud", *options).stderr
    path.write_bytes(whole)
    with monkeypatch.context() as small:
        small.setattr(machines, "MAX_JOBS", 200)
        refused = run(path, *options)
        assert "has 301 jobs that ran" in refused.stderr
        assert "--count 200 or less" in refused.stderr
        small.setattr(columns, "MAX_ROWS", 200)
        assert "has more than 200 rows" in run(path, *options).stderr
    assert not (tmp_path / "out.json").exists()


def test_options_of_another_format_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "jobs.csv", TABLE_3)
    folder = ("--format", "edgeyard", "--drop-large")
    assert "--drop-large: is not for edgeyard files" in run(tmp_path, *folder).stderr
    assert "--node: cannot read '4x'" in run(path, "--node", "4x").stderr
    nodes = write(tmp_path / "nodes.csv", NODES + NODES.splitlines()[1] + "\n")
    assert "can't be combined with --nodes" in run(path, "--node", "4:1", "--nodes", nodes).stderr
    assert "occurs twice: on line 2 too" in run(path, "--nodes", nodes).stderr
    negative = write(tmp_path / "negative.csv", NODES.replace("3.62", "-1"))
    assert "line 2: field cpu_load is -1" in run(path, "--nodes", negative).stderr


@pytest.mark.slow
def test_the_published_traces_are_read_whole(tmp_path: Path) -> None:
    supercloud = trace("mit_supercloud_sample.csv.gz")
    nodes = trace("alibaba_openb_node_list_all_node.csv.gz")
    pods = trace("alibaba_openb_pod_list_default.csv.gz")
    found = {}
    everything: tuple[tuple[Path, tuple[str | Path, ...]], ...] = (
        (supercloud, ()),
        (pods, ("--nodes", nodes)),
    )
    for source, options in everything:
        path = tmp_path / source.name
        shutil.copy(source, path)
        scenario, _ = imported(path, *options)
        assert scenario.nodes is not None
        count = sum(group.count for group in scenario.nodes.nodes)
        found[source.name.split("_")[0]] = (len(scenario.nodes.jobs), count)
    assert found == {"mit": (9611, 704), "alibaba": (7255, 1523)}


def test_what_is_imported_is_stored_with_its_source(
    tmp_path: Path, sqlite_template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = tmp_path / "scenarios.db"
    shutil.copy(sqlite_template, db)
    monkeypatch.setenv("EDGEYARD_SCENARIO_DB", str(db))
    path = write(tmp_path / "jobs.csv", TABLE_3)
    assert run(path, "--tag", "supercloud").exit_code == 0
    listed = CliRunner().invoke(app, ["scenarios", "list", "--json"])
    (row,) = json.loads(listed.stdout)
    written, _ = imported(path)
    assert row["sha256"] == scenario_hash(written)
    assert (row["jobs"], row["source"], row["tags"]) == (1, "import jobs.csv", ["supercloud"])
