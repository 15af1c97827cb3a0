"""``edgeyard sim report``: tables, files, plots and the page."""

from __future__ import annotations

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from edgeyard.benchmark_api.cli import app
from edgeyard.simulator.runs import load_run, save_run
from edgeyard.simulator.scenario import (
    scenario_from_toml,
    scenario_hash,
    scenario_to_toml,
)
from tests.browser import Browser
from tests.builders.logs import swf_line, write_swf
from tests.builders.runs import Job, random_run, simulated_run

HOSTILE = "<img src=x onerror=alert(1)> & $\\frac{1}{0}$ \"'</svg><script>alert(2)</script>"


def report(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["sim", "report", *map(str, arguments)])


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    folder.mkdir()
    for seed in (1, 2):
        for policy, extra in (("quick", 0.0), ("slow", 2.0)):
            run = random_run(policy, seed, extra_s=extra)
            save_run(run, folder / f"{policy}-{seed}.npz")
    return folder


def test_the_tables_compare_policies(runs: Path) -> None:
    found = report(runs)
    assert found.exit_code == 0, found.stderr
    assert re.search(r"quick +2 +120 +120 ", found.stdout)
    assert re.search(r"slow +quick +waiting time, s +\+\S+ +\S+ to \S+ +120 +higher", found.stdout)
    assert "quick has the lowest mean bounded slowdown" in found.stdout


def test_the_json_has_runs_policies_and_comparisons(runs: Path) -> None:
    found = report(runs, "--json", "--baseline", "slow")
    assert found.exit_code == 0, found.stderr
    document = json.loads(found.stdout)
    assert [(each["policy"], each["seed"]) for each in document["runs"]] == [
        ("quick", 1),
        ("quick", 2),
        ("slow", 1),
        ("slow", 2),
    ]
    assert {each["policy"]: each["seeds"] for each in document["policies"]} == {
        "quick": 2,
        "slow": 2,
    }
    wait = next(each for each in document["comparisons"] if each["figure"] == "wait_s")
    assert (wait["first"], wait["second"], wait["pairs"]) == ("quick", "slow", 120)
    assert wait["high"] < 0
    assert wait["finding"] == "lower"


def test_csv_and_parquet_have_a_row_for_each_run_or_job(runs: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table, columns = tmp_path / "table.csv", tmp_path / "jobs.parquet"
    assert report(runs, "--csv", table).exit_code == 0
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["policy"] for row in rows] == ["quick", "quick", "slow", "slow"]
    assert float(rows[0]["mean_wait_s"]) < float(rows[2]["mean_wait_s"])
    assert rows[0]["energy_j"] == ""  # not known
    found = report(runs, "--parquet", columns, "--rows", "jobs", "--csv", table)
    assert found.exit_code == 0, found.stderr
    jobs = parquet.read_table(columns)
    assert jobs.num_rows == 240
    assert set(jobs.column("policy").to_pylist()) == {"quick", "slow"}
    assert jobs.column("deadline_s").null_count == 240
    with table.open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 240


def test_a_name_is_no_formula_of_a_spreadsheet(tmp_path: Path) -> None:
    run = simulated_run([Job(job="=1+1", start_s=0, end_s=1, user="@SUM(A1)")])
    save_run(run, tmp_path / "run.npz")
    table = tmp_path / "jobs.csv"
    assert report(tmp_path / "run.npz", "--csv", table, "--rows", "jobs").exit_code == 0
    with table.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["job"], row["user"]) == ("'=1+1", "'@SUM(A1)")


class _Page(HTMLParser):
    """Elements of a page, and the addresses that it would load."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "data", "srcset") and value:
                self.loads.append(value)
            if name == "id" and value:
                self.ids.append(value)
            if name.startswith("on"):
                self.handlers.append(name)


@pytest.mark.slow
def test_the_page_loads_nothing_and_escapes_names(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    scenario = scenario_from_toml(
        f'name = "lab"\nworld = "boards"\nduration_s = 9\ndescription = {json.dumps(HOSTILE)}\n'
        '[[lab.boards]]\nfamily = "rpi5"\ncount = 2\n[lab.arrivals]\nrate_per_hour = 6\n'
        '[[lab.arrivals.mix]]\nmodel = "squeezenet"\n'
    )
    (tmp_path / "lab.toml").write_text(scenario_to_toml(scenario))
    (tmp_path / "other.toml").write_text("no = 'scenario'")
    for policy in ("fifo", HOSTILE):
        jobs = [
            Job(job=HOSTILE, start_s=1, end_s=30, user=HOSTILE),
            Job(job=f"{HOSTILE}-2", status="pending", board=-1),
        ]
        run = simulated_run(
            jobs,
            policy=policy,
            scenario=HOSTILE,
            scenario_hash=scenario_hash(scenario),
            boards=(HOSTILE, "b"),
        )
        save_run(run, tmp_path / f"{len(policy)}.npz")
    target = tmp_path / "report.html"
    found = report(tmp_path, "--html", target, "--title", HOSTILE, "--plot", tmp_path / "plots")
    assert found.exit_code == 0, found.stderr
    text = target.read_text()
    page = _Page()
    page.feed(text)
    assert not {"script", "img", "link", "iframe", "object"} & set(page.tags)
    assert (
        page.tags.count("svg") == 6
    )  # two curves over time, two distributions, two sets of boards
    assert page.handlers == []
    for address in page.loads:
        assert address.startswith(("#", "data:image/png;base64,")), address
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert len(page.ids) == len(set(page.ids))
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
    assert "rate_per_hour = 6" in text
    assert 'name="viewport"' in text
    assert "prefers-color-scheme: dark" in text
    assert "1 job had not ended when the run did" in text


@pytest.mark.slow
def test_of_many_pairs_the_page_folds_those_without_the_first_policy(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    names = [f"policy-{number}" for number in range(5)]
    for name in names:
        save_run(random_run(name, 1), tmp_path / f"{name}.npz")
    target = tmp_path / "report.html"
    found = report(tmp_path, "--html", target)
    assert found.exit_code == 0, found.stderr
    shown, folded = (
        set(re.findall(r"<td>(\S+) − (\S+)</td>", part))
        for part in target.read_text().split("<summary>The other pairs</summary>")
    )
    assert shown == {(each, names[0]) for each in names[1:]}
    assert len(folded) == 10 - len(shown)
    assert f"only comparisons with {names[0]} are shown" in found.stderr


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_fits_a_phone(runs: Path, tmp_path: Path, browser: Browser) -> None:
    target = tmp_path / "report.html"
    found = report(runs, "--html", target)
    assert found.exit_code == 0, found.stderr
    browser.act_as_phone()
    browser.open(target.as_uri())
    assert "Pairwise comparison" in browser.text()
    width = "return [document.documentElement.scrollWidth, window.innerWidth]"
    assert browser.run(width) == [360, 360]  # tables scroll by themselves
    pictures = (
        "return [...document.querySelectorAll('svg')].map(e => e.getBoundingClientRect().width)"
    )
    widths = browser.run(pictures)
    assert isinstance(widths, list)
    assert len(widths) == 6
    assert all(200 < width <= 360 for width in widths)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["png", "svg"])
def test_plots_are_files_of_the_stated_format(tmp_path: Path, form: str) -> None:
    pytest.importorskip("matplotlib")
    save_run(random_run("a/b", 1), tmp_path / "run.npz")
    found = report(tmp_path / "run.npz", "--plot", tmp_path / "plots", "--format", form)
    assert found.exit_code == 0, found.stderr
    names = sorted(each.name for each in (tmp_path / "plots").iterdir())
    assert names == [
        f"{name}.{form}"
        for name in ("gantt-1-a-b", "queue", "slowdown-cdf", "utilisation", "wait-cdf")
    ]
    first = {"png": b"\x89PNG", "svg": b"<?xml"}[form]
    for name in names:
        assert (tmp_path / "plots" / name).read_bytes().startswith(first)


@pytest.mark.slow
def test_curves_that_lie_on_each_other_are_all_seen(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    names = [f"policy-{number}" for number in range(6)]
    for name in names:
        save_run(random_run(name, 1), tmp_path / f"{name}.npz")  # the same jobs, starts and ends
    files = [tmp_path / f"{name}.npz" for name in names]
    found = report(*files, "--plot", tmp_path / "plots", "--format", "svg")
    assert found.exit_code == 0, found.stderr
    for plot in ("queue", "utilisation", "wait-cdf"):
        text = (tmp_path / "plots" / f"{plot}.svg").read_text()
        places: dict[str, set[str]] = {}
        for x, colour in re.findall(r'<use [^>]*x="([^"]+)"[^>]*style="fill: (#\w+)', text):
            places.setdefault(colour, set()).add(x)
        marked = [its for its in places.values() if len(its) > 2]
        assert len(marked) >= len(names), plot
        others = [set[str]().union(*(each for each in marked if each is not its)) for its in marked]
        assert all(its - other for its, other in zip(marked, others, strict=True)), plot


def test_a_replayed_log_is_reported_by_the_same_code(tmp_path: Path) -> None:
    log = write_swf(
        tmp_path / "log.swf", [swf_line(1, 0, 100, 3), swf_line(2, 1, 50, 4), swf_line(4, 2.5, 90)]
    )
    for queue in ("fcfs", "sjf"):
        arguments = ["sim", "replay", str(log), "--queue", queue, "--backfill", "easy"]
        target = tmp_path / f"{queue}.npz"
        found = CliRunner().invoke(app, [*arguments, "--out", str(target)])
        assert found.exit_code == 0, found.stderr
    run = load_run(target)
    assert run.jobs.job.tolist() == ["1", "2", "4"]
    assert run.series.time_s.tolist() == [0, 1, 2.5, 92.5, 100, 150]
    assert run.series.pending.tolist() == [0, 1, 1, 1, 0, 0]
    assert run.series.busy_share.tolist() == [0.75, 0.75, 1, 0.75, 1, 0]
    found = report(tmp_path, "--json")
    rows = json.loads(found.stdout)["runs"]
    assert [each["policy"] for each in rows] == ["fcfs+easy", "sjf+easy"]
    assert rows[0]["mean_wait_s"] == 33
    assert rows[0]["utilisation"] == pytest.approx((300 + 200 + 90) / (4 * 150))


def test_wrong_arguments_are_named_and_leave_no_file(runs: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.npz"
    broken.write_bytes(b"PK\x03\x04 no run")
    empty = tmp_path / "empty"
    empty.mkdir()
    target = tmp_path / "report.html"
    for arguments, text in (
        ((tmp_path / "none.npz",), "there is no such file, folder or stored run"),
        ((empty,), "has no file of a run"),
        ((broken,), "is not a simulated run"),
        ((runs, "--baseline", "best"), "no run is of the policy 'best'"),
        ((runs, "--csv", tmp_path / "none" / "x.csv"), "there is no folder"),
        ((runs, "--csv", empty), "is a folder"),
        ((runs, "--plot", broken), "--plot"),
    ):
        found = report(*arguments, "--html", target)
        assert found.exit_code == 1, arguments
        assert text in found.stderr
        assert not target.exists()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["broken.npz", "empty", "runs"]


def test_a_later_run_replaces_one_with_the_same_seed(runs: Path, tmp_path: Path) -> None:
    save_run(random_run("quick", 1, extra_s=9.0), tmp_path / "again.npz")
    found = report(runs, tmp_path / "again.npz", "--json")
    assert "1 of the runs are left out" in found.stderr
    assert len(json.loads(found.stdout)["runs"]) == 4


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_tables_cut_names_and_never_a_figure(
    tmp_path: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longest names, and a thousand jobs that wait for months; a tenth completes under one."""
    for policy, lost in (("p" * 60 + "1", False), ("q" * 60 + "2", True)):
        jobs = [
            Job(
                job=f"j{row}",
                submit_s=float(row),
                start_s=8_000_000.0 + 1000 * row,
                end_s=8_000_900.0 + 1000 * row if not lost or row % 10 else float("nan"),
                status="running" if lost and not row % 10 else "completed",
                deadline_s=100.0,
            )
            for row in range(1000)
        ]
        save_run(
            simulated_run(jobs, policy=policy, scenario="s" * 60), tmp_path / f"{policy[0]}.npz"
        )
    monkeypatch.delenv("EDGEYARD_COLUMNS", raising=False)
    whole = {word for line in report(tmp_path).stdout.splitlines() for word in line.split()}
    monkeypatch.setenv("EDGEYARD_COLUMNS", str(width))
    shown = report(tmp_path)
    assert shown.exit_code == 0, shown.stderr
    tables = shown.stdout.split(" has the lowest")[0].splitlines()[:-1]
    assert len(tables) >= 9
    for line in tables:
        assert len(line) <= width, line
        for word in line.split():
            assert word in whole or word.endswith("…"), (word, line)


def test_a_policy_that_completes_fewer_jobs_is_not_praised(tmp_path: Path) -> None:
    """The second gives up each job that waits long: what it completes is quick."""
    for policy, gives_up in (("patient", False), ("hasty", True)):
        jobs = [
            Job(
                job=f"j{row}",
                submit_s=10.0 * row,
                start_s=float("nan") if gives_up and row % 2 else 10.0 * row + 5.0 - 4 * gives_up,
                end_s=10.0 * row + 9.0 - 4 * gives_up,
                status="expired" if gives_up and row % 2 else "completed",
                board=-1 if gives_up and row % 2 else 0,
            )
            for row in range(60)
        ]
        save_run(simulated_run(jobs, policy=policy), tmp_path / f"{policy}.npz")
    found = report(tmp_path, "--json", "--baseline", "patient")
    assert found.exit_code == 0, found.stderr
    turnaround = next(
        each for each in json.loads(found.stdout)["comparisons"] if each["figure"] == "turnaround_s"
    )
    assert turnaround["finding"] == "lower, but completed fewer jobs"
    back = json.loads(report(tmp_path, "--json", "--baseline", "hasty").stdout)["comparisons"]
    assert {each["finding"] for each in back if each["figure"] == "turnaround_s"} == {
        "higher, but completed more jobs"
    }


def test_no_missed_deadline_is_a_zero_where_there_are_deadlines(tmp_path: Path) -> None:
    jobs = [Job(job="a", start_s=1.0, end_s=2.0, deadline_s=9.0)]
    save_run(simulated_run(jobs), tmp_path / "a.npz")
    head, row = report(tmp_path).stdout.splitlines()[:2]
    assert "MISSED" in head
    assert "0" in row.split()


def test_a_scenario_without_the_baseline_is_named(tmp_path: Path) -> None:
    jobs = [Job(job="a", start_s=1.0, end_s=2.0)]
    for policy, scenario in (("x", "one"), ("y", "one"), ("y", "two"), ("z", "two")):
        run = simulated_run(jobs, policy=policy, scenario=scenario)
        save_run(run, tmp_path / f"{policy}-{scenario}.npz")
    found = report(tmp_path, "--baseline", "x")
    assert "two: no run of x, so no comparison" in found.stderr
    assert "one: no run" not in found.stderr
