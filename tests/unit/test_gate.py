"""The gate for regressions: decisions, refusals and the files that CI reads."""

from __future__ import annotations

import itertools
import json
import math
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from xml.etree import ElementTree

import pytest
from onnx import helper

from edgeyard.benchmark_api.sdk import Client
from edgeyard.benchmark_api.sdk.comparison import CHECK_TAG
from edgeyard.benchmark_api.sdk.gate import interval_of, student_quantile
from tests.builders.answers import (
    accepted,
    benchmark,
    campaign,
    dry_run,
    problem,
    row,
    user_file,
    workload,
)
from tests.builders.cli import printed, refusal, run
from tests.builders.model_files import a_model_file
from tests.builders.runner import model_of
from tests.fakes.api_server import Answer, FakeServer, ReceivedRequest

pytestmark = pytest.mark.slow  # all tests here take some ten seconds together

BOARD = "rpi4b-0001-0001"


def measured(server: FakeServer, ratios: list[float], **last: object) -> None:
    """Answer alternating runs: candidates are slower by these ratios; order swaps each pair."""
    server.on("GET", "/v1/benchmarks/base", benchmark("base", target_uid=BOARD))
    answers, rows = [], []
    for number, ratio in enumerate(ratios):
        sides = [(f"a{number}", 10.0), (f"b{number}", 10.0 * ratio)]
        for name, p50 in reversed(sides) if number % 2 else sides:
            answers.append(Answer(accepted(name), 202))
            changes = last if name.startswith("b") else {}
            rows.append({"items": [row(name, **({"p50_ms": p50} | changes))]})
            server.on("GET", f"/v1/benchmarks/{name}", benchmark(name, target_uid=BOARD))
    previews = [dry_run(), dry_run()]
    server.on("POST", "/v1/benchmarks/base/clone", *previews, *answers)
    server.on("GET", "/v1/results", *rows)


def submissions(server: FakeServer, path: str) -> list[ReceivedRequest]:
    """Return the requests that submitted a run, without dry runs."""
    return [each for each in server.of("POST", path) if "dry_run" not in each.query]


CHECK = ("check", "--baseline", "base", "--parameter", "threads=1")


def test_a_candidate_that_is_not_slower_passes_and_runs_alternate(server: FakeServer) -> None:
    measured(server, [1.001, 0.999, 1.0, 1.0])
    found = json.loads(printed(run(*CHECK, "--max-slowdown", "3 %", "--json")))
    assert found["decision"] == "passed"
    assert found["high"] < 0.03
    assert found["pairs"][0]["baseline_id"] == "a0"
    bodies = [request.json for request in submissions(server, "/v1/benchmarks/base/clone")]
    assert all(isinstance(body, dict) and body["target_uid"] == BOARD for body in bodies)
    changed = ["parameters" in body for body in bodies if isinstance(body, dict)]
    assert changed[:4] == [False, True, True, False]
    assert all(isinstance(body, dict) and body["tags"] == [CHECK_TAG] for body in bodies)


def test_markdown_shows_names_as_they_are(server: FakeServer) -> None:
    done = run("check", "--baseline", "<b>a|b", "-m", "net.onnx", "--markdown", "check.md")
    assert done.exit_code == 1
    text = Path("check.md").read_text()
    assert "&lt;b&gt;a\\|b" in text
    assert "<b>" not in text


def test_a_slower_candidate_fails_with_the_files_that_ci_reads(server: FakeServer) -> None:
    measured(server, [1.10, 1.101, 1.099, 1.1])
    done = run(*CHECK, "--junit", "check.xml", "--markdown", "check.md")
    assert done.exit_code == 2
    assert "failed: +10.0" in done.stdout
    suite = ElementTree.parse("check.xml").getroot()
    assert (suite.get("failures"), suite.get("errors")) == ("1", "0")
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert "the slowdown is more than 3.00%" in (failure.get("message") or "")
    text = Path("check.md").read_text()
    assert text.startswith("### Benchmark check failed\n")
    assert text.count("\n| a") == 3


def test_what_the_pairs_do_not_decide_is_stated(server: FakeServer) -> None:
    measured(server, [1.0, 1.2, 0.9])
    done = run(*CHECK, "--max-pairs", "3", "--junit", "check.xml")
    assert done.exit_code == 4
    assert "undecided" in done.stdout
    assert "3 pairs did not decide it" in done.stdout
    assert "(95 %: " in done.stdout  # one look
    assert ElementTree.parse("check.xml").getroot().get("errors") == "1"


def test_only_pairs_that_count_are_counted_and_the_level_is_that_of_the_looks(
    server: FakeServer,
) -> None:
    measured(server, [1.0, 1.2, 0.9, 1.3])
    rows = [
        {"items": [row(f"{side}{n}", p50_ms=10.0 * (r if side == "b" else 1.0), verdict=verdict)]}
        for n, (r, verdict) in enumerate(
            [(1.0, "invalid"), (1.2, "comparable"), (0.9, "comparable"), (1.3, "comparable")]
        )
        for side in ("ba" if n % 2 else "ab")
    ]
    server.on("GET", "/v1/results", *rows)
    done = run(*CHECK, "--max-pairs", "4")
    assert done.exit_code == 4
    assert "the 3 of 4 pairs that count did not decide it" in done.stdout
    assert "(97.5 %: " in done.stdout


def test_a_spent_budget_ends_the_check_and_cancels_what_runs(server: FakeServer) -> None:
    measured(server, [1.0])
    server.on("GET", "/v1/benchmarks/a0", benchmark("a0", "running"))
    server.on("POST", "/v1/benchmarks/a0/cancel", Answer(benchmark("a0", "cancelled"), 202))
    done = run(*CHECK, "--budget", "0.01")
    assert done.exit_code == 4
    assert "the budget of 0.01 s was spent after 0 pairs" in done.stdout
    assert len(server.of("POST", "/v1/benchmarks/a0/cancel")) == 1


def test_invalid_numbers_do_not_count_and_end_the_check(server: FakeServer) -> None:
    busy = {"code": "other_load", "sentence": "The runs waited 85% of the time."}
    measured(server, [1.01, 1.02, 1.0, 1.0], verdict="invalid", reasons=[busy])
    done = run(*CHECK, "--markdown", "check.md")
    assert done.exit_code == 4
    shown, why = done.stdout, "the candidate is invalid: The runs waited 85% of the time"
    assert (
        f"3 pairs do not count, because a number of each is invalid (of the last pair, {why})"
        in shown
    )
    assert ("+1.00%!" in shown, "+2.00%!" in shown, "+0.00%!" in shown) == (True, True, True)
    assert f"pair 1 does not count: {why}" in shown
    assert f"(+1.00%!); the pair does not count: {why}" in done.stderr
    text = Path("check.md").read_text()
    assert "| +1.00%! |" in text
    assert f"- pair 1 does not count: {why}." in text


def test_programs_get_the_ratio_of_a_pair_that_does_not_count_and_why(server: FakeServer) -> None:
    busy = {"code": "other_load", "sentence": "The runs waited 85% of the time."}
    measured(server, [1.01, 1.02, 1.0, 1.0], verdict="invalid", reasons=[busy])
    found = json.loads(run(*CHECK, "--json").stdout)
    assert (found["decision"], found["slowdown"]) == ("undecided", None)
    pair = found["pairs"][0]
    assert (pair["ratio"], pair["counts"]) == (1.01, False)
    assert pair["reasons"] == ["the candidate is invalid: The runs waited 85% of the time"]
    measured(server, [1.01, 1.02, 1.0, 1.0], verdict="invalid", reasons=[busy])
    assert "85%" in run(*CHECK, "-o", "csv").stdout


def test_a_pair_without_a_latency_has_no_ratio(server: FakeServer) -> None:
    measured(server, [1.0, 1.0, 1.0, 1.0], p50_ms=None)
    done = run(*CHECK)
    assert done.exit_code == 4
    assert "pair 1: a number was not measured; the pair does not count" in done.stderr
    assert "pair 1 does not count: a number was not measured" in done.stdout


def test_other_work_is_refused(server: FakeServer) -> None:
    measured(server, [1.0], workload=workload(batch_size=32))
    assert "--baseline: does other work than the candidate: batch size" in refusal(run(*CHECK))


def test_other_inputs_are_refused_before_a_board_is_used(server: FakeServer) -> None:
    measured(server, [1.0])
    inputs = [{"name": "x", "shape": [32, 64], "dtype": "float32"}]
    other = dry_run(workload=workload(inputs=inputs))
    server.on("POST", "/v1/benchmarks/base/clone", dry_run(), other)
    refused = refusal(run(*CHECK, "--junit", "check.xml"))
    assert "other work than the candidate: inputs (x 1×3×224×224" in refused
    assert "against x 32×64 float32)" in refused
    assert submissions(server, "/v1/benchmarks/base/clone") == []
    assert ElementTree.parse("check.xml").getroot().get("errors") == "1"


def test_a_candidate_that_no_board_can_run_is_refused(server: FakeServer) -> None:
    measured(server, [1.0])
    why = {"code": "no_such_family", "sentence": "no board is of family nano"}
    server.on("POST", "/v1/benchmarks/base/clone", dry_run(would="never", waiting_reason=why))
    assert "--target: no board can run it: no board is of family nano" in refusal(run(*CHECK))


@pytest.mark.parametrize(("status", "exit_code"), [("failed", 3), ("cancelled", 5)])
def test_a_run_without_a_result_ends_the_check_with_its_files(
    server: FakeServer, status: str, exit_code: int
) -> None:
    measured(server, [1.001, 1.002])
    server.on("GET", "/v1/benchmarks/b1", benchmark("b1", status))
    ended = run(*CHECK, "--junit", "check.xml", "--markdown", "check.md")
    assert ended.exit_code == exit_code
    assert f"b1 {status}" in ended.stderr or f"b1 was {status}" in ended.stderr
    assert "error: +0.10%" in ended.stdout
    assert ElementTree.parse("check.xml").getroot().get("errors") == "1"
    assert Path("check.md").read_text().count("\n| a0") == 1


def test_a_baseline_that_is_deleted_meanwhile_ends_the_check_with_its_files(
    server: FakeServer,
) -> None:
    measured(server, [1.001])
    gone = Answer(problem(404, "not_found", "there is no benchmark 'base'"), 404)
    runs = [Answer(accepted(name), 202) for name in ("a0", "b0")]
    server.on("POST", "/v1/benchmarks/base/clone", dry_run(), dry_run(), *runs, gone)
    ended = run(*CHECK, "--junit", "check.xml")
    assert ended.exit_code == 1
    assert "there is no benchmark 'base'" in ended.stderr
    assert "error: +0.10%" in ended.stdout
    message = ElementTree.parse("check.xml").getroot().find("testcase/error")
    assert message is not None
    assert "there is no benchmark 'base'" in (message.get("message") or "")


@pytest.mark.parametrize("field", ["model", "dataset"])
def test_a_baseline_whose_file_was_deleted_is_named_before_a_board_is_used(
    server: FakeServer, field: str
) -> None:
    server.on("GET", "/v1/benchmarks/base", benchmark("base", target_uid=BOARD))
    reason = {"pointer": f"/{field}", "reason": "a.onnx is no longer stored", "accepted": "another"}
    gone = problem(422, "invalid_input", errors=[reason])
    server.on("POST", "/v1/benchmarks/base/clone", Answer(gone, 422))
    refused = refusal(run("check", "--baseline", "base", "-m", "uploaded.onnx"))
    assert "--baseline: a.onnx is no longer stored" in refused
    assert submissions(server, "/v1/benchmarks/base/clone") == []


def test_a_candidate_whose_file_was_deleted_is_named(server: FakeServer) -> None:
    server.on("GET", "/v1/benchmarks/base", benchmark("base", target_uid=BOARD))
    reason = {"pointer": "/model", "reason": "no file of yours has this name", "accepted": "one"}
    gone = Answer(problem(422, "invalid_input", errors=[reason]), 422)
    server.on("POST", "/v1/benchmarks/base/clone", dry_run(), gone)
    refused = run("check", "--baseline", "base", "-m", "uploaded.onnx")
    assert "--model: no file of yours has this name" in refused.stderr


def test_a_check_takes_what_a_model_or_type_needs(server: FakeServer) -> None:
    measured(server, [1.0, 1.0, 1.0])
    words = ("--input", "ids=1x128", "--version-tag", "1.20", "--dataset", "rows", "-t", "TYPE2")
    done = run("check", "--baseline", "base", *words)
    assert done.exit_code == 0, done.stderr
    candidate = submissions(server, "/v1/benchmarks/base/clone")[1].json
    assert isinstance(candidate, dict)
    assert candidate["input"] == {"ids": {"shape": [1, 128]}}
    assert (candidate["version_tag"], candidate["dataset"]) == ("1.20", "rows")


def test_open_dimensions_name_the_flag_that_sets_them(server: FakeServer) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    sizes: list[int | str | None] = ["batch", "length"]
    Path("net.onnx").write_bytes(model_of([node], {"x": sizes}, {"y": sizes}))
    refused = run(
        *("check", "--baseline", "net.onnx", "-m", "net.onnx", "-r", "ort", "-t", "TYPE1"),
        *("--target", "rpi4b"),
    )
    assert refused.exit_code == 1
    assert "--input x: " in refused.stderr


@pytest.mark.parametrize("flag", ["--junit", "--markdown"])
def test_files_that_cannot_be_written_are_refused_first(server: FakeServer, flag: str) -> None:
    Path("here").mkdir()
    for path in ("nowhere/check.xml", "here"):
        assert f"{flag}: " in refusal(run(*CHECK, flag, path))
    assert server.asked == []


def test_a_file_that_fails_at_the_end_does_not_lose_the_decision(server: FakeServer) -> None:
    measured(server, [1.1, 1.1, 1.1])
    done = run(*CHECK, "--markdown", "/dev/full", "--junit", "check.xml")
    assert done.exit_code == 1
    assert "failed: +10.00%" in done.stdout
    assert "--markdown: cannot write /dev/full" in done.stderr
    assert ElementTree.parse("check.xml").getroot().get("failures") == "1"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_check_cancels_its_run_and_names_it(
    server: FakeServer, number: signal.Signals
) -> None:
    measured(server, [1.0])
    server.on("GET", "/v1/benchmarks/a0", benchmark("a0", "running"))
    server.on("POST", "/v1/benchmarks/a0/cancel", Answer(benchmark("a0", "cancelled"), 202))
    program = [sys.executable, "-m", "edgeyard", *CHECK, "--junit", "check.xml"]
    with subprocess.Popen(
        program,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    ) as process:
        while not server.of("GET", "/v1/benchmarks/a0"):
            assert process.poll() is None, process.communicate()
            threading.Event().wait(0.02)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "error on no board; it was interrupted" in out.replace(BOARD, "no board")
    assert "a0 is being cancelled" in err
    assert "run the same command" in err
    assert len(server.of("POST", "/v1/benchmarks/a0/cancel")) == 1
    assert ElementTree.parse("check.xml").getroot().get("errors") == "1"


def test_a_campaign_of_one_benchmark_is_a_baseline_and_one_of_two_names_them(
    server: FakeServer,
) -> None:
    measured(server, [1.0, 1.0, 1.0])
    missing = Answer(problem(404, "not_found", "none"), 404)
    server.on("GET", "/v1/benchmarks/nightly", missing)
    server.on("GET", "/v1/benchmarks", {"items": [], "next_cursor": None})
    found = {"campaign_id": "c", "user_id": "ada", "name": "nightly"} | {
        "created_at": "2026-11-21T08:00:00Z",
        "benchmarks": 1,
        "counts": {},
    }
    server.on("GET", "/v1/campaigns", {"items": [found], "next_cursor": None})
    one, other = benchmark("base", target_uid=BOARD), benchmark("other")
    server.on("GET", "/v1/campaigns/c", campaign(one), campaign(one, other))
    words = ("check", "--baseline", "nightly", "--parameter", "threads=1")
    done = run(*words)
    assert done.exit_code == 0, done.stderr
    assert "has 2 completed benchmarks (accepted: one of base, other)" in refusal(run(*words))


def test_a_tag_stands_for_its_newest_completed_benchmark(server: FakeServer) -> None:
    measured(server, [1.0, 1.0, 1.0])
    server.on("GET", "/v1/benchmarks/main", Answer(problem(404, "not_found", "none"), 404))
    page = {"items": [benchmark("base", target_uid=BOARD)], "next_cursor": None}
    server.on("GET", "/v1/benchmarks", page)
    done = run("check", "--baseline", "main", "--parameter", "threads=1")
    assert done.exit_code == 0, done.stderr
    assert server.of("GET", "/v1/benchmarks")[0].query["tag"] == ["main"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--parameter", "threads=1"], "--baseline: is missing"),
        (["--baseline", "gone", "-m", "m"], "there is no benchmark 'gone' (any more)"),
        (["--baseline", "./gone.onnx", "-m", "m"], "--baseline: there is no file gone.onnx"),
        (["--baseline", "base"], "--model: nothing differs from the baseline"),
        (["--baseline", "live", "-m", "m"], "live is running and has no result"),
        ([*CHECK[1:], "--max-slowdown", "much"], "--max-slowdown: 'much'"),
        ([*CHECK[1:], "--max-slowdown", "-1"], "--max-slowdown"),
        ([*CHECK[1:], "--max-slowdown", "3"], "--max-slowdown: '3' would accept 300%"),
        ([*CHECK[1:], "--max-pairs", "2"], "--max-pairs: is 2"),
        ([*CHECK[1:], "--budget", "soon"], "--budget: 'soon'"),
    ],
)
def test_wrong_usage_is_refused_before_anything_runs(
    server: FakeServer, words: list[str], expected: str
) -> None:
    server.on("GET", "/v1/benchmarks/base", benchmark("base"))
    server.on("GET", "/v1/benchmarks/live", benchmark("live", "running"))
    server.on("GET", "/v1/benchmarks", {"items": [], "next_cursor": None})
    server.on("GET", "/v1/campaigns", {"items": [], "next_cursor": None})
    assert expected in refusal(run("check", *words))
    assert not [each for each in server.asked if each.method == "POST"]


@pytest.mark.parametrize(
    "field", ["benchmark_id: mine", "cron: 0 3 * * *", "start_time: '2030-01-01T00:00:00Z'"]
)
def test_fields_that_several_runs_cannot_share_are_refused(server: FakeServer, field: str) -> None:
    Path("job.yaml").write_text(f"model: net.onnx\n{field}\n")
    refused = refusal(run("check", "job.yaml", "--baseline", "base"))
    assert "cannot be that of the several runs of a check" in refused
    assert server.asked == []


def test_a_baseline_with_the_name_of_a_folder_says_how_to_name_it(server: FakeServer) -> None:
    Path("big5").mkdir()
    for path in ("/v1/benchmarks", "/v1/campaigns"):
        server.on("GET", path, {"items": [], "next_cursor": None})
    refused = refusal(run("check", "--baseline", "big5", "-m", "uploaded.onnx"))
    assert "or ./big5 for the folder" in refused


def test_a_file_is_compared_with_a_file(server: FakeServer) -> None:
    measured(server, [1.0, 1.0, 1.0])
    Path("old.onnx").write_bytes(a_model_file(fill=b"o"))
    Path("new.onnx").write_bytes(a_model_file(fill=b"n"))
    names = [f"{side}{n}" for n in range(3) for side in ("ba" if n % 2 else "ab")]
    runs = [Answer(accepted(name), 202) for name in names]
    server.on("POST", "/v1/benchmarks", dry_run(), dry_run(), *runs)
    server.on("POST", "/v1/files", Answer(user_file(), 201))
    server.on("POST", "/v1/uploads", Answer(user_file(), 201))
    done = run(
        *("check", "--baseline", "old.onnx", "-m", "new.onnx", "-r", "ort", "-t", "TYPE1"),
        *("--target", "rpi4b"),
    )
    assert done.exit_code == 0, done.stderr
    bodies = [request.json for request in submissions(server, "/v1/benchmarks")]
    assert [("target_uid" in body) for body in bodies if isinstance(body, dict)] == [
        False,
        *[True] * 5,
    ]


def test_a_program_checks_by_the_client(server: FakeServer) -> None:
    measured(server, [1.001, 0.999, 1.0])
    with Client() as client:
        found = client.check("base", parameters={"threads": 1})
    assert found.decision == "passed"
    assert len(found.pairs) == 3


def test_student_quantiles_are_those_of_the_distribution() -> None:
    scipy = pytest.importorskip("scipy.stats")
    for degrees, probability in itertools.product(
        (1, 2, 3, 4, 5, 9, 30, 99), (0.9, 0.975, 0.997, 0.9999)
    ):
        exact = scipy.t.ppf(probability, degrees)
        assert student_quantile(probability, degrees) == pytest.approx(exact, rel=2e-3)


def test_checks_of_equal_versions_rarely_fail_whenever_they_stop() -> None:
    rng = random.Random(7)
    looks, wrong = 8, 0
    for _ in range(400):
        ratios = [math.exp(rng.gauss(0.0, 0.05)) for _ in range(2)]
        for _ in range(looks):
            ratios.append(math.exp(rng.gauss(0.0, 0.05)))
            _, low, high = interval_of(ratios, looks)
            if low > 1 or high < 1:
                wrong += 1
                break
    assert wrong <= 400 * 0.05
