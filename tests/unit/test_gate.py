"""The gate for regressions: decisions, refusals and the files that CI reads."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from onnx import helper

from edgeyard.benchmark_api.sdk import Client
from tests.builders.answers import (
    UID,
    Body,
    benchmark,
    campaign,
    check_pair,
    problem,
    stored_check,
    user_file,
)
from tests.builders.cli import printed, refusal, run
from tests.builders.model_files import a_model_file
from tests.builders.runner import model_of
from tests.fakes.api_server import Answer, FakeServer

pytestmark = pytest.mark.slow  # all tests here take some ten seconds together

BOARD = UID


def answered(server: FakeServer, *states: Body) -> None:
    """Answer the states of one check, one after the other; the first one when it is started."""
    server.on("GET", "/v1/benchmarks/base", benchmark("base", target_uid=BOARD))
    server.on("POST", "/v1/checks", Answer(states[0], 202))
    server.on("GET", "/v1/checks/check-1", *states[1:])


def passed(server: FakeServer) -> None:
    """Answer a check that passes after three pairs."""
    pairs = [check_pair(number) for number in range(3)]
    reason = "the slowdown is at most 3.00%"
    ended = stored_check("passed", *pairs, slowdown=0.001, low=-0.01, high=0.02, reason=reason)
    answered(server, stored_check(), stored_check("running", pairs[0]), ended)


def failed(server: FakeServer) -> None:
    """Answer a check that fails after three pairs."""
    pairs = [check_pair(number, 1.1) for number in range(3)]
    reason = "the slowdown is more than 3.00%"
    ended = stored_check("failed", *pairs, slowdown=0.1, low=0.09, high=0.11, reason=reason)
    answered(server, stored_check(), ended)


def asked(server: FakeServer) -> dict[str, Any]:
    """Return the body that started the check."""
    (request,) = server.of("POST", "/v1/checks")
    assert isinstance(request.json, dict)
    return request.json


CHECK = ("check", "--baseline", "base", "--parameter", "threads=1")


def test_a_check_is_started_and_followed_to_its_end(server: FakeServer) -> None:
    passed(server)
    done = run(*CHECK, "--max-slowdown", "3 %", "--max-pairs", "8", "--budget", "5 min", "--json")
    found = json.loads(printed(done))
    assert (found["decision"], found["high"]) == ("passed", 0.02)
    assert found["pairs"][0]["baseline_id"] == "a0"
    assert asked(server) == {
        "baseline": {"benchmark_id": "base"},
        "candidate": {"parameters": {"threads": 1}},
        "max_slowdown": 0.03,
        "budget_s": 300.0,
        "max_pairs": 8,
        "self_test": False,
    }
    assert done.stderr.count("pair 1: baseline 10 ms, candidate 10 ms (+0.00%)") == 1
    assert "pair 3: " in done.stderr


def test_a_server_that_does_not_answer_for_a_while_is_asked_again(server: FakeServer) -> None:
    passed(server)
    ended = stored_check("passed", check_pair(0), reason="the slowdown is at most 3.00%")
    server.on("GET", "/v1/checks/check-1", Answer({}, 503), ended)
    assert run(*CHECK).exit_code == 0


def test_markdown_shows_names_as_they_are(server: FakeServer) -> None:
    done = run("check", "--baseline", "<b>a|b", "-m", "net.onnx", "--markdown", "check.md")
    assert done.exit_code == 1
    text = Path("check.md").read_text()
    assert "&lt;b&gt;a\\|b" in text
    assert "<b>" not in text
    name = "@somebody [here](https://evil.example) *x*"
    assert run("check", "--baseline", name, "-m", "net.onnx", "--markdown", "check.md").exit_code
    text = Path("check.md").read_text()
    assert "@\u200bsomebody \\[here\\](https:\u200b//evil.example) \\*x\\*" in text
    assert "@somebody" not in text


def test_a_slower_candidate_fails_with_the_files_that_ci_reads(server: FakeServer) -> None:
    failed(server)
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


def test_a_comment_is_written_only_if_the_number_changed(server: FakeServer) -> None:
    comment = Path("comment.md")
    comment.write_text("of an earlier check")
    passed(server)
    done = run(*CHECK, "--comment", "comment.md", "--markdown", "check.md")
    assert done.exit_code == 0
    assert not comment.exists()
    assert "no change was found: comment.md is not written" in done.stderr
    failed(server)
    assert run(*CHECK, "--comment", "comment.md").exit_code == 2
    lines = comment.read_text().splitlines()
    assert lines[:2] == ["<!-- edgeyard check -->", "### 10.0 % slower: parameters"]
    assert "failed: +10.00% (" in lines[3]
    assert sum(line.startswith("| a") for line in lines) == 3
    assert lines[-1] == "</details>"


def test_a_small_change_that_is_accepted_is_commented(server: FakeServer) -> None:
    pairs = [check_pair(number, 0.99) for number in range(3)]
    numbers = {"slowdown": -0.01, "low": -0.015, "high": -0.005}
    answered(server, stored_check(), stored_check("passed", *pairs, **numbers))
    assert run(*CHECK, "--comment", "comment.md").exit_code == 0
    assert "### 1.0 % faster: parameters" in Path("comment.md").read_text()


def test_a_check_without_a_number_comments_nothing(server: FakeServer) -> None:
    answered(server, stored_check(), stored_check("error", reason="its run a0 was removed"))
    assert run(*CHECK, "--comment", "comment.md").exit_code == 1
    assert not Path("comment.md").exists()


def test_the_pairs_keep_their_numbers_at_80_columns(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEYARD_COLUMNS", "80")
    ids = {
        "baseline_id": "emumid-ort-genai-20261130102521-j6udud6rju",
        "candidate_id": "emumid-ort-genai-20261130102521-kmyypf7ljm",
    }
    pair = check_pair(0, 1.4896, **ids)
    answered(server, stored_check(), stored_check("failed", pair, reason="slower"))
    shown = run(*CHECK).stdout
    assert max(map(len, shown.splitlines())) <= 80
    heading = next(line for line in shown.splitlines() if "SLOWDOWN" in line)
    row = shown.splitlines()[shown.splitlines().index(heading) + 1]
    assert "+48.96%" in row
    assert ids["candidate_id"] in row


def test_what_the_pairs_do_not_decide_is_stated(server: FakeServer) -> None:
    pairs = [check_pair(number, ratio) for number, ratio in enumerate((1.0, 1.2, 0.9))]
    reason = "3 pairs did not decide it"
    numbers = {"slowdown": 0.03, "low": -0.3, "high": 0.5, "level": 0.95, "max_pairs": 3}
    answered(server, stored_check(), stored_check("undecided", *pairs, reason=reason, **numbers))
    done = run(*CHECK, "--max-pairs", "3", "--junit", "check.xml")
    assert done.exit_code == 4
    assert "undecided" in done.stdout
    assert "3 pairs did not decide it" in done.stdout
    assert "(95 %: " in done.stdout
    assert ElementTree.parse("check.xml").getroot().get("errors") == "1"


def test_numbers_that_do_not_count_are_marked_and_explained(server: FakeServer) -> None:
    busy = "the candidate is invalid: The runs waited 85% of the time"
    pairs = [check_pair(n, 1.01, counts=False, reasons=[busy]) for n in range(3)]
    why = f"3 pairs do not count, because a number of each is invalid (of the last pair, {busy})"
    answered(server, stored_check(), stored_check("undecided", *pairs, reason=why))
    done = run(*CHECK, "--markdown", "check.md")
    assert done.exit_code == 4
    assert why in done.stdout
    assert "+1.00%!" in done.stdout
    assert f"pair 1 does not count: {busy}" in done.stdout
    assert f"(+1.00%!); the pair does not count: {busy}" in done.stderr
    text = Path("check.md").read_text()
    assert "| +1.00%! |" in text
    assert f"- pair 1 does not count: {busy}." in text


def test_programs_get_the_ratio_of_a_pair_that_does_not_count_and_why(server: FakeServer) -> None:
    busy = "the candidate is invalid: The runs waited 85% of the time"
    pairs = [check_pair(n, 1.01, counts=False, reasons=[busy]) for n in range(3)]
    why = f"3 pairs do not count, because a number of each is invalid (of the last pair, {busy})"
    answered(server, stored_check(), stored_check("undecided", *pairs, reason=why))
    found = json.loads(run(*CHECK, "--json").stdout)
    assert (found["decision"], found["slowdown"]) == ("undecided", None)
    pair = found["pairs"][0]
    assert (pair["ratio"], pair["counts"]) == (1.01, False)
    assert pair["reasons"] == [busy]
    assert "85%" in run(*CHECK, "-o", "csv").stdout


def test_a_pair_without_a_latency_has_no_ratio(server: FakeServer) -> None:
    pairs = [check_pair(number, None) for number in range(3)]
    answered(server, stored_check(), stored_check("undecided", *pairs, reason="3 do not count"))
    done = run(*CHECK)
    assert done.exit_code == 4
    assert "pair 1: a number was not measured; the pair does not count" in done.stderr
    assert "pair 1 does not count: a number was not measured" in done.stdout


def test_other_work_that_a_run_has_shown_is_refused(server: FakeServer) -> None:
    reason = "does other work than the candidate: batch size (1 against 32)"
    wrong = {"pointer": "/baseline", "reason": reason, "accepted": "one with the same inputs"}
    answered(server, stored_check(), stored_check("error", reason=reason, errors=[wrong]))
    assert f"--baseline: {reason}" in refusal(run(*CHECK))


def test_a_slowdown_that_is_too_large_for_a_metric_names_no_field_of_the_request(
    server: FakeServer,
) -> None:
    reason = "is 500.00%, and rate cannot fall that far"
    wrong = {"pointer": "/max_slowdown", "reason": reason, "accepted": "a share below 100 %"}
    numbers = {"slowdown": 0.01, "reason": f"the accepted slowdown {reason}", "errors": [wrong]}
    answered(server, stored_check(), stored_check("error", check_pair(0, 1.01), **numbers))
    done = run(*CHECK, "--max-slowdown", "500 %")
    assert done.exit_code == 1
    assert f"--max-slowdown: {reason}" in done.stderr
    assert f"; the accepted slowdown {reason}" in done.stdout
    assert "/max_slowdown" not in done.stdout + done.stderr


def test_a_self_test_needs_no_change(server: FakeServer) -> None:
    passed(server)
    assert "nothing differs" in refusal(run("check", "--baseline", "base"))
    assert run("check", "--baseline", "base", "--self-test").exit_code == 0
    assert (asked(server)["candidate"], asked(server)["self_test"]) == ({}, True)


def unchanged(server: FakeServer) -> None:
    """Answer as the server does to two versions that are the same."""
    answered(server, stored_check())
    wrong = {"pointer": "/candidate/model", "reason": "is that of the baseline", "accepted": ""}
    refused = problem(422, "nothing_differs", "in other words", errors=[wrong])
    server.on("POST", "/v1/checks", Answer(refused, 422))


def test_two_versions_that_are_the_same_are_not_measured_and_no_error(server: FakeServer) -> None:
    unchanged(server)
    Path("comment.md").write_text("of an earlier check")
    files = ("--junit", "check.xml", "--markdown", "check.md", "--comment", "comment.md")
    done = run("check", "--baseline", "base", "-m", "net", *files)
    assert done.exit_code == 0, done.stderr
    why = "nothing differs between net and the baseline base, so nothing was measured"
    assert done.stdout == f"unchanged: {why}\n"
    suite = ElementTree.parse("check.xml").getroot()
    counts = [suite.get(each) for each in ("tests", "failures", "errors", "skipped")]
    assert counts == ["1", "0", "0", "1"]
    skipped = suite.find("testcase/skipped")
    assert skipped is not None
    assert why in (skipped.get("message") or "")
    text = Path("check.md").read_text()
    assert text.startswith("### Benchmark check unchanged\n")
    assert why in text
    assert "| baseline |" not in text
    assert not Path("comment.md").exists()
    assert [each.path for each in server.asked if "checks" in each.path] == ["/v1/checks"]


def test_programs_get_a_decision_of_its_own_where_nothing_differs(server: FakeServer) -> None:
    unchanged(server)
    found = json.loads(printed(run(*CHECK, "--json")))
    assert (found["decision"], found["pairs"]) == ("unchanged", [])
    assert found["slowdown"] is None
    assert run(*CHECK, "-o", "csv").stdout == ""
    with Client() as client:
        assert client.check("base", parameters={"threads": 1}).decision == "unchanged"


@pytest.mark.parametrize(
    ("pointer", "named"),
    [
        ("/baseline", "--baseline"),
        ("/candidate/target", "--target"),
        ("/candidate/model", "--model"),
    ],
)
def test_what_is_refused_at_the_start_names_the_flag(
    server: FakeServer, pointer: str, named: str
) -> None:
    answered(server, stored_check())
    wrong = {"pointer": pointer, "reason": "does not fit", "accepted": "another"}
    server.on("POST", "/v1/checks", Answer(problem(422, "invalid_input", errors=[wrong]), 422))
    refused = refusal(run("check", "--baseline", "base", "-m", "net", "--junit", "check.xml"))
    assert f"{named}: does not fit" in refused
    assert ElementTree.parse("check.xml").getroot().get("errors") == "1"


@pytest.mark.parametrize(("status", "exit_code"), [("failed", 3), ("cancelled", 5)])
def test_a_run_without_a_result_ends_the_check_with_its_files(
    server: FakeServer, status: str, exit_code: int
) -> None:
    numbers = {"slowdown": 0.001, "run_id": "b1"}
    ended = stored_check("error", check_pair(0, 1.001), reason="its run ended", **numbers)
    answered(server, stored_check(), ended)
    server.on("GET", "/v1/benchmarks/b1", benchmark("b1", status))
    done = run(*CHECK, "--junit", "check.xml", "--markdown", "check.md")
    assert done.exit_code == exit_code
    assert f"b1 {status}" in done.stderr or f"b1 was {status}" in done.stderr
    assert "error: +0.10%" in done.stdout
    assert ElementTree.parse("check.xml").getroot().get("errors") == "1"
    assert Path("check.md").read_text().count("\n| a0") == 1


def test_a_check_that_somebody_cancels_ends_so(server: FakeServer) -> None:
    answered(server, stored_check(), stored_check("cancelled", reason="eve cancelled it"))
    done = run(*CHECK)
    assert done.exit_code == 5
    assert "check-1 was cancelled" in done.stderr


def test_a_check_that_cannot_go_on_is_an_error(server: FakeServer) -> None:
    answered(server, stored_check(), stored_check("error", reason="its run a0 was removed"))
    done = run(*CHECK)
    assert done.exit_code == 1
    assert f"error on {BOARD}; its run a0 was removed" in done.stdout


def test_a_check_takes_what_a_model_or_type_needs(server: FakeServer) -> None:
    passed(server)
    words = ("--input", "ids=1x128", "--version-tag", "1.20", "--dataset", "rows", "-t", "TYPE2")
    done = run("check", "--baseline", "base", *words)
    assert done.exit_code == 0, done.stderr
    candidate = asked(server)["candidate"]
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


@pytest.mark.parametrize("flag", ["--junit", "--markdown", "--comment"])
def test_files_that_cannot_be_written_are_refused_first(server: FakeServer, flag: str) -> None:
    Path("here").mkdir()
    for path in ("nowhere/check.xml", "here"):
        assert f"{flag}: " in refusal(run(*CHECK, flag, path))
    assert server.asked == []


def test_a_file_that_fails_at_the_end_does_not_lose_the_decision(server: FakeServer) -> None:
    failed(server)
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
    answered(server, stored_check(run_id="a0"), stored_check(run_id="a0"))
    ended = stored_check("cancelled", run_id="a0")
    server.on("POST", "/v1/checks/check-1/cancel", Answer(ended, 202))
    program = [sys.executable, "-m", "edgeyard", *CHECK, "--junit", "check.xml"]
    with subprocess.Popen(
        program,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    ) as process:
        while not server.of("GET", "/v1/checks/check-1"):
            assert process.poll() is None, process.communicate()
            threading.Event().wait(0.02)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "error on no board; it was interrupted" in out.replace(BOARD, "no board")
    assert "a0 is being cancelled" in err
    assert "run the same command" in err
    assert len(server.of("POST", "/v1/checks/check-1/cancel")) == 1
    assert ElementTree.parse("check.xml").getroot().get("errors") == "1"


def test_a_campaign_of_one_benchmark_is_a_baseline_and_one_of_two_names_them(
    server: FakeServer,
) -> None:
    passed(server)
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
    passed(server)
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
        ([*CHECK[1:], "--max-slowdown", "1000 %"], "(accepted: from 0 % to below 1000 %)"),
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
    passed(server)
    Path("old.onnx").write_bytes(a_model_file(fill=b"o"))
    Path("new.onnx").write_bytes(a_model_file(fill=b"n"))
    server.on("POST", "/v1/files", Answer(user_file(), 201))
    server.on("POST", "/v1/uploads", Answer(user_file(), 201))
    done = run(
        *("check", "--baseline", "old.onnx", "-m", "new.onnx", "-r", "ort", "-t", "TYPE1"),
        *("--target", "rpi4b"),
    )
    assert done.exit_code == 0, done.stderr
    baseline, candidate = asked(server)["baseline"]["description"], asked(server)["candidate"]
    assert {name for name in candidate if candidate[name] != baseline[name]} <= {"model"}
    assert candidate["target"] == baseline["target"] == "rpi4b"


def test_a_program_checks_by_the_client(server: FakeServer) -> None:
    passed(server)
    with Client() as client:
        found = client.check("base", parameters={"threads": 1})
    assert found.decision == "passed"
    assert len(found.pairs) == 3


def test_checks_state_what_edgeyard_started_them_for(server: FakeServer) -> None:
    found = [
        stored_check("passed", check_id=f"check-{each}", purpose=each)
        for each in ("comparison", "confirmation", "bisection")
    ]
    server.on("GET", "/v1/checks", {"items": found, "next_cursor": None})
    server.on("GET", "/v1/checks/check-1", found[1])
    header, *rows = run("checks", "list").stdout.splitlines()
    assert "PURPOSE" in header
    assert [any(each in row for row in rows) for each in ("confirmation", "bisection")] == [
        True
    ] * 2
    listed = json.loads(run("checks", "list", "--json").stdout)
    assert [each["purpose"] for each in listed] == ["comparison", "confirmation", "bisection"]
    shown = run("checks", "show", "check-1").stdout
    assert "confirmation of a suspected change of a series, which Edgeyard started" in shown


def test_checks_fit_in_80_columns(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEYARD_COLUMNS", "80")
    ids = {
        f"{side}_id": f"rpi4b-ort-20261121080000-{side:.8}ab" for side in ("baseline", "candidate")
    }
    changes = {"check_id": "check-0123456789abcdef", "candidate": "object-detector-v7.onnx"}
    found = stored_check("undecided", {**check_pair(0), **ids}, slowdown=0.01, **changes)
    server.on("GET", "/v1/checks", {"items": [found], "next_cursor": None})
    server.on("GET", "/v1/checks/check-1", found)
    header, line = printed(run("checks", "list")).splitlines()
    assert max(map(len, (header, line))) <= 80
    assert "object-d" in line
    header, line, *_ = printed(run("checks", "show", "check-1")).splitlines()
    assert max(map(len, (header, line))) <= 80
    assert header.split()[:2] == ["BASELINE", "ms"]
    assert ids["candidate_id"] in line


def test_checks_of_the_server_are_listed_shown_and_cancelled(server: FakeServer) -> None:
    running = stored_check("running", check_pair(0, 1.01), slowdown=0.01)
    server.on("GET", "/v1/checks", {"items": [running], "next_cursor": None})
    server.on("GET", "/v1/checks/check-1", running)
    server.on("POST", "/v1/checks/check-1/cancel", Answer(stored_check("cancelled"), 202))
    listed = run("checks", "list", "--status", "running")
    assert listed.exit_code == 0, listed.stderr
    assert "check-1" in listed.stdout
    assert server.of("GET", "/v1/checks")[0].query["status"] == ["running"]
    shown = run("checks", "show", "check-1")
    assert f"running: +1.00% on {BOARD}" in shown.stdout
    assert json.loads(run("checks", "show", "check-1", "--json").stdout)["status"] == "running"
    assert "check-1 is cancelled" in run("checks", "cancel", "check-1").stderr
