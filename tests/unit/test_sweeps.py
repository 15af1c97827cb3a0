"""Sweeps of parameters: flags, job files and Python, the Pareto front, and its figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from edgeyard.benchmark_api.cli.report import report_page
from edgeyard.benchmark_api.figures.plots import plot_figure
from edgeyard.benchmark_api.figures.results import front_figures
from edgeyard.benchmark_api.figures.svg import svg_document, svg_figure
from edgeyard.benchmark_api.sdk import Client
from edgeyard.benchmark_api.sdk.comparison import compare
from edgeyard.benchmark_api.sdk.fronts import fronts_of, with_fronts
from edgeyard.devices.runner.engine import TensorSpec
from edgeyard.devices.runner.feeds import described, given_problems, random_feeds
from edgeyard.errors import InvalidInput, RunFailed
from tests.builders.answers import benchmark, campaign, problem, results, row, workload
from tests.builders.cli import printed, refusal, run
from tests.fakes.api_server import Answer, FakeServer

SUBMIT = (
    *("submit", "--model", "net.onnx", "--runtime", "ort", "--type", "TYPE1"),
    *("--target", "rpi4b"),
)
ACCEPTED = {
    "campaign_id": "campaign-1",
    "benchmarks": [{"benchmark_id": name, "status": "pending"} for name in ("a", "b")],
    "links": {"self": "http://lab/v1/campaigns/campaign-1"},
    "warnings": [],
    "left_out": [],
}
ROWS = TensorSpec("x", ("n", 4), "float32")


def alternative(name: str, p50_ms: float, rows_per_s: float, mib: float, **more: Any) -> Any:
    """A result of a sweep; its batch size is that of its name, e.g. ``2x8``: threads x rows."""
    threads, batch = map(int, name.split("x"))
    work = workload(
        parameters={"threads": threads, "batch_size": batch},
        inputs=[{"name": "x", "shape": [batch, 4], "dtype": "float32"}],
    )
    numbers = {"p50_low_ms": p50_ms * 0.99, "p50_high_ms": p50_ms * 1.01, "rows_per_s": rows_per_s}
    whole = {"p50_ms": p50_ms, "ram_peak_bytes": mib * 2**20, "workload": work, **numbers}
    return row(name, **(whole | more))


SWEPT = (
    alternative("1x1", 10.0, 100.0, 50.0),  # little memory
    alternative("2x1", 6.0, 160.0, 60.0),  # the lowest latency
    alternative("4x1", 7.0, 150.0, 70.0),  # beaten by 2x1 in all
    alternative("1x8", 40.0, 200.0, 90.0),  # the highest throughput
    alternative("2x8", 40.0, 200.0, 95.0),  # beaten in memory alone
)


def swept(server: FakeServer, number: int = 0) -> Any:
    """The matrix of parameters of a submission."""
    body: Any = server.of("POST", "/v1/campaigns")[number].json
    return body["matrix"]["parameters"]


def on_front(rows: Any) -> dict[Any, object]:
    return {each["benchmark_id"]: each["on_front"] for each in with_fronts(rows)}


def test_flags_of_a_sweep_make_a_matrix_of_parameters(server: FakeServer) -> None:
    server.on("POST", "/v1/campaigns", Answer(ACCEPTED, 202))
    server.on("GET", "/v1/campaigns/campaign-1", campaign(benchmark("a"), benchmark("b")))
    found = run(*SUBMIT, "--sweep", "threads=1,2,4", "--sweep", "batch=1,8", "--parameter", "a=b")
    assert found.exit_code == 0, found.output
    body: Any = server.of("POST", "/v1/campaigns")[0].json
    assert body["matrix"] == {"parameters": {"threads": [1, 2, 4], "batch_size": [1, 8]}}
    assert body["description"]["parameters"] == {"a": "b"}


def test_values_of_a_sweep_are_read_as_a_parameter_is(server: FakeServer) -> None:
    server.on("POST", "/v1/campaigns", Answer(ACCEPTED, 202))
    server.on("GET", "/v1/campaigns/campaign-1", campaign(benchmark("a"), benchmark("b")))
    words = ("--sweep", "fp16=true,false", "--sweep", "mode=basic, all", "--sweep", "c=[[1,2],3]")
    assert run(*SUBMIT, *words).exit_code == 0
    matrix = swept(server)
    assert matrix == {"fp16": [True, False], "mode": ["basic", "all"], "c": [[1, 2], 3]}


def test_a_type_of_an_engine_keeps_its_own_parameter_batch(server: FakeServer) -> None:
    server.on("POST", "/v1/campaigns", Answer(ACCEPTED, 202))
    server.on("GET", "/v1/campaigns/campaign-1", campaign(benchmark("a"), benchmark("b")))
    assert run(*SUBMIT[:5], "--type", "TYPE7", *SUBMIT[7:], "--sweep", "batch=1,8").exit_code == 0
    matrix = swept(server)
    assert matrix == {"batch": [1, 8]}


def test_a_parameter_that_is_given_twice_names_the_sweep(server: FakeServer) -> None:
    twice = refusal(run(*SUBMIT, "--parameter", "threads=1", "--parameter", "threads=2"))
    assert "--parameter: 'threads' is given twice" in twice
    assert "--sweep threads=" in twice
    assert server.asked == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["threads=1", "threads=2"], "--sweep: 'threads' is given twice"),
        (["threads"], "--sweep: cannot read 'threads'"),
        (["threads="], "--sweep: cannot read 'threads='"),
        (["threads=,"], "--sweep: 'threads=,' has no values"),
        (["threads=[]"], "--sweep: 'threads=[]' has no values"),
        (["threads=[1"], "--sweep: 'threads=[1' is not JSON"),
        (["threads=1,Infinity"], "--sweep: 'threads=1,Infinity' is not a finite number"),
        (["x=[[1e999]]"], "--sweep: 'x=[[1e999]]' is not a finite number"),
        (["batch=1,8", "batch_size=1"], "--sweep: 'batch_size' is given twice"),
    ],
)
def test_a_sweep_that_cannot_be_read_is_refused(
    server: FakeServer, words: list[str], problem: str
) -> None:
    flags = [word for each in words for word in ("--sweep", each)]
    assert problem in refusal(run(*SUBMIT, *flags))
    assert server.asked == []


def test_a_clone_is_not_swept(server: FakeServer) -> None:
    refused = refusal(run("submit", "--clone", "b-1", "--sweep", "threads=1,2"))
    assert "--sweep: makes several benchmarks, and a clone is one" in refused
    assert server.asked == []


def test_a_refused_value_names_the_flag_of_the_sweep(server: FakeServer) -> None:
    errors = [
        {
            "pointer": "/matrix/parameters/threads",
            "reason": "0: has a wrong value",
            "accepted": "1 or more",
        }
    ]
    wrong = problem(422, "invalid_input", "wrong") | {"errors": errors}
    server.on("POST", "/v1/campaigns", Answer(wrong, 422))
    assert "--sweep threads: 0: has a wrong value" in refusal(
        run(*SUBMIT, "--sweep", "threads=0,1")
    )


def test_python_and_job_files_sweep_too(server: FakeServer, tmp_path: Path) -> None:
    server.on("POST", "/v1/campaigns", Answer(ACCEPTED, 202))
    server.on("GET", "/v1/campaigns/campaign-1", campaign(benchmark("a"), benchmark("b")))
    given: Any = {
        "model": "net.onnx",
        "runtime": "ort",
        "benchmark_type": "TYPE1",
        "target": "rpi4b",
    }
    with Client(server.url) as client:
        submitted = client.submit(**given, sweep={"threads": (1, 2)})
        assert [each.benchmark_id for each in submitted] == ["a", "b"]
        wrong: Any
        for wrong in ({}, {"threads": []}, {"threads": 1}, {"threads": "12"}):
            with pytest.raises(InvalidInput, match="/sweep"):
                client.submit(**given, sweep=wrong)
    job = tmp_path / "job.json"
    job.write_text(json.dumps({**given, "sweep": {"threads": [1, 2]}}))
    assert run("submit", str(job)).exit_code == 0
    assert [swept(server, number) for number in (0, 1)] == [{"threads": [1, 2]}] * 2


def test_the_front_has_what_no_other_result_beats_in_every_respect() -> None:
    assert on_front(SWEPT) == {"1x1": True, "2x1": True, "4x1": False, "1x8": True, "2x8": False}
    (front,) = fronts_of(SWEPT)
    metrics = [(each.metric.name, each.metric.better) for each in front.objectives]
    assert metrics == [("p50", "lower"), ("rows_per_s", "higher"), ("ram_peak", "lower")]


def test_a_metric_that_one_result_lacks_does_not_decide() -> None:
    without = [SWEPT[0], SWEPT[1], SWEPT[2] | {"ram_peak_bytes": None}]
    assert on_front(without) == {"1x1": False, "2x1": True, "4x1": False}


def test_a_front_says_how_many_invalid_results_it_leaves_out() -> None:
    (front,) = fronts_of([*SWEPT[:2], SWEPT[2] | {"verdict": "invalid"}])
    assert len(front.rows) == 2
    assert front.sentence.endswith("; 1 invalid, not judged")
    assert "invalid" not in fronts_of(SWEPT[:2])[0].sentence


INVALID = SWEPT[1] | {"verdict": "invalid"}


def tokens(name: str, prompt_length: int, output_length: int, **more: object) -> Any:
    """A result of a sweep of a language model."""
    lengths = {"prompt_length": prompt_length, "output_length": output_length}
    stated = {"parameters": {**lengths, **more}, "metric": f"of {output_length}", "inputs": []}
    work = workload(benchmark_type="GENAI", engine="ort-genai", **stated)
    return row(name, benchmark_type="GENAI", workload=work)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (
            [tokens("a", 16, 8), tokens("b", 256, 8)],
            "net has no front: prompts and outputs of other lengths are other work",
        ),
        (
            [tokens("a", 16, 1), tokens("b", 16, 8)],
            "net has no front: prompts and outputs of other lengths are other work",
        ),
        (
            [alternative("1x1", 10.0, 100.0, 50.0), INVALID],
            "net has no front: 1 of 2 results are valid, and it takes two with different "
            "parameters",
        ),
        (
            [
                *(tokens(f"a{each}", 256, 8, threads=each) for each in (1, 2)),
                tokens("b", 16, 8, threads=1),
                tokens("c", 16, 8, threads=2) | {"verdict": "invalid"},
            ],
            "net (pp16+tg8) has no front: 1 of 2 results are valid, and it takes two with "
            "different parameters",
        ),
        (
            [
                tokens("a", 16, 8, threads=1),
                tokens("b", 16, 8, threads=2) | {"verdict": "invalid"},
                tokens("c", 256, 8, threads=1),
                tokens("d", 256, 8, threads=2) | {"verdict": "invalid"},
            ],
            "net (pp256+tg8) has no front: 1 of 2 results are valid, and it takes two with "
            "different parameters",
        ),
        ([tokens("a", 16, 8, threads=1), tokens("b", 16, 8, threads=2)], ""),
        ([row("a"), row("b", verdict="invalid")], ""),
        ([tokens("a", 16, 8)], ""),
    ],
)
def test_a_sweep_without_a_front_states_why(server: FakeServer, rows: Any, why: str) -> None:
    server.on("GET", "/v1/results", {"items": rows})
    ids = [each["benchmark_id"] for each in rows]
    for each in ids:
        server.on("GET", f"/v1/benchmarks/{each}/results", results(each))
    shown = " ".join(printed(run("results", *ids, "--html", "page.html")).split())
    assert ("has no front" in shown) is bool(why)
    assert why in shown
    assert why in Path("page.html").read_text()


def test_energy_decides_by_row_where_the_same_is_measured() -> None:
    measured = {"runs_per_s": 25.0, "energy_scope": "board"}
    rows = [
        row | measured | {"energy_j": joules}
        for row, joules in zip(SWEPT[3:], (0.8, 0.7), strict=True)
    ]
    (front,) = fronts_of(rows)
    assert front.objectives[-1].metric.sentence == "energy_row_j in J, lower is better"
    assert front.objectives[-1].of(rows[0]) == pytest.approx(0.8 / 8)
    assert list(front.on_front) == [True, True], "less energy outweighs memory"
    (other,) = fronts_of([rows[0], rows[1] | {"energy_scope": "processor"}])
    assert list(other.on_front) == [True, False]


def test_invalid_results_and_other_work_are_not_judged() -> None:
    best = alternative("8x1", 0.1, 9e9, 1.0, verdict="invalid")
    other = alternative("8x2", 0.1, 9e9, 1.0, model="another.onnx")
    alike = [row("p", p50_ms=1.0), row("q", p50_ms=2.0)]
    found = on_front([*SWEPT, best, other])
    assert (found["8x1"], found["8x2"], found["2x1"]) == (None, None, True)
    assert on_front(alike) == {"p": None, "q": None}, "no sweep: their parameters are equal"


def test_equal_results_are_both_on_the_front() -> None:
    same = [alternative(name, 5.0, 100.0, 50.0) for name in ("1x1", "2x1")]
    assert on_front(same) == {"1x1": True, "2x1": True}


def test_a_higher_primary_metric_is_better_where_it_says_so() -> None:
    tokens = {"primary_metric": "tokens_per_s", "primary_unit": "1/s", "primary_better": "higher"}
    many = alternative("1x1", 9.0, 1.0, 5.0, benchmark_type="TYPE7", primary_value=90.0, **tokens)
    few = alternative("2x1", 9.0, 1.0, 5.0, benchmark_type="TYPE7", primary_value=80.0, **tokens)
    assert on_front([few, many]) == {"1x1": True, "2x1": False}


def test_table_report_and_picture_mark_the_front(server: FakeServer) -> None:
    ids = [each["benchmark_id"] for each in SWEPT]
    server.on("GET", "/v1/campaigns/campaign-1", campaign(*map(benchmark, ids)))
    server.on("GET", "/v1/results", {"items": list(SWEPT)})
    words = ("results", "--campaign", "campaign-1")
    table = printed(run(*words, "--html", "page.html", "--plot", "front.svg"))
    (head,) = [line for line in table.splitlines() if "FRONT" in line]
    place = head.index("FRONT")
    marks = [line[place : place + 5].strip() for line in table.splitlines() if "threads=" in line]
    assert sorted(marks) == ["no", "no", "yes", "yes", "yes"]
    assert "rows_per_s in 1/s, higher is better" in " ".join(table.split())
    assert "Pareto front" in Path("front.svg").read_text()
    page = Path("page.html").read_text()
    assert "<th>Front" in page
    assert "On the front: no other result" in page
    listed = json.loads(printed(run(*words, "--json")))
    assert {each["benchmark_id"]: each["on_front"] for each in listed} == on_front(SWEPT)


def test_a_comparison_without_a_sweep_is_as_before() -> None:
    rows = with_fronts(compare([row("p", p50_ms=1.0), row("q", p50_ms=2.0)]))
    assert front_figures(rows) == []
    assert "Front" not in report_page(rows, "")


def test_the_figure_of_a_language_model_names_the_request() -> None:
    rows = [
        tokens(f"{length}x{threads}", length, 8, threads=threads) | {"runs_per_s": 9.0}
        for length in (16, 256)
        for threads in (1, 2)
    ]
    titles = [figure.title for figure in front_figures(rows)]
    assert [each.rpartition(", ")[2] for each in titles] == ["pp16+tg8", "pp256+tg8"]


def test_the_figure_has_a_panel_for_each_metric_and_marks_the_front(tmp_path: Path) -> None:
    (figure,) = front_figures(SWEPT)
    assert [axis.label for axis in figure.axes] == [
        "rows per second (higher is better)",
        "peak memory, MiB (lower is better)",
    ]
    assert figure.points[0].values == [100.0, 50.0]
    svg = ElementTree.fromstring(svg_document(figure))
    marks = svg.findall(".//{*}path[@class='edgeyard-mark edgeyard-comparable']")
    assert len(marks) == 2 * len(SWEPT)
    words = "".join(svg.itertext())
    assert "3 of 5 are on the front" in words
    assert "2 threads=2, batch_size=1 · on the front" in words.replace("\u2068", "")
    page = svg_figure(figure)
    assert page.count("<td>yes") == 3
    assert "style=" not in page
    assert "not drawn" not in page
    (lacking,) = front_figures([*SWEPT, alternative("8x8", 9.0, 9.0, 9.0, verdict="invalid")])
    for drawn in (svg_figure(lacking), svg_document(lacking)):
        assert "1 invalid, not drawn" in drawn
    plot_figure(figure, tmp_path / "front.svg")
    assert (tmp_path / "front.svg").stat().st_size > 5000


class TestRowsOfRandomData:
    def test_an_open_first_dimension_has_the_batch_size(self) -> None:
        feeds = random_feeds([ROWS], {}, batch_size=8)
        assert feeds["x"].shape == (8, 4)
        assert described([ROWS], {}, feeds, 8)["x"]["invented"] == ["values are floats from 0 to 1"]

    @pytest.mark.parametrize(
        ("inputs", "given", "batch_size", "words"),
        [
            ([ROWS], {}, 0, "not a whole number from 1 to 65536"),
            ([ROWS], {}, True, "not a whole number from 1 to 65536"),
            ([ROWS], {}, "8", "not a whole number from 1 to 65536"),
            ([TensorSpec("x", (1, 4), "float32")], {}, 8, "the model has 1 rows in input 'x'"),
            ([ROWS], {"x": {"shape": [2, 4]}}, 8, "the shape stated has 2 rows in input 'x'"),
            ([TensorSpec("s", (), "float32")], {}, 8, "have no dimension for rows"),
        ],
    )
    def test_a_batch_size_that_can_not_be_is_the_users_matter(
        self, inputs: Any, given: Any, batch_size: object, words: str
    ) -> None:
        with pytest.raises(RunFailed, match=words) as refused:
            random_feeds(inputs, given, batch_size=batch_size)
        assert refused.value.category == "user_input"
        assert refused.value.sentence.startswith("parameters/batch_size: ")

    def test_a_stated_shape_of_as_many_rows_is_taken(self) -> None:
        given = {"x": {"shape": [8, 4]}}
        assert random_feeds([ROWS], given, batch_size=8)["x"].shape == (8, 4)
        assert given_problems([ROWS], given, 8) == []
