"""The command line, against canned answers: output, exit statuses, and what is sent."""

from __future__ import annotations

import csv
import importlib
import inspect
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import Result

from edgeyard import __version__
from edgeyard.benchmark_api import cli
from edgeyard.benchmark_api.sdk import Client
from edgeyard.scheduler.model.finding import Finding
from edgeyard.scheduler.store.migrate import revisions
from tests.builders.answers import (
    ID,
    LONG_ID,
    UID,
    accepted,
    benchmark,
    board,
    campaign,
    dry_run,
    explanation,
    me,
    problem,
    results,
    row,
    user_file,
    workload,
)
from tests.builders.answers import (
    boards as boards_of,
)
from tests.builders.answers import (
    event as event_of,
)
from tests.builders.cli import printed, refusal, run
from tests.builders.interrupted import interrupted
from tests.builders.model_files import a_model_file
from tests.fakes.api_server import Answer, FakeServer

ONE = f"/v1/benchmarks/{ID}"


@pytest.fixture
def server(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    monkeypatch.setenv("EDGEYARD_TOKEN", "ey_token")
    monkeypatch.setenv("EDGEYARD_COLUMNS", "80")
    return server


def fits(text: str) -> bool:
    """Nothing is wider than a terminal, and no line ends with blanks."""
    return all(len(line) <= 80 and line == line.rstrip() for line in text.splitlines())


def rows_of(result: Result) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(result.stdout)))


# --- the program ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [["show", "a\udcff"], ["list", "--tag", "a\udcff"], ["series", "show", "a\udcff"]],
)
@pytest.mark.usefixtures("server")
def test_arguments_that_are_not_valid_text_are_refused(words: list[str]) -> None:
    assert "'a\\udcff' is not UTF-8" in refusal(run(*words))


SUBMIT = ("submit", "-m", "net.onnx", "-r", "ort", "-t", "TYPE1", "--target", "rpi4b")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((*SUBMIT, "--timeout", "5"), "--timeout: has an effect with --wait only"),
        ((*SUBMIT, "--dry-run", "--timeout", "5"), "--timeout: has no effect with --dry-run"),
        (
            (*SUBMIT, "--dry-run", "--wait", "--timeout", "5"),
            "--timeout: has no effect with --dry-run",
        ),
        (("submit", "--clone", ID, "--timeout", "5"), "--timeout: has an effect with --wait only"),
        (("retry", ID, "--timeout", "5"), "--timeout: has an effect with --wait only"),
        ((*SUBMIT, "--wait", "--cancel-on-timeout"), "--cancel-on-timeout: has an effect with"),
        (("wait", ID, "--cancel-on-timeout"), "--cancel-on-timeout: has an effect with"),
        (
            ("infer", "-m", "net.onnx", "-i", "in.npz", "--cancel-on-timeout"),
            "--cancel-on-timeout: has an effect with",
        ),
        (
            ("infer", "-m", "net.onnx", "-i", "in.npz", "--target", "rpi4b,rpi5"),
            "--target: 'rpi4b,rpi5' names 2, but no matrix is possible here",
        ),
        (
            ("check", "--baseline", "a", "-m", "net.onnx", "--target", "rpi4b,rpi5"),
            "--target: 'rpi4b,rpi5' names 2, but no matrix is possible here",
        ),
        (
            ("infer", "-m", "net.onnx", "-i", "nosuch.npz", "--target", "rpi4b"),
            "--inputs: there is no file nosuch.npz",
        ),
        ((*SUBMIT, "--wait", "--cron", "0 3 * * *"), "--cron: creates a schedule"),
        (("submit", "job.yaml", "--wait"), "--cron: creates a schedule"),
        (("submit", "--clone", ID, "--wait", "--cron", "0 3 * * *"), "--cron: creates a schedule"),
    ],
)
def test_options_that_cannot_have_their_effect_are_refused_before_anything_is_sent(
    server: FakeServer, words: tuple[str, ...], reason: str
) -> None:
    Path("job.yaml").write_text("model: net.onnx\ncron: 0 3 * * *\n")
    assert reason in refusal(run(*words))
    assert server.asked == []


@pytest.mark.parametrize("kind", ["device", "pipe", "folder"])
def test_only_regular_files_are_uploaded(server: FakeServer, kind: str) -> None:
    path = Path("model.onnx")
    if kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    assert "FILE: model.onnx is" in refusal(run("files", "upload", str(path)))
    assert server.asked == []


def test_help_loads_nothing_that_takes_long() -> None:
    code = (
        "import sys; from edgeyard.benchmark_api.cli import app\n"
        "try: app(['--help'])\nexcept SystemExit: pass\n"
        "heavy = ('fastapi','sqlalchemy','pydantic','numpy','httpx','rich','matplotlib','pandas',"
        "'onnxruntime','jinja2','yaml')\n"
        "print([m for m in heavy if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "submit" in done.stdout
    assert fits(done.stdout)


def test_every_command_of_a_module_is_in_the_table_of_commands() -> None:
    tables: dict[str, set[str]] = {}
    for path in Path(cli.__file__).parent.glob("*.py"):
        module = importlib.import_module(f"{cli.__name__}.{path.stem}")
        add_to = getattr(module, "add_to", None)
        if add_to is not None and "app" in inspect.signature(add_to).parameters:
            alone = typer.Typer()
            add_to(alone)
            tables[path.stem] = set(typer.main.get_group(alone).commands)
    known = {name: module for module, names in tables.items() for name in names}
    assert known == cli.COMMANDS


def test_a_command_loads_no_module_of_other_commands() -> None:
    code = (
        "import sys; from edgeyard.benchmark_api.cli import COMMANDS, app\n"
        "assert app(['up', '--help'], standalone_mode=False) == 0\n"
        "names = {f'edgeyard.benchmark_api.cli.{module}' for module in COMMANDS.values()}\n"
        "print(names & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "{'edgeyard.benchmark_api.cli.server'}"
    assert "--data-dir" in done.stdout


def test_the_server_may_be_named_before_the_command(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEYARD_URL", "http://127.0.0.1:1")
    server.on("GET", "/v1/benchmarks", {"items": [], "next_cursor": None, "total": None})
    done = run("--url", server.url, "--token", "ey_other", "--json", "list")
    assert (done.exit_code, done.stdout) == (0, "[]\n")
    assert server.asked[0].headers["authorization"] == "Bearer ey_other"
    assert run("--json", "--url", server.url, "list", "-o", "csv").stdout == ""
    assert "[]" not in run("--url", "http://127.0.0.1:1", "list", "--url", server.url).stdout


@pytest.mark.parametrize("command", ["up", "replay"])
def test_an_option_before_a_command_that_does_not_take_it_is_refused(command: str) -> None:
    refused = refusal(run("--url", "http://127.0.0.1:1", command))
    assert f"--url: has no effect before `{command}`" in refused


def test_help_names_the_values_of_repeatable_options() -> None:
    for words in (["submit"], ["list"], ["results"]):
        assert "<list[" not in run(*words, "--help").stdout


def test_a_refused_parameter_is_named(server: FakeServer) -> None:
    errors = [{"pointer": "/parameters/thread", "reason": "is unknown", "accepted": "threads"}]
    refused = Answer(problem(422, "invalid_input", errors=errors), 422)
    server.on("POST", "/v1/benchmarks", refused)
    words = ("submit", "-m", "net.onnx", "-r", "ort", "-t", "TYPE1", "--target", "rpi4b")
    done = run(*words, "--parameter", "threads=1", "--parameter", "thread=2")
    assert "--parameter thread: is unknown" in done.stderr


def test_the_present_priority_is_shown(server: FakeServer) -> None:
    changed = benchmark(user_priority=8)
    description = changed["description"]
    assert isinstance(description, dict)
    server.on("GET", ONE, {**changed, "description": {**description, "user_priority": 3}})
    shown = " ".join(run("show", ID).stdout.split())
    assert "user_priority 8" in shown
    assert "user_priority 3" not in shown


def test_the_attributes_of_boards_are_listed(server: FakeServer) -> None:
    item = {
        "name": "memory.ram",
        "meaning": "memory",
        "boards": 3,
        "values": [4 * 2**30],
        "more_values": 2,
    }
    server.on("GET", "/v1/attributes", {"items": [item]})
    listed = run("boards", "attributes", "--family", "rpi4b")
    assert "memory.ram" in listed.stdout
    assert "4 GiB and 2 more" in listed.stdout
    assert server.asked[0].query == {"family": ["rpi4b"]}
    assert json.loads(run("boards", "attributes", "--json").stdout) == [item]


def test_the_version_is_reported() -> None:
    form = r"edgeyard (\S+) \(commit [0-9a-f]{12}(-dirty)?, schema (\d{4})\)\n"
    stated = re.fullmatch(form, run("--version").stdout)
    assert stated is not None
    assert (stated[1], stated[3]) == (__version__, revisions()[1])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["list", "--nonsense"], "No such option: --nonsense"),
        (["rates", "set", "emumid", "-3"], "-3; write -- before a negative number"),
        (["show"], "Missing argument 'ID'"),
        (["wait"], "nothing to wait for"),
        (["cancel"], "nothing to cancel"),
        (["results"], "no results to show"),
        (["submit"], "nothing to submit"),
        (["results", "x", "--plot", "x.bmp"], "can't draw 'x.bmp'"),
        (["logs", "x", "--stream", "stdin"], "stdout or stderr"),
        (["wait", "x", "--timeout", "soon"], "--timeout: 'soon' is not a duration"),
        (["users", "update", "x"], "nothing to change"),
        (["submit", "--input", "x"], "--input: cannot read 'x'"),
        (["submit", "--constraint", "ram more"], "--constraint: cannot read"),
        (["submit", "--odt-config", "{"], "--odt-config: is not JSON"),
        (["submit", "--parameter", 'preprocessing={"a":'], "--parameter: 'preprocessing="),
        (["submit", "nowhere.yaml"], "job file: can't read nowhere.yaml: No such file"),
        (["submit", "--deadline", "soon"], "--deadline: 'soon' is not a time (accepted: e.g. +2h"),
        (["submit", "--nb-inference", "ten"], "--nb-inference: 'ten' is not a whole number\n"),
        (["list", "--limit", "0"], "--limit: '0' is too small (accepted: at least 1)\n"),
        (["rates", "set", "emumid", "x"], "RATE: 'x' is not a number\n"),
        (["list", "-o", "xml"], "--output: 'xml' is not one of 'table', 'json', 'csv'\n"),
        (["up", "--port", "99999"], "--port: '99999' is too large (accepted: at most 65535)\n"),
        (["policies", "activate", "mine.toml"], "POLICY: there is no file mine.toml"),
    ],
)
def test_wrong_usage_is_exit_1_with_one_clear_message(
    server: FakeServer, words: list[str], expected: str
) -> None:
    result = run(*words)
    assert result.exit_code == 1
    assert expected in result.stderr
    assert result.stdout == ""
    assert server.asked == []


def test_without_arguments_the_help_is_shown() -> None:
    result = run()
    assert result.exit_code == 1
    assert "Commands:" in result.stderr + result.stdout


def test_an_error_of_the_api_names_field_and_fix(server: FakeServer) -> None:
    errors = [
        {"pointer": "/target", "reason": "is no family", "accepted": "rpi4b"},
        {"pointer": "/ram", "reason": "is no size", "accepted": "4 GiB"},
    ]
    answer = Answer(problem(422, "invalid_input", "", errors), 422)
    server.on("POST", "/v1/benchmarks", answer)
    result = refusal(run("submit", "--model", "m", "--target", "x"))
    assert "--target: is no family (accepted: rpi4b)\n--ram: is no size" in result


@pytest.mark.parametrize(
    ("words", "pointer", "shown"),
    [
        (["submit", "-m", "m", "--priority", "9"], "/user_priority", "--priority: "),
        (["submit", "-m", "m", "-t", "x"], "/benchmark_type", "--type: "),
        (["submit", "-m", "m", "--tag", "a"], "/tags/0", "--tag: "),
        (["submit", "-m", "m", "--user-time", "1"], "/user_time", "--user-time: "),
        (["submit", "-m", "m", "--parameter", "a=1"], "/parameters/a", "--parameter a: "),
        (["submit", "-m", "m", "--constraint", "a = 1"], "/constraints/0", "--constraint: "),
        (["submit", "-m", "m"], "/constraints/0/value", "--constraint value: "),
        (
            ["submit", "-m", "m", "--affinity", "200 a = 1"],
            "/affinities/0/weight",
            "--affinity weight: ",
        ),
        (["submit", "-m", "m", "--spread", "200 a"], "/spreads/0/weight", "--spread weight: "),
        (["users", "create", "ann", "--max-priority", "99"], "/max_priority", "--max-priority: "),
        (["users", "create", "ann", "--max-lease", "9 d"], "/max_lease_s", "--max-lease: "),
        (["users", "create", "ann", "--board", "x y"], "/boards/0", "--board: "),
        (["users", "create", "ann", "--quota", "max_files=3"], "/max_files", "--quota max_files: "),
        (["users", "create", "a b"], "/user_id", "USER: "),
        (["tokens", "create", "--expires", "+1 d"], "/expires_at", "--expires: "),
        (["boards", "lease", UID, "--until", "+2 h", "--user", "x"], "/user_id", "--user: "),
        (["boards", "lease", UID, "--until", "+2 h", "--user", "x"], "/until", "--until: "),
        (["prioritise", ID, "7"], "/user_priority", "PRIORITY: "),
        (["users", "credit", "ann", "5"], "/credits", "AMOUNT: "),
    ],
)
def test_an_error_names_the_flag_that_was_typed(
    server: FakeServer, words: list[str], pointer: str, shown: str
) -> None:
    refused = Answer(problem(422, "invalid_input", "", [{"pointer": pointer, "reason": "no"}]), 422)
    for path in (
        "benchmarks", "users", "tokens", f"boards/{UID}/lease", f"benchmarks/{ID}/priority",
        "users/ann/credits",
    ):  # fmt: skip
        server.on("POST", f"/v1/{path}", refused)
    result = run(*words)
    assert (result.exit_code, result.stderr) == (1, f"edgeyard: {shown}no\n")


@pytest.mark.parametrize(
    ("pointer", "reason", "shown"),
    [
        ("/target", "is required", "--target: is required"),
        ("/dataset", "TYPE2 needs a dataset", "--dataset: TYPE2 needs a dataset"),
        ("/target", "no family x is known", "--target: no family x is known"),
        ("/input/p", "is open", "--input p: is open"),
        ("/dataset_urls/0", "is no URL", "--dataset: is no URL"),
        ("/matrix/model", "a.onnx: is a page", "--model: a.onnx: is a page"),
        ("/description/parameters/a", "is unknown", "--parameter a: is unknown"),
        ("/user_time", "a user_time of 2 s", "--user-time: a --user-time of 2 s"),
        ("/model", "no file 'user_time'", "--model: no file 'user_time'"),
    ],
)
def test_an_error_names_the_flag_of_a_missing_field(
    server: FakeServer, pointer: str, reason: str, shown: str
) -> None:
    errors = [{"pointer": pointer, "reason": reason}]
    server.on("POST", "/v1/benchmarks", Answer(problem(422, "invalid_input", "", errors), 422))
    result = run("submit", "-m", "m")
    assert (result.exit_code, result.stderr) == (1, f"edgeyard: {shown}\n")


def test_an_error_in_a_job_file_names_its_field(server: FakeServer) -> None:
    Path("job.yaml").write_text("model: m\ninput: {p: {shape: [1]}}\n")
    errors = [{"pointer": "/input/p", "reason": "is open"}, {"pointer": "/ram", "reason": "no"}]
    server.on("POST", "/v1/benchmarks", Answer(problem(422, "invalid_input", "", errors), 422))
    refused = run("submit", "job.yaml", "--ram", "x")
    assert refused.stderr == "edgeyard: input.p: is open\n--ram: no\n"


def test_a_file_is_downloaded_by_its_name(server: FakeServer) -> None:
    missing = Answer(problem(404, "not_found", "no file 'net.onnx'"), 404)
    server.on("GET", "/v1/files/net.onnx", missing)
    files = [user_file(file_id="new", created_at="2026-11-22T08:00:00Z"), user_file(file_id="old")]
    server.on("GET", "/v1/files", {"items": files, "next_cursor": None})
    server.on("GET", "/v1/files/new/content", Answer(b"newest"))
    done = run("files", "download", "net.onnx", "here.onnx")
    assert done.exit_code == 0, done.stderr
    assert Path("here.onnx").read_bytes() == b"newest"
    assert server.of("GET", "/v1/files")[0].query["name"] == ["net.onnx"]
    server.on("GET", "/v1/files/other", Answer(problem(404, "x", "no file 'other'"), 404))
    server.on("GET", "/v1/files", {"items": [], "next_cursor": None})
    refused = run("files", "download", "other")
    assert refused.stderr == (
        "edgeyard: no file 'other'; `edgeyard files list` shows those that exist\n"
    )


def test_a_file_that_cannot_be_written_is_named_with_its_flag(server: FakeServer) -> None:
    server.on("GET", "/v1/results", {"items": [row()]})
    refused = refusal(run("results", ID, ID, "--html", "nowhere/x.html"))
    assert "--html: there is no folder nowhere" in refused


def test_help_names_values_by_what_they_are(server: FakeServer) -> None:
    for command in ("submit", "infer", "list", "check", "boards lease", "users create"):
        shown = run(*command.split(), "--help").stdout
        assert not re.search(r"<(str|int|float)\b", shown), shown


def test_a_missing_token_comes_with_what_to_do(server: FakeServer) -> None:
    server.on("GET", "/v1/benchmarks", Answer(problem(401, "not_authenticated", "no token"), 401))
    assert "no token\nSet EDGEYARD_TOKEN" in refusal(run("list"))


def test_a_server_that_is_not_there_is_named(server: FakeServer) -> None:
    result = refusal(run("list", "--url", "http://127.0.0.1:9"))
    assert "no answer from http://127.0.0.1:9: Connection refused" in result
    assert "Traceback" not in result


def test_flags_go_before_the_environment(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEYARD_URL", "http://127.0.0.1:9")
    server.on("GET", "/v1/queue", {"items": []})
    assert run("queue", "--url", server.url, "--token", "ey_other").exit_code == 0
    assert server.asked[0].headers["authorization"] == "Bearer ey_other"


@pytest.mark.slow
def test_a_reader_that_leaves_ends_the_program_quietly(server: FakeServer) -> None:
    many = {"items": [benchmark(f"b-{n}") for n in range(100)], "next_cursor": None}
    server.on("GET", "/v1/benchmarks", many)
    command = f"{sys.executable} -m edgeyard list -n 100 --json | head -1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == "[\n"
    assert done.stderr == ""


# --- submit ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    ["show", "results", "files delete", "files download", "campaigns show", "boards show", "retry"],
)
def test_an_empty_id_or_one_of_dots_reaches_no_other_route(server: FakeServer, words: str) -> None:
    assert "is empty" in refusal(run(*words.split(), ""))
    assert not [each for each in server.asked if each.path.endswith("/")]
    for dots in (".", ".."):
        assert run(*words.split(), dots).exit_code == 1
    assert all(each.path.startswith("/v1/") and len(each.path) > 5 for each in server.asked)


def test_an_upload_in_one_request_is_not_taken_for_one_that_goes_on(server: FakeServer) -> None:
    Path("net.onnx").write_bytes(a_model_file(200 * 1024))
    server.on("POST", "/v1/files", user_file("http://s/f"))
    done = run("files", "upload", "net.onnx")
    assert done.stderr == "uploading net.onnx (200 KiB)\n"


def test_submit_sends_what_the_flags_say_and_prints_the_id(server: FakeServer) -> None:
    Path("net.onnx").write_bytes(a_model_file())
    server.on("POST", "/v1/files", user_file("http://s/f"))
    server.on("POST", "/v1/benchmarks", Answer(accepted(warnings=["its board is offline"]), 202))
    result = run(
        *("submit", "--model", "net.onnx", "--runtime", "ort", "--type", "TYPE1"),
        *("--target", "rpi4b", "--nb-inference", "50", "--ram", "2 GiB", "--priority", "3"),
        *("--tag", "a", "--tag", "b", "--input", "ids=1x128:0..30522:int", "--parameter", "x=2"),
        *("--constraint", "memory.ram>=5", "--deadline", "2027-01-01T00:00:00Z"),
        *("--user-budget", "12.5", "--preemptible", "--preemptible-measuring"),
        *("--job-completion-threshold", "0"),
    )
    assert result.exit_code == 0
    assert result.stdout == f"{ID}\n"
    assert "uploading net.onnx (1.46 KiB)" in result.stderr
    assert "warning: its board is offline" in result.stderr
    assert f"edgeyard wait {ID}" in result.stderr
    assert server.of("POST", "/v1/benchmarks")[0].json == {
        "model": "net.onnx",
        "model_url": "http://s/f",
        "runtime": "ort",
        "benchmark_type": "TYPE1",
        "target": "rpi4b",
        "nb_inference": 50,
        "ram": "2 GiB",
        "user_priority": 3,
        "tags": ["a", "b"],
        "input": {"ids": {"shape": [1, 128], "low": 0, "high": 30522, "integers": True}},
        "parameters": {"x": 2},
        "constraints": [{"attribute": "memory.ram", "operator": ">=", "value": "5"}],
        "deadline": "2027-01-01T00:00:00Z",
        "user_budget": 12.5,
        "preemptible": True,
        "preemptible_measuring": True,
        "job_completion_threshold": 0,
    }


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
def test_errors_name_flags_over_a_job_file_and_fields_within_it(
    server: FakeServer, dry_run: tuple[str, ...]
) -> None:
    wrong = ("/user_time", "/constraints/0", "/user_priority", "/model")
    errors = [
        {"pointer": pointer, "reason": "won't do", "accepted": "another"} for pointer in wrong
    ]
    server.on("POST", "/v1/benchmarks", Answer(problem(422, "invalid_input", "", errors), 422))
    Path("job.yaml").write_text("model: net\nruntime: ort\nbenchmark_type: TYPE1\ntarget: rpi4b\n")
    result = run(
        *("submit", "job.yaml", "--user-time", "1", "--constraint", "foo = bar"),
        *("--priority", "9", *dry_run),
    )
    assert result.exit_code == 1
    for flag in ("--user-time: won't do", "--constraint: won't do", "--priority: won't do"):
        assert flag in result.stderr
    assert "\nmodel: won't do" in result.stderr  # that is what the job file calls it


def test_a_job_file_is_read_and_flags_win(server: FakeServer) -> None:
    folder = Path("jobs")
    folder.mkdir()
    (folder / "net.onnx").write_bytes(a_model_file())
    (folder / "job.yaml").write_text(
        "version: 1\nmodel: net.onnx\nruntime: ort\nbenchmark_type: TYPE1\n"
        "target: rpi4b\nnb_inference: 10\ndeadline: 2027-01-01T00:00:00Z\n"
    )
    server.on("POST", "/v1/files", user_file("http://s/f"))
    server.on("POST", "/v1/benchmarks", accepted())
    assert run("submit", "jobs/job.yaml", "--nb-inference", "99").exit_code == 0
    sent = server.of("POST", "/v1/benchmarks")[0].json
    assert isinstance(sent, dict)
    assert (sent["model_url"], sent["nb_inference"]) == ("http://s/f", 99)
    assert sent["deadline"] == "2027-01-01T00:00:00Z"
    assert "version" not in sent


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("version: 2\n", "job.yaml is of version 2 (accepted: 1)"),
        ("model: [\n", "job file: job.yaml is not valid YAML"),
        ("- a\n", "job file: job.yaml is not an object"),
        ("model: models/none.onnx\n", "there is no file"),
        ("target: []\n", ": target: is an empty list"),
    ],
)
def test_a_bad_job_file_is_reported_with_its_name(
    server: FakeServer, text: str, expected: str
) -> None:
    Path("job.yaml").write_text(text)
    assert expected in refusal(run("submit", "job.yaml"))


def test_several_targets_make_a_campaign(server: FakeServer) -> None:
    members = [{"benchmark_id": one, "status": "pending"} for one in ("a", "b")]
    server.on(
        "POST",
        "/v1/campaigns",
        {"campaign_id": "campaign-1", "benchmarks": members, "links": {}, "warnings": []},
    )
    result = run(
        "submit", "-m", "net.onnx", "-r", "ort", "-t", "TYPE1", "--target", "x,y", "-o", "csv"
    )
    assert [one["benchmark_id"] for one in rows_of(result)] == ["a", "b"]
    result = run("submit", "-m", "net.onnx", "-r", "ort", "-t", "TYPE1", "--target", "x,y")
    assert "edgeyard wait --campaign campaign-1" in result.stderr


def test_a_cron_makes_a_schedule(server: FakeServer) -> None:
    reported = accepted(benchmark_id=None, schedule_id="s-1", next_fire="2026-11-21T09:00:00Z")
    server.on("POST", "/v1/benchmarks", reported)
    result = run("submit", "-m", "m", "--cron", "0 * * * *", "--prohibit-overlap")
    assert result.stdout == "s-1\n"
    assert server.asked[-1].json == {
        "model": "m",
        "cron": "0 * * * *",
        "prohibit_overlap": True,
    }
    assert "created a schedule" in result.stderr


def test_a_clone_is_previewed(server: FakeServer) -> None:
    server.on("POST", f"{ONE}/clone", dry_run())
    result = printed(run("submit", "--clone", ID, "--nb-inference", "5", "--dry-run"))
    assert "The job as it would be dispatched" in result


def test_clone_sends_the_changes_only(server: FakeServer) -> None:
    server.on("POST", f"{ONE}/clone", accepted("copy"))
    assert run("submit", "--clone", ID, "--nb-inference", "5").stdout == "copy\n"
    assert server.asked[0].json == {"nb_inference": 5}


NO_ENERGY = dict.fromkeys(("energy_j", "energy_low_j", "energy_high_j"))


def test_a_dry_run_shows_boards_priority_and_hcl(server: FakeServer) -> None:
    answer = {
        "would": "wait",
        "waiting_reason": {"code": "board_busy", "sentence": "its board is busy"},
        "boards": [
            {"target_uid": UID, "family": "rpi4b", "state": "busy", "fits": False,
             "never": False, "reason": "board_busy",
             "sentence": "it runs another benchmark, and will for a while",
             "cost_s": 12.5, "cost_error_s": None, "max_credits": 900.0, **NO_ENERGY},
            {"target_uid": "rpi5-0001-0001", "family": "rpi5", "state": "idle", "fits": False,
             "never": True,
             "reason": "no_such_family", "sentence": "is of family rpi5",
             "cost_s": None, "cost_error_s": None, "max_credits": 900.0, **NO_ENERGY},
        ],
        "priority": 80,
        "priority_parts": {"type": 70.0, "user": 10.0},
        "hcl": 'job "benchmark" {\n}\n',
        "description": {"model": "net.onnx", "runtime": "ort", "target": "rpi4b"},
        "workload": workload(),
        "not_uploaded": [],
        "warnings": ["its board is busy"],
        "forecast": None, "planned": None,
    }  # fmt: skip
    server.on("POST", "/v1/benchmarks", answer)
    result = run("submit", "-m", "m", "--target", "rpi4b", "--dry-run")
    assert result.exit_code == 0
    assert fits(result.stdout)
    assert server.asked[0].query == {"dry_run": ["true"]}
    assert 'job "benchmark" {\n}\n' in result.stdout
    assert "would wait (board_busy: its board is busy)" in result.stdout
    assert "priority 80 = type 70 + user 10" in result.stdout
    assert "rpi5-0001-0001" not in result.stdout
    assert "and 1 more, of other families" in result.stdout
    assert "warning: its board is busy" in result.stderr
    assert json.loads(run("submit", "-m", "m", "--dry-run", "--json").stdout) == answer


def test_predicted_energy_has_its_interval(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEYARD_COLUMNS", "160")
    energy = {"energy_j": 279.0, "energy_low_j": 8.07, "energy_high_j": 9660.0}
    explained = explanation()
    explained["verdicts"][0] |= energy
    server.on("GET", f"{ONE}/explanation", explained)
    assert "279 (8.07 to 9660)" in run("explain", ID).stdout
    assert "J (95 %)" in run("explain", ID, "--all").stdout
    board = {
        **{"target_uid": UID, "family": "rpi4b", "state": "idle", "fits": True, "never": False},
        **{"reason": None, "sentence": "", "cost_s": 12.5, "cost_error_s": None},
        **{"max_credits": 900.0, **energy},
    }
    server.on("POST", "/v1/benchmarks", dry_run(boards=[board]))
    assert "279 (8.07 to 9660)" in run("submit", "-m", "m", "--dry-run").stdout


def test_a_dry_run_that_can_never_run_is_exit_2(server: FakeServer) -> None:
    server.on("POST", "/v1/benchmarks", dry_run(would="never", hcl=""))
    result = run("submit", "-m", "m", "--target", "rpi4b", "--dry-run")
    assert result.exit_code == 2
    assert "cannot run: no board of the lab fits" in result.stdout


# --- waiting --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code"), [("completed", 0), ("failed", 3), ("expired", 3), ("cancelled", 5)]
)
def test_wait_exits_as_the_benchmark_ended(server: FakeServer, status: str, code: int) -> None:
    server.on("GET", ONE, benchmark(status="running"), benchmark(status=status))
    server.on("GET", "/v1/results", {"items": [row()]})
    result = run("wait", ID)
    assert result.exit_code == code
    assert fits(result.stdout)
    assert ID in result.stdout
    assert status in result.stdout
    assert len(result.stderr.splitlines()) == 2  # one line a change, no spinner
    assert "\x1b" not in result.output


def test_a_failure_says_why_on_stdout_too(server: FakeServer) -> None:
    server.on("GET", ONE, benchmark(status="failed"))
    assert "user_model: the model can't be read" in run("wait", ID).stdout


def test_the_result_of_a_wait_is_printed_next_to_its_verdict(server: FakeServer) -> None:
    reasons = [{"code": "other_load", "sentence": "Other work had 40% of the time."}]
    server.on("GET", ONE, benchmark())
    server.on("GET", "/v1/results", {"items": [row(verdict="suspect", reasons=reasons)]})
    result = run("wait", ID)
    assert "12.3?  suspect" in result.stdout
    assert "Other work had 40% of the time." in result.stdout


def test_a_doubted_accuracy_is_marked_where_it_is_shown(server: FakeServer) -> None:
    doubted = [{"code": "labels_shifted", "sentence": "Labels are one off."}]
    measured = row(verdict="suspect", reasons=doubted, accuracy=0.075, top5=0.5)
    server.on("GET", ONE, benchmark())
    server.on("GET", "/v1/results", {"items": [measured]})
    assert "7.5%?" in run("wait", ID).stdout
    assert "labels_shifted" not in run("wait", ID, "-o", "csv").stdout.partition("\n")[0]
    whole = results(verdict="suspect")
    whole["summary"] = measured
    server.on("GET", f"{ONE}/results", whole)
    shown = " ".join(run("results", ID).stdout.split())
    assert "accuracy 7.50% suspect" in shown
    assert "top-5 50.00% suspect" in shown


def test_a_failure_says_more_than_a_cancellation(server: FakeServer) -> None:
    for name, status in (("a", "cancelled"), ("b", "failed"), ("c", "completed")):
        server.on("GET", f"/v1/benchmarks/{name}", benchmark(name, status))
    server.on("GET", "/v1/results", {"items": [row("c")]})
    assert run("wait", "a", "b", "c").exit_code == 3


def test_a_time_out_is_exit_4_and_leaves_the_benchmark_alone(server: FakeServer) -> None:
    server.on("GET", ONE, benchmark(status="pending"))
    result = run("wait", ID, "--timeout", "0")
    assert result.exit_code == 4
    assert f"resume with: edgeyard wait {ID}" in result.stderr
    assert server.of("POST", f"{ONE}/cancel") == []


def test_cancel_on_timeout_cancels(server: FakeServer) -> None:
    server.on("GET", ONE, benchmark(status="pending"))
    server.on("POST", f"{ONE}/cancel", benchmark(status="cancelled"))
    result = run("wait", ID, "--timeout", "0 s", "--cancel-on-timeout")
    assert result.exit_code == 4
    assert len(server.of("POST", f"{ONE}/cancel")) == 1


@pytest.mark.slow
def test_ctrl_c_ends_the_waiting_only(server: FakeServer) -> None:
    server.on("GET", ONE, benchmark(status="running"))
    talk = interrupted("wait", ID)
    assert f"the benchmark goes on; resume with: edgeyard wait {ID}" in talk
    assert "Traceback" not in talk
    assert all(one.method == "GET" for one in server.asked)


def test_submit_and_wait_prints_the_end_as_json(server: FakeServer) -> None:
    server.on("POST", "/v1/benchmarks", accepted())
    server.on("GET", ONE, benchmark())
    result = run("submit", "-m", "m", "--target", "x", "--wait", "--json")
    assert json.loads(result.stdout) == benchmark()


def test_watch_without_ids_follows_ones_own(server: FakeServer) -> None:
    server.on("GET", "/v1/me", me())
    server.on("GET", "/v1/benchmarks", {"items": [benchmark(status="running")]})
    server.on("GET", ONE, benchmark())
    server.on("GET", "/v1/results", {"items": [row()]})
    assert run("watch").exit_code == 0
    asked = server.of("GET", "/v1/benchmarks")[0].query
    assert asked["user_id"] == ["ada"]
    server.on("GET", "/v1/benchmarks", {"items": []})
    assert "you have no benchmark that waits" in run("watch").stderr


def test_a_campaign_is_waited_for_as_a_whole(server: FakeServer) -> None:
    server.on("GET", "/v1/campaigns/campaign-c", campaign(benchmark(status="running")))
    server.on("GET", ONE, benchmark())
    server.on("GET", "/v1/results", {"items": [row()]})
    assert run("wait", "--campaign", "campaign-c").exit_code == 0


# --- looking --------------------------------------------------------------------------------------


def test_list_keeps_ids_whole_within_80_columns(server: FakeServer) -> None:
    items = [benchmark(LONG_ID, "running", target_uid="jetsonorinnano-0001-0001"), benchmark()]
    server.on("GET", "/v1/benchmarks", {"items": items, "next_cursor": None})
    result = run("list")
    assert fits(result.stdout)
    assert LONG_ID in result.stdout
    assert "completed" in result.stdout


def test_list_takes_filters_and_stops_at_its_limit(server: FakeServer) -> None:
    page = {"items": [benchmark("a"), benchmark("b"), benchmark("c")], "next_cursor": "n"}
    server.on("GET", "/v1/benchmarks", page | {"total": 136})
    result = run("list", "-n", "2", "--status", "running", "--status", "pending", "--json")
    assert [one["benchmark_id"] for one in json.loads(result.stdout)] == ["a", "b"]
    assert server.asked[0].query["status"] == ["running", "pending"]
    assert len(server.asked) == 2, "the first page, and how many there are"
    assert result.stderr == "2 of 136 benchmarks; --limit 136 shows all\n"


@pytest.mark.parametrize("words", [("list",), ("list", "--status", "completed")])
def test_a_pipe_gets_every_column_in_full_whatever_the_shell_exports(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.delenv("EDGEYARD_COLUMNS")
    monkeypatch.setenv("COLUMNS", "80")
    name = f"light_squeezenet-{'x' * 100}.onnx"
    one = benchmark(LONG_ID, "completed")
    one["description"] |= {"model": name}
    server.on("GET", "/v1/benchmarks", {"items": [one, benchmark()], "next_cursor": None})
    lines = run(*words).stdout.splitlines()
    assert len(lines) == 3, "a line for each"
    assert name in lines[1]
    assert lines[0].split()[:4] == ["BENCHMARK", "STATUS", "AGE", "BOARD"]
    assert "RUNTIME" in lines[0]
    assert all(line == line.rstrip() for line in lines)


def test_ids_and_names_of_a_list_can_be_read_in_80_columns(server: FakeServer) -> None:
    one = benchmark("emufast-ort-20261123073116-ln2bwkmzgq", target_uid="emufast-0001-0001")
    one["description"] |= {"model": "squeezenet.onnx"}
    server.on("GET", "/v1/benchmarks", {"items": [one], "next_cursor": None})
    head, line = shown = run("list").stdout.splitlines()
    assert fits("\n".join(shown))
    assert head.split() == ["BENCHMARK", "STATUS", "BOARD", "MODEL"]
    assert line.split()[0] == one["benchmark_id"]
    assert line.split()[2] == "emufast-0001-0001"
    assert line.split()[3].startswith("squeeze")
    one |= {"benchmark_id": LONG_ID, "target_uid": "jetsonorinnano-0001-0001"}
    head, line = shown = run("list").stdout.splitlines()
    assert fits("\n".join(shown))
    assert (head.split()[-1], line.split()[-1]) == ("MODEL", "squeezenet.onnx")


@pytest.mark.parametrize("width", ["0", "-5", "wide", "80.0"])
def test_an_invalid_width_is_refused(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    monkeypatch.setenv("EDGEYARD_COLUMNS", width)
    server.on("GET", "/v1/benchmarks", {"items": [benchmark()], "next_cursor": None})
    assert f"EDGEYARD_COLUMNS: is '{width}'" in refusal(run("list"))


def test_an_empty_list_is_no_data_in_any_form(server: FakeServer) -> None:
    server.on("GET", "/v1/benchmarks", {"items": [], "next_cursor": None})
    assert (run("list").stdout, run("list").stderr) == ("", "no benchmarks\n")
    assert json.loads(run("list", "--json").stdout) == []
    assert run("list", "-o", "csv").stdout == ""


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_csv_holds_no_formulas_of_other_users(server: FakeServer, first: str) -> None:
    foreign = f"{first}HYPERLINK(0)"
    one = benchmark(progress=-1.0, description={"name": foreign, "tags": [foreign]})
    server.on("GET", "/v1/benchmarks", {"items": [one]})
    [line] = rows_of(run("list", "-o", "csv"))
    shown = f"'{foreign}".replace("\r", "\n")
    assert line["description.name"] == line["description.tags"] == shown
    assert line["progress"] == "-1.0", "numbers stay numbers"
    [line] = json.loads(run("list", "--json").stdout)
    assert line["description"]["name"] == foreign


def test_csv_has_dotted_columns_that_programs_read(server: FakeServer) -> None:
    server.on("GET", "/v1/benchmarks", {"items": [benchmark(status="failed")]})
    [line] = rows_of(run("list", "-o", "csv"))
    assert line["benchmark_id"] == ID
    assert line["failure.category"] == "user_model"
    assert line["description.model"] == "net.onnx"


def test_explain_counts_the_benchmarks_ahead_that_no_board_can_run(server: FakeServer) -> None:
    server.on("GET", f"{ONE}/explanation", explanation(rank=1, never_ahead=1))
    shown = "position 2 in the queue (not counting 1 more that cannot run on any board of the lab)"
    assert shown in " ".join(run("explain", ID).stdout.split())


@pytest.mark.parametrize(
    ("limit", "shown"), [(None, "running  0 (no limit)"), (5, "0 of at most 5")]
)
def test_an_account_shows_how_many_benchmarks_may_run(
    server: FakeServer, limit: int | None, shown: str
) -> None:
    account = {"user_id": "ann", "running": 0, "max_running": limit, "max_priority": 10}
    server.on("GET", "/v1/users/ann/account", account)
    assert shown in run("users", "account", "ann").stdout


@pytest.mark.parametrize("status", ["pending", "running", "completed", "failed"])
def test_show_is_readable_at_80_columns(server: FakeServer, status: str) -> None:
    server.on("GET", ONE, benchmark(status=status))
    result = run("show", ID)
    assert fits(result.stdout)
    assert status.upper() in result.stdout
    assert "nb_inference" in result.stdout
    assert json.loads(run("show", ID, "--json").stdout)["status"] == status


def test_explain_says_of_a_job_that_the_cluster_does_not_start_what_it_waits_for(
    server: FakeServer,
) -> None:
    sentence = "no host of its datacenters is ready"
    waiting = {"reason": "cluster_constraint", "sentence": sentence}
    server.on("GET", f"{ONE}/explanation", explanation(waiting=waiting))
    shown = run("explain", ID).stdout
    assert "was placed" not in shown
    words = " ".join(shown.split())
    assert f"handed to the cluster for {UID} (strict), which has not started it" in words
    assert f"waits: cluster_constraint: {sentence}" in words


def test_explain_shows_rank_priority_and_each_boards_verdict(server: FakeServer) -> None:
    server.on("GET", f"{ONE}/explanation", explanation())
    result = run("explain", ID)
    assert fits(result.stdout)
    assert f"was placed on {UID} (strict)" in result.stdout
    assert "position 1 in the queue: priority 80" in " ".join(result.stdout.split())
    assert "priority 80 = type 70 + user 10 + age 0 + deadline 0" in result.stdout
    words = " ".join(result.stdout.split())
    assert "expected to end at 2026-11-21 08:00:52 UTC (52 s ± 3 s)" in words
    assert "agreement: 75% of the scorers rate no board above" in words
    assert "53.5 s ± 3 s" in words
    assert "board_busy" in words
    assert "and 1 more: 1 no_such_family" in words
    assert "cost =" not in words
    every = run("explain", ID, "--all")
    assert fits(every.stdout)
    assert "rpi5-0001-0001" in every.stdout
    for part in ("fastest", "0.900", "abstains", "cost ="):
        assert part in every.stdout
    assert len(rows_of(run("explain", ID, "-o", "csv"))) == 3


def test_explain_says_why_it_waits(server: FakeServer) -> None:
    waiting = {"reason": "board_offline", "sentence": "its board is offline"}
    server.on("GET", f"{ONE}/explanation", explanation(placement=None, waiting=waiting))
    assert "waits: board_offline: its board is offline" in run("explain", ID).stdout


def test_explain_says_what_would_let_it_start_sooner(server: FakeServer) -> None:
    def change(field: str, value: object, gain_s: float | None = None) -> dict[str, object]:
        return {"field": field, "value": value, "start": "2026-11-21T08:10:00Z", "gain_s": gain_s}

    changes = {
        "decided_at": "2026-11-21T08:00:00Z",
        "age_s": 90.0,
        "start": None,
        "changes": [
            change("user_priority", 7, 90.0),
            change("user_time", 120),
            change("constraints", "unique.name = nowhere"),
            change("storage", 1 << 30),
            change("target", "rpi5"),
        ],
        "deadline": None,
        "reachable_deadline": None,
        "untried": ["ram"],
    }
    server.on("GET", f"{ONE}/explanation", explanation(placement=None, changes=changes))
    output = run("explain", ID, "--changes").stdout
    assert fits(output)
    assert "as queue and boards were 1 min 30 s ago:" in output
    assert "no start is predicted for this description" in output
    assert "with user_priority 7: at" in output
    assert "1 min 30 s sooner" in output
    assert "with user_time 120 s" in output
    assert "without the constraint unique.name = nowhere" in output
    assert "with storage 1 GiB" in output
    assert "on family rpi5" in output
    assert "not tried, because the time was up: ram" in output
    server.on("GET", f"{ONE}/explanation", explanation(changes=None))
    assert "does not wait, so there is nothing to change" in run("explain", ID, "--changes").stdout


def test_hcl_is_printed_as_it_is(server: FakeServer) -> None:
    text = 'job "x" {\n  long = "' + "a" * 200 + '"\n}\n'
    server.on("GET", f"{ONE}/hcl", Answer(text.encode()))
    assert run("hcl", ID).stdout == text


def test_logs_are_printed_and_followed(server: FakeServer) -> None:
    server.on("GET", ONE, benchmark())
    server.on("GET", f"{ONE}/logs", Answer(b"one\ntwo\n"), Answer(b""))
    assert run("logs", ID).stdout == "one\ntwo\n"
    server.on("GET", f"{ONE}/logs", Answer(b"one\ntwo\n"))
    assert run("logs", "-f", ID).stdout == "one\ntwo\n"


def test_events_are_a_line_each(server: FakeServer) -> None:
    event = event_of(a="b")
    server.on("GET", f"{ONE}/events", {"items": [event], "next_after": 1}, {"items": []})
    assert "benchmark.status  a=b" in run("events", ID).stdout
    server.on("GET", f"{ONE}/events", {"items": [event], "next_after": 1}, {"items": []})
    assert json.loads(run("events", ID, "--json").stdout) == event


def test_long_events_are_wrapped_and_hide_nothing_in_json(server: FakeServer) -> None:
    data = {"attempt": 1, "job_id": f"benchmark-{LONG_ID}", "reason": "a long sentence " * 9}
    event = event_of(1, "attempt.state", **data)
    server.on("GET", f"{ONE}/events", {"items": [event], "next_after": 1}, {"items": []})
    text = run("events", ID).stdout
    assert fits(text)
    assert " ".join(text.split()).endswith(f"attempt=1 reason={data['reason']}".strip())
    server.on("GET", f"{ONE}/events", {"items": [event], "next_after": 1}, {"items": []})
    assert json.loads(run("events", ID, "--json").stdout) == event


def test_show_ends_with_the_page_of_the_newest_job_in_one_line(server: FakeServer) -> None:
    shown = benchmark()
    server.on("GET", ONE, shown)
    assert "page" not in run("show", ID).stdout  # the embedded cluster has none
    page = f"http://nomad.lab.example:4646/ui/jobs/benchmark-{LONG_ID}@edgeyard"
    newest = {**shown["attempts"][0], "number": 2, "cluster_page": page}
    server.on("GET", ONE, {**shown, "attempts": [*shown["attempts"], newest]})
    assert run("show", ID).stdout.splitlines()[-1] == page
    assert len(page) > 80


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_show_counts_the_retries_also_when_there_are_none(server: FakeServer, retries: int) -> None:
    shown = benchmark()
    server.on(
        "GET", ONE, {**shown, "description": {**shown["description"], "max_retries": retries}}
    )
    assert f"max_retries {retries}" in " ".join(run("show", ID).stdout.split())


def test_show_has_the_units_of_a_load(server: FakeServer) -> None:
    shown = benchmark()
    load = {"load": "server", "load_bound": 0.02, "load_duration": 30.0, "load_rate": 50.0}
    server.on("GET", ONE, {**shown, "description": {**shown["description"], **load}})
    text = " ".join(run("show", ID).stdout.split())
    for stated in ("load_bound 20 ms", "load_duration 30 s", "load_rate 50 queries/s"):
        assert stated in text


def test_a_start_that_was_handed_over_early_is_in_the_headline(server: FakeServer) -> None:
    shown = benchmark(status="scheduled")
    for start, said in (("2226-11-21T08:00:00Z", True), ("2026-01-01T08:00:00Z", False)):
        server.on(
            "GET", ONE, {**shown, "description": {**shown["description"], "start_time": start}}
        )
        headline = run("show", ID).stdout.splitlines()[1]
        assert headline.startswith("SCHEDULED")
        assert ("starts at 2226-11-21" in headline) is said


def test_a_benchmark_that_the_cluster_does_not_start_shows_why(server: FakeServer) -> None:
    reason = {"code": "cluster_constraint", "sentence": "1 host: no memory left"}
    server.on("GET", ONE, benchmark(status="scheduled", waiting_reason=reason))
    headline = run("show", ID).stdout.splitlines()[1]
    assert headline.startswith("SCHEDULED")
    assert "no memory left" in headline


@pytest.mark.parametrize(
    ("binding", "ran_on", "words"),
    [
        ("loose", None, f"the cluster chooses the board (loose); first choice {UID}"),
        ("filtered", UID, f"ran on {UID}, the first choice; the cluster decided (filtered)"),
        (
            "filtered",
            "rpi4b-9",
            f"ran on rpi4b-9: the cluster decided (filtered), first choice {UID}",
        ),
    ],
)
def test_explain_names_the_board_that_ran_it_where_the_cluster_chose(
    server: FakeServer, binding: str, ran_on: str | None, words: str
) -> None:
    reported = explanation(ran_on=ran_on)
    reported["placement"] = {**reported["placement"], "binding": binding}
    server.on("GET", f"{ONE}/explanation", reported)
    line = run("explain", ID).stdout.splitlines()[1]
    assert line.startswith(words)


def test_the_queue_shows_why_each_one_waits(server: FakeServer) -> None:
    items = [
        {"position": 0, "benchmark_id": LONG_ID, "priority": 80,
         "waiting_reason": {"code": "board_busy", "sentence": "all its boards are busy right now"}},
        {"position": 1, "benchmark_id": None, "priority": 10, "waiting_reason": None},
    ]  # fmt: skip
    server.on("GET", "/v1/queue", {"items": items})
    result = run("queue")
    assert fits(result.stdout)
    assert LONG_ID in result.stdout
    assert "(another user's)" in result.stdout
    assert result.stdout.split()[:4] == ["#", "BENCHMARK", "STARTS", "PRIO"]
    assert [line[0] for line in result.stdout.splitlines() if line[0] != " "] == ["#", "1", "2"]


def test_the_queue_is_asked_for_by_limit_user_and_family(server: FakeServer) -> None:
    server.on("GET", "/v1/queue", {"items": [{"position": 0, "benchmark_id": LONG_ID}]})
    assert run("queue", "--limit", "5", "--user", "ann", "--target", "rpi4b").exit_code == 0
    query = server.asked[-1].query
    assert query == {"limit": ["5"], "user": ["ann"], "target": ["rpi4b"]}


def test_the_queue_reports_at_80_columns_when_each_one_starts(server: FakeServer) -> None:
    now = datetime.now().astimezone()
    soon, tomorrow = now.replace(hour=12, minute=30, second=15), now + timedelta(days=1)
    items = [
        {"position": place, "benchmark_id": LONG_ID, "priority": 80, "model": "m" * 40,
         "forecast": forecast(at), "waiting_reason": {"code": "board_busy", "sentence": "x " * 40}}
        for place, at in enumerate((soon, tomorrow))
    ]  # fmt: skip
    server.on("GET", "/v1/queue", {"items": items})
    result = run("queue")
    assert fits(result.stdout)
    assert f"{LONG_ID}  12:30:15" in result.stdout
    assert f"{LONG_ID}  {tomorrow:%m-%d %H:%M}" in result.stdout


def test_a_submission_shows_when_it_starts_and_ends(server: FakeServer) -> None:
    at = datetime.now().astimezone().replace(hour=12, minute=30, second=15)
    answer = {**accepted("one"), "forecast": forecast(at)}
    submit = ("submit", "--model", "m.onnx", "--runtime", "ort", "--type", "TYPE1")
    for _ in range(2):
        server.on("POST", "/v1/benchmarks", answer)
    result = run(*submit)
    assert result.stdout == "one\n"
    assert "expected start 12:30:15 (interval, unchecked: 12:30:15 to 12:30:15)" in result.stderr
    assert "expected end 12:30:15 (interval, unchecked:" in result.stderr
    assert json.loads(run(*submit, "--json").stdout)["forecast"]["start"] == at.isoformat().replace(
        "+00:00", "Z"
    )
    counts = {"starts_held": 19, "started": 40, "ends_held": 41, "ended": 50}
    checked = {**accepted("one"), "forecast": {**forecast(at), "coverage": counts}}
    server.on("POST", "/v1/benchmarks", checked)
    told = run(*submit).stderr
    assert "expected start 12:30:15 (interval that held 48% of 40 starts lately: 12:30:15" in told
    assert "expected end 12:30:15 (interval that held 82% of 50 ends lately: 12:30:15" in told
    server.on("POST", "/v1/benchmarks", {**accepted("one"), "forecast": None})
    assert "expected" not in run(*submit).stderr


@pytest.mark.parametrize(
    ("coverage", "said"),
    [
        ((19, 40, 41, 50), "held lately: 48% of 40 starts, 82% of 50 ends (meant: 80 %)"),
        ((0, 0, 41, 50), "held lately: 82% of 50 ends (meant: 80 %)"),
        ((0, 0, 0, 0), "not checked yet: no benchmark with a forecast has ended"),
    ],
)
def test_a_forecast_says_how_those_before_it_turned_out(
    server: FakeServer, coverage: tuple[int, int, int, int], said: str
) -> None:
    names = ("starts_held", "started", "ends_held", "ended")
    at = datetime(2026, 11, 21, 12, tzinfo=UTC)
    server.on(
        "GET",
        ONE,
        benchmark(forecast={**forecast(at), "coverage": dict(zip(names, coverage, strict=True))}),
    )
    assert said in " ".join(run("show", ID).stdout.split())


def forecast(at: datetime) -> dict[str, object]:
    """All of it at one time."""
    names = ("start", "start_low", "start_high", "finish", "finish_low", "finish_high")
    return {
        "made_at": at.isoformat(),
        "age_s": 0.0,
        "place": 1,
        "deadline_chance": None,
        "grounded": True,
        "coverage": {"starts_held": 0, "started": 0, "ends_held": 0, "ended": 0},
        **dict.fromkeys(names, at.isoformat()),
    }


def test_control_characters_of_others_do_not_reach_the_terminal(server: FakeServer) -> None:
    hostile = benchmark(status="failed", failure={"category": "x", "sentence": "\x1b]0;owned\x07"})
    server.on("GET", ONE, hostile)
    assert "\x1b" not in run("show", ID).stdout


# --- acting ---------------------------------------------------------------------------------------


def test_cancel_takes_many_and_reports_those_that_had_ended(server: FakeServer) -> None:
    server.on("POST", "/v1/benchmarks/a/cancel", Answer(benchmark("a", "cancelled"), 202))
    gone = Answer(problem(409, "conflict", "b has completed"), 409)
    server.on("POST", "/v1/benchmarks/b/cancel", gone)
    result = run("cancel", "a", "b")
    assert result.exit_code == 1
    assert "a" in result.stdout
    assert "b has completed" in result.stderr


def test_retry_prints_the_new_id(server: FakeServer) -> None:
    server.on("POST", f"{ONE}/retry", accepted("again"))
    assert run("retry", ID).stdout == "again\n"


# --- results --------------------------------------------------------------------------------------


def test_one_result_is_shown_with_its_trust(server: FakeServer) -> None:
    server.on("GET", f"{ONE}/results", results(verdict="suspect"))
    result = run("results", ID)
    assert fits(result.stdout)
    assert "suspect: Other work had 40% of the time." in result.stdout
    assert "12.3 ms (95 %: 12.1 to 12.6) suspect" in result.stdout
    assert "report.json" in result.stdout
    assert json.loads(run("results", ID, "--json").stdout) == results(verdict="suspect")
    [line] = rows_of(run("results", ID, "-o", "csv"))
    assert (line["p50_ms"], line["verdict"]) == ("12.3", "suspect")


def test_csv_has_the_columns_and_values_of_the_data_frame(server: FakeServer) -> None:
    server.on("GET", "/v1/results", {"items": [row("a"), row("b", p50_ms=24.6, verdict="suspect")]})
    server.on("GET", "/v1/benchmarks/a/results", results("a"))
    with Client() as client:
        frame = client.results_frame(["a", "b"])
    lines = rows_of(run("results", "a", "b", "-o", "csv"))
    assert (
        list(lines[0])
        == ["benchmark_id", *frame.columns]
        == list(rows_of(run("results", "a", "-o", "csv"))[0])
    )
    for line in lines:
        own = frame.loc[line["benchmark_id"]]
        assert line["model_sha256"] == own["model_sha256"]
        assert len(line["model_sha256"]) == 64
        assert (line["inputs"], line["reasons"]) == (own["inputs"], own["reasons"])
        assert float(line["ratio"]) == own["ratio"]


@pytest.mark.parametrize(
    ("verdict", "mark"), [("invalid", "!"), ("suspect", "?"), ("comparable", "")]
)
def test_times_of_layers_have_the_mark_of_the_runs_verdict(
    server: FakeServer, verdict: str, mark: str
) -> None:
    time_ = {"time_ms": 1.5, "share": 0.75}
    layer = {"name": "conv1", "operator": "Conv", "provider": "CPUExecutionProvider", **time_}
    profile = {
        "runs": 20,
        "count": 1,
        "profiled_p50_ms": 2.0,
        "overhead": 0.1,
        "outside_ms": 0.5,
        "layers": [layer | {"calls_per_run": 1.0}],
        "operators": [{"operator": "Conv", "layers": 1, **time_}],
        "providers": [{"provider": "CPUExecutionProvider", "layers": 1, **time_}],
    }
    server.on("GET", ONE, benchmark(status="completed"))
    server.on("GET", f"{ONE}/results", results(verdict=verdict) | {"layers": profile})
    shown = printed(run("results", ID))
    (line,) = [line for line in shown.splitlines() if "conv1" in line]
    assert line.split()[-3:] == [f"1.5{mark}", f"75.0%{mark}", f"75.0%{mark}"]
    words = " ".join(shown.split())
    assert "clock" not in words
    assert "20 profiled runs, p50 2 ms, +10% against the timed runs" in words
    assert "0.5 ms of a run are in no layer, 25% of it" in words


def test_layers_that_take_a_small_part_of_a_run_show_it(server: FakeServer) -> None:
    """OpenVINO's clock has whole microseconds, and most of a small model's run is in no layer."""
    times = [("dense", 0.002, 0.75), ("relu", 0.0006, 0.25), ("copy", 0.0, 0.0)]
    layers = [
        {"name": name, "operator": name, "provider": "", "time_ms": time_ms, "share": share}
        for name, time_ms, share in times
    ]
    profile = {
        **{"runs": 20, "count": 3, "profiled_p50_ms": 0.026, "overhead": 0.1, "outside_ms": 0.0234},
        "layers": [each | {"calls_per_run": 1.0} for each in layers],
        "operators": [],
        "providers": [],
    }
    server.on("GET", f"{ONE}/results", results() | {"layers": profile})
    shown = printed(run("results", ID))
    (line,) = [line for line in shown.splitlines() if line.startswith("dense")]
    assert line.split()[-3:] == ["0.002", "7.7%", "75.0%"]
    words = " ".join(shown.split())
    assert "0.0234 ms of a run are in no layer, 90% of it" in words
    assert "a time of 0 is less than the engine's clock can show" in words


def no_result(status: str) -> dict[str, object]:
    return {
        "benchmark_id": ID,
        "status": status,
        "summary": None,
        "inference": [],
        "layers": None,
        "soak": None,
        "concurrency": None,
        "load_test": None,
        "reports": [],
        "files": [],
    }


@pytest.mark.parametrize(
    ("status", "expected", "talk"),
    [
        ("running", "running", "is running and has no result yet\n"),
        ("pending", "pending: board_offline: its board is offline", "has no result yet\n"),
        ("failed", "failed: user_model: the model can't be read", "is failed and has no result\n"),
        ("cancelled", "cancelled", "is cancelled and has no result\n"),
        ("expired", "expired", "is expired and has no result\n"),
    ],
)
def test_where_there_is_no_result_its_status_and_why_are_reported(
    server: FakeServer, status: str, expected: str, talk: str
) -> None:
    server.on("GET", ONE, benchmark(status=status))
    server.on("GET", f"{ONE}/results", no_result(status))
    server.on("GET", "/v1/results", {"items": [row(status=status, p50_ms=None, verdict=None)]})
    result = run("results", ID)
    lines = result.stdout.splitlines()
    assert expected in lines
    assert all(line.replace("·", "").strip() for line in lines)
    assert result.stderr.endswith(talk)
    together = " ".join(run("results", ID, "other").stdout.split())
    assert f"· {ID}: {expected}" in together


def test_all_numbers_of_a_language_model_are_shown_and_in_csv(server: FakeServer) -> None:
    answer = results()
    answer["summary"]["prefill_tokens_per_s"] = 900.0
    answer["reports"][0]["report"] |= {
        "benchmark_type": "GENAI",
        "generation": {
            **{"preset": "pp512", "prompt_length": 512, "output_length": 1, "requests": 12},
            "first_request_ms": 61.5,
        },
        "energy": {
            "per_inference": {"value": 0.002, "ci95": [0.001, 0.003]},
            "per_inference_above_idle": {"value": 0.001, "ci95": None},
            "idle": {"value": 2.5, "ci95": [2.4, 2.6]},
        },
        "results": {
            "request_ms": {
                "value": 61.5,
                "unit": "ms",
                "ci95": [0.0615, 61500.0],
                "ci95_degrees": 1.0,
            },
            "prefill_tokens_per_s": {"value": 900.0, "unit": "1/s", "ci95": [890.0, 910.0]},
        },
    }
    server.on("GET", f"{ONE}/results", answer)
    shown = " ".join(run("results", ID).stdout.split())
    assert "request_ms 61.5 ms (95 %: not known)" in shown
    assert "prefill_tokens_per_s 900 1/s (95 %: 890 to 910)" in shown
    assert "first request 61.5 ms" in shown
    assert "request a prompt of 512 tokens and 1 generated (pp512), measured 12 times" in shown
    assert "energy 0.002 J a token (95 %: 0.001 to 0.003)" in shown
    assert "above idle 0.001 J a token" in shown
    assert "idle power 2.5 W (95 %: 2.4 to 2.6)" in shown
    [line] = rows_of(run("results", ID, "-o", "csv"))
    assert line["prefill_tokens_per_s"] == "900.0"
    assert line["prefill_tokens_per_s_high"] == "910.0"
    assert line["first_request_ms"] == "61.5"


def test_the_energy_of_an_invalid_result_is_marked_as_its_other_numbers(
    server: FakeServer,
) -> None:
    rows = [row("a", energy_j=0.25, verdict="invalid"), row("b", energy_j=0.5)]
    server.on("GET", "/v1/results", {"items": rows})
    shown = run("results", "a", "b").stdout
    assert "0.25!" in shown
    assert "0.5!" not in shown
    answer = results(verdict="invalid")
    answer["reports"][0]["report"]["energy"] = {"per_inference": {"value": 0.25, "ci95": None}}
    server.on("GET", f"{ONE}/results", answer)
    answer["reports"][0]["report"] |= {
        "benchmark_type": "GENAI",
        "generation": {"prompt_length": 16, "output_length": 8, "requests": 12},
        "results": {"request_ms": {"value": 61.5, "unit": "ms", "ci95": [60.0, 62.0]}},
    }
    shown = run("results", ID).stdout
    assert "0.25 J a token invalid" in shown
    assert "61.5 ms (95 %: 60 to 62) invalid" in shown


def test_a_comparison_shows_what_differs_and_once_what_does_not(server: FakeServer) -> None:
    rows = [
        row("a", model="model.onnx", p50_ms=0.1),
        row("b", model="model.onnx", p50_ms=0.2, workload=workload()),
        row("c", model="model.onnx", p50_ms=179.1, workload=workload(model_sha256="f" * 64)),
    ]
    server.on("GET", "/v1/results", {"items": rows})
    output = run("results", "a", "b", "c").stdout
    assert fits(output)
    assert "CONTENT" in output
    assert "ffffffff" in output
    assert "ENGINE" not in output, "it is the same for all"
    assert "TYPE1 · ort · version 1.31.1 · x 1×3×224×224 float32" in output
    assert "2.00×" in output
    assert "1791" not in output, "two networks are not compared"
    assert "did different work (model's content)" in " ".join(output.split())
    listed = json.loads(run("results", "a", "b", "c", "--json").stdout)
    assert [one["group"] for one in listed] == [1, 1, 2]


def test_parts_of_the_work_have_their_names_where_the_words_do_not_say_them(
    server: FakeServer,
) -> None:
    inputs = [{"name": "input_ids", "shape": [None, None], "dtype": "int64"}]
    shared: dict[str, Any] = {"dataset_sha256": ["e2e51054" * 8], "batch_size": 1}
    rows = [
        row(each, workload=workload(**shared, inputs=inputs, engine_version=version))
        for each, version in (("a", "1.0.20261020"), ("b", "1.1"))
    ]
    server.on("GET", "/v1/results", {"items": rows})
    output = run("results", "a", "b", "--html", "page.html").stdout
    page = Path("page.html").read_text()
    for shown in (" ".join(output.split()), page):
        assert "dataset e2e51054 · TYPE1 · ort · input_ids ?×? int64 · batch size 1 · p50" in shown
    assert " 1.0.20261020 " in output
    assert "version 1.0.20261020" not in output
    assert "<td>1.0.20261020<" in page


def test_declared_values_replace_no_figure_and_their_names_no_characters(
    server: FakeServer,
) -> None:
    reported = results(verdict="suspect")
    reported["reports"][0]["report"]["results"] = {
        "p50": {"value": 0.001, "unit": "ms"},
        "accuracy": {"value": 0.75},
        "is_cold": {"value": True},
        "a\x1b]0;b\x07": {"value": "c\x1b[2J", "unit": "\x1b[1m"},
    }
    server.on("GET", f"{ONE}/results", reported)
    shown = run("results", ID).stdout
    assert "12.3 ms (95 %: 12.1 to 12.6) suspect" in shown
    values = shown.partition("\nValues\n")[2].partition("\nFiles\n")[0]
    assert [line.split()[:3] for line in values.splitlines()[:3]] == [
        ["p50", "0.001", "ms"],
        ["accuracy", "0.75"],
        ["is_cold", "yes"],
    ]
    assert "\x1b" not in shown


def test_results_of_a_tag_are_compared(server: FakeServer) -> None:
    server.on("GET", "/v1/benchmarks", {"items": [benchmark("b"), benchmark("a")]})
    server.on("GET", "/v1/results", {"items": [row("a"), row("b", p50_ms=24.6)]})
    assert "2.00×" in run("results", "--tag", "demo").stdout
    assert server.asked[0].query["tag"] == ["demo"]
    server.on("GET", "/v1/benchmarks", {"items": []})
    refused = run("results", "--tag", "none")
    assert refused.exit_code != 0
    assert "--tag: no benchmark has the tag 'none'" in refused.stderr


@pytest.mark.slow
def test_a_comparison_is_shown_and_drawn(server: FakeServer) -> None:
    reasons = [{"code": "x", "sentence": "The clock was throttled half of the time."}]
    names = {"a": "comparable", "b": "suspect", "c": "invalid"}
    rows = [
        row(one, target_uid=f"jetsonorinnano-0001-{one * 4}", verdict=verdict,
            reasons=reasons if one != "a" else [])
        for one, verdict in names.items()
    ]  # fmt: skip
    server.on("GET", "/v1/results", {"items": rows})
    for name, verdict in names.items():
        server.on("GET", f"/v1/benchmarks/{name}/results", results(name, verdict))
    result = printed(run("results", "a", "b", "c", "--plot", "out.png"))
    assert fits(result)
    assert "12.3?" in result
    assert "12.3!" in result
    assert "1.00×" in result
    assert result.count("throttled") == 2
    assert Path("out.png").read_bytes().startswith(b"\x89PNG")
    assert [one["ratio"] for one in json.loads(run("results", "a", "b", "c", "--json").stdout)]
    assert len(rows_of(run("results", "a", "b", "c", "-o", "csv"))) == 3


def test_inferences_are_counted_and_means_of_groups_are_named(server: FakeServer) -> None:
    fast, timed = results(), "in groups of 23 consecutive inferences"
    fast["reports"][0]["report"] |= {"nb_inference": 46000, "inner_loops": 23}
    fast["reports"][0]["report"]["inference_latency"]["count"] = 2000
    server.on("GET", f"{ONE}/results", fast)
    shown = " ".join(run("results", ID).stdout.split())
    assert "inferences 46,000" in shown
    assert timed in shown
    assert "p99" in shown[shown.index(timed) :], "the percentiles are of means"

    rows = [row("a", nb_inference=46000, inner_loops=23, model="fast.onnx"), row("b")]
    server.on("GET", "/v1/results", {"items": rows})
    compared = " ".join(run("results", "a", "b", "--html", "page.html").stdout.split())
    assert f"fast.onnx on {UID} was timed: {timed}" in compared
    assert compared.count(timed) == Path("page.html").read_text().count(timed) == 1
    line = rows_of(run("results", "a", "b", "-o", "csv"))[0]
    assert (line["nb_inference"], line["inner_loops"]) == ("46000", "23")


def test_batches_are_not_shown_as_inferences(server: FakeServer) -> None:
    batches = results()
    batches["summary"] |= {"benchmark_type": "TYPE2", "workload": workload(batch_size=16)}
    server.on("GET", f"{ONE}/results", batches)
    assert "batches 20 of up to 16 rows" in " ".join(run("results", ID).stdout.split())


def test_a_training_reports_its_losses_and_no_accuracy_bears_the_mark(server: FakeServer) -> None:
    reported = results(verdict="suspect")
    reported["summary"] |= {"benchmark_type": "TYPE3", "final_loss": 0.25, "accuracy": 0.5}
    reported["reports"][0]["report"]["training"] = {
        "trained": "the last dense layer", "steps": 40, "final_loss": 0.25,
        "epoch_losses": [1.5, 0.5], "validation_losses": [], "validation_accuracy": [0.5, 0.75],
    }  # fmt: skip
    server.on("GET", f"{ONE}/results", reported)
    shown = " ".join(run("results", ID).stdout.split())
    for part in ("the last dense layer", "steps 40", "loss 0.25", "epoch 1.5 0.5", "75.00%"):
        assert part in shown
    assert "inferences" not in shown
    assert "50.00% suspect" not in shown


def test_types_are_distinguished_and_never_share_an_axis(server: FakeServer) -> None:
    training = workload(benchmark_type="TYPE3")
    rows = [row("a"), row("b", benchmark_type="TYPE3", final_loss=0.25, workload=training)]
    server.on("GET", "/v1/results", {"items": rows})
    for one, kind in (("a", "TYPE1"), ("b", "TYPE3")):
        asked = {"benchmark_type": kind, "model": "net.onnx"}
        server.on("GET", f"/v1/benchmarks/{one}", benchmark(one, description=asked))
    for verb in ("results", "wait"):
        shown = run(verb, "a", "b").stdout
        assert fits(shown)
        assert "TYPE3" in shown
        assert "0.25" in shown
    assert "--type" in refusal(run("results", "a", "b", "--plot", "out.png"))
    assert not Path("out.png").exists()


@pytest.mark.parametrize("verb", ["hold", "release"])
def test_a_benchmark_is_held_and_released(server: FakeServer, verb: str) -> None:
    server.on("POST", f"{ONE}/{verb}", Answer(benchmark(status="pending"), 202))
    result = run(verb, ID)
    assert ID in result.stdout
    assert "net" in result.stdout
    assert len(server.of("POST", f"{ONE}/{verb}")) == 1


def test_result_files_are_fetched_into_a_folder(server: FakeServer) -> None:
    server.on("GET", f"{ONE}/results", results())
    for name in ("latencies.npy", "report.json"):
        server.on("GET", f"{ONE}/results/1/{name}", Answer(name.encode()))
    assert run("results", ID, "--download", "out").exit_code == 0
    assert Path("out", ID, "report.json").read_bytes() == b"report.json"


# --- nouns ----------------------------------------------------------------------------------------


def test_boards_are_listed_shown_drained_and_resumed(server: FakeServer) -> None:
    boards = [
        board("jetsonorinnano-0001-0001", "busy", benchmark_id=LONG_ID, progress=40.0),
        board(state="offline"),
    ]
    server.on("GET", "/v1/boards", boards_of(*boards))
    result = run("boards", "list")
    assert fits(result.stdout)
    assert "no host reports it" in " ".join(result.stdout.split())
    [line] = rows_of(run("boards", "list", "--state", "busy", "-o", "csv"))
    assert line["target_uid"] == "jetsonorinnano-0001-0001"
    server.on("GET", f"/v1/boards/{UID}", board())
    assert "TYPE1, TYPE3" in run("boards", "show", UID).stdout
    server.on("POST", f"/v1/boards/{UID}/drain", board(state="drained"))
    server.on("POST", f"/v1/boards/{UID}/resume", board())
    assert "drained" in run("boards", "drain", UID, "--reason", "fan").stdout
    assert server.of("POST", f"/v1/boards/{UID}/drain")[0].json == {"reason": "fan"}
    assert "idle" in run("boards", "resume", UID).stdout


def test_files_are_uploaded_downloaded_and_removed(server: FakeServer) -> None:
    file = user_file("u", file_id="file-1")
    Path("net.onnx").write_bytes(a_model_file())
    server.on("POST", "/v1/files", Answer(file, 201))
    assert "file-1" in run("files", "upload", "net.onnx").stdout
    server.on("GET", "/v1/files", {"items": [file]})
    assert fits(run("files", "list").stdout)
    server.on("GET", "/v1/files/file-1", {**file, "name": "../evil.onnx"})
    server.on("GET", "/v1/files/file-1/content", Answer(b"model"))
    assert run("files", "download", "file-1").exit_code == 0
    assert Path("evil.onnx").read_bytes() == b"model"
    assert run("files", "download", "file-1", "-").stdout == "model"
    again = refusal(run("files", "download", "file-1", "evil.onnx"))
    assert "evil.onnx exists" in again
    assert "--force" in again
    Path("evil.onnx").write_bytes(b"old")
    assert run("files", "download", "file-1", "--force").exit_code == 0
    assert Path("evil.onnx").read_bytes() == b"model"
    server.on("DELETE", "/v1/files/file-1", Answer(b"", 204))
    assert run("files", "delete", "file-1").exit_code == 0


def test_a_new_token_is_the_only_thing_on_stdout(server: FakeServer) -> None:
    made = {"token_id": "token-1", "token": "ey_new", "user_id": "ada", "role": "submitter"}
    server.on("POST", "/v1/tokens", Answer(made, 201))
    result = run("tokens", "create", "--role", "submitter", "--label", "ci")
    assert result.stdout == "ey_new\n"
    assert server.asked[0].json == {"role": "submitter", "label": "ci"}
    server.on("GET", "/v1/tokens", {"items": [{**made, "label": "ci"}]})
    assert fits(run("tokens", "list").stdout)
    server.on("DELETE", "/v1/tokens/token-1", Answer(b"", 204))
    assert run("tokens", "revoke", "token-1").exit_code == 0


def test_users_are_made_and_changed(server: FakeServer) -> None:
    user = {"user_id": "ada", "role": "submitter", "max_priority": 5, "disabled": False}
    server.on("POST", "/v1/users", Answer(user, 201))
    server.on("PATCH", "/v1/users/ada", {**user, "disabled": True})
    server.on("GET", "/v1/users", {"items": [user]})
    assert "ada" in run("users", "create", "ada", "--max-priority", "5").stdout
    assert "yes" in run("users", "update", "ada", "--disable").stdout
    assert server.of("PATCH", "/v1/users/ada")[0].json == {"disabled": True}
    assert fits(run("users", "list").stdout)


def test_campaigns_and_schedules(server: FakeServer) -> None:
    server.on("GET", "/v1/campaigns/campaign-c", campaign(benchmark()))
    server.on("GET", "/v1/campaigns", {"items": []})
    assert ID in run("campaigns", "show", "campaign-c").stdout
    schedule = {
        "schedule_id": "s-1",
        "cron": "0 * * * *",
        "next_fire": "2026-11-21T09:00:00Z",
        "description": {"model": "net.onnx"},
        "active": True,
    }
    server.on("GET", "/v1/schedules", {"items": [schedule]})
    assert fits(run("schedules", "list").stdout)
    problem = {
        "problem": "Nomad does not have its job now: quota",
        "retry_at": "2026-11-21T09:00:00Z",
    }
    server.on("GET", "/v1/schedules/s-1", {**schedule, **problem})
    result = run("schedules", "show", "s-1")
    assert not result.exit_code, result.output
    shown = result.stdout
    assert "quota" in shown
    assert "tried again" in shown
    assert fits(shown)
    assert "retry_at" in run("schedules", "show", "s-1", "--json").stdout
    server.on("DELETE", "/v1/schedules/s-1", Answer(b"", 204))
    assert run("schedules", "delete", "s-1").exit_code == 0


# --- doctor, render, up, the reference ------------------------------------------------------------


def _healthy(server: FakeServer) -> None:
    server.on("GET", "/v1/version", {"version": __version__})
    checks = {"database": "ok", "files": "ok", "cluster": "ok"}
    server.on("GET", "/readyz", {"status": "ready", "checks": checks})
    server.on("GET", "/v1/me", me())
    server.on("GET", "/v1/boards", boards_of(board(), board("rpi5-0001-0001", "offline")))
    server.on("GET", "/v1/inventory", {"families": {}, "boards": [{}, {}]})


READING = frozenset(
    {
        *("list", "show", "explain", "hcl", "logs", "events", "queue", "results", "wait", "watch"),
        *("render", "doctor", "limits", "attributes", "leases", "account", "diff", "compare"),
        *("download", "unfinished", "generate", "import", "pull", "export"),
        *("up", "status", "down"),  # of the test bed
        *("usage", "messages"),
    }
)
"""Verbs that change nothing on a server, or none of whose changes is somebody's act."""


def test_every_command_that_changes_something_takes_a_reason() -> None:
    def verbs(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
        below = getattr(command, "commands", None)
        if below is None:
            yield path.strip(), command
        for name, each in (below or {}).items():
            yield from verbs(each, f"{path} {name}")

    without = {
        path
        for path, command in verbs(typer.main.get_command(cli.app))
        if {"url", "token"} <= {each.name for each in command.params}
        and "reason" not in {each.name for each in command.params}
    }
    assert {path.split()[-1] for path in without - {"boards check"}} <= READING, without


def test_doctor_finds_a_good_set_up_good(server: FakeServer) -> None:
    _healthy(server)
    result = run("doctor")
    assert result.exit_code == 0
    assert fits(result.stdout)
    assert "rpi5-0001-0001 is offline" in result.stdout
    assert "0 problems" in result.stderr
    findings = json.loads(run("doctor", "--json").stdout)
    assert {one["check"] for one in findings} >= {"settings", "server", "clock", "token", "boards"}


def test_doctor_shows_the_room_on_the_server_s_disk_not_on_this_one(server: FakeServer) -> None:
    _healthy(server)
    room = {"status": "ok", "detail": "12 GiB free in the data folder of the server"}
    for disk, state in ((room, "ok"), ("300 MiB free in the data folder of the server", "warning")):
        checks = {"database": "ok", "files": "ok", "disk": disk, "cluster": "ok"}
        server.on("GET", "/readyz", {"status": "ready", "checks": checks})
        (found,) = [
            one for one in json.loads(run("doctor", "--json").stdout) if one["check"] == "disk"
        ]
        assert found["state"] == state
        assert "of the server" in found["found"]


def test_doctor_finds_that_the_driver_of_the_database_is_missing(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    _healthy(server)
    url = "postgresql://ann:CANARY@db.example/edgeyard"
    monkeypatch.setenv("EDGEYARD_DATABASE_URL", url)

    def found() -> dict[str, str]:
        one: dict[str, str]
        (one,) = [
            each
            for each in json.loads(run("doctor", "--json").stdout)
            if each["check"] == "database driver"
        ]
        return one

    assert found()["state"] == "ok"
    monkeypatch.setitem(sys.modules, "psycopg", None)  # as where it is not installed
    assert found()["state"] == "problem"
    assert "psycopg" in found()["found"]
    monkeypatch.setenv("EDGEYARD_DATABASE_URL", url.replace(":", "+nonsense:", 1))
    assert "nonsense" in found()["found"]
    assert "CANARY" not in str(found())


def test_doctor_shows_limits_that_are_nearly_full_and_all_of_them_if_asked(
    server: FakeServer,
) -> None:
    _healthy(server)
    limits = [
        {"name": name, "value": 100, "used": used, "unit": "files", "source": "default",
         "whose": "yours", "setting": "user_max_files"}
        for name, used in (("roomy", 1), ("full", 95))
    ]  # fmt: skip
    server.on("GET", "/v1/limits", {"items": limits})
    shown = [
        {one["check"] for one in json.loads(run("doctor", *more, "--json").stdout)}
        for more in ([], ["--limits"])
    ]
    assert [{each for each in checks if each.startswith("limit ")} for checks in shown] == [
        {"limit full"},
        {"limit full", "limit roomy"},
    ]


def test_doctor_checks_nomad_with_the_server_s_settings(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    _healthy(server)
    asked: list[str | None] = []

    def nomad_findings(settings: object, *, probe: bool, public_url: str | None) -> list[Finding]:
        asked.append(public_url)
        missing = Finding(check="board missing", state="warning", found="rpi5-0001-0001", fix="x")
        return [Finding(check="nomad boards", state="ok", found="1 of 2"), missing]

    monkeypatch.setattr("edgeyard.benchmark_api.bootstrap.nomad_findings", nomad_findings)
    plain = json.loads(run("doctor", "--json").stdout)
    assert "nomad" not in {one["check"] for one in plain}  # an old server that does not tell
    content = {"version": __version__, "cluster_kind": "nomad", "public_url": "http://lab.test:1"}
    server.on("GET", "/v1/version", content)
    (hint,) = [one for one in json.loads(run("doctor", "--json").stdout) if one["check"] == "nomad"]
    assert hint["state"] == "unknown"
    assert "--config" in hint["fix"]
    assert asked == []
    findings = json.loads(run("doctor", "--nomad", "--json").stdout)
    # The missing board is reported once, by the check of Nomad.
    assert [one["check"] for one in findings if one["check"].startswith("board")] == [
        "boards",
        "board missing",
    ]
    assert "0 problems, 1 warning\n" in run("doctor", "--nomad").stderr
    server.on("GET", "/v1/version", {"version": __version__})
    run("doctor", "--nomad")
    server.on("GET", "/v1/version", {**content, "cluster_kind": "embedded"})
    other = json.loads(run("doctor", "--nomad", "--json").stdout)
    assert "server settings" in {one["check"] for one in other if one["state"] == "warning"}
    run("doctor", "--nomad", "--url", "http://127.0.0.1:9")
    assert asked == ["http://lab.test:1", "http://lab.test:1", server.url, None, None]


@pytest.mark.parametrize(
    ("path", "answer", "expected"),
    [
        ("/v1/me", Answer(problem(401, "x", "no such token"), 401), "set EDGEYARD_TOKEN"),
        (
            "/readyz",
            Answer({"status": "not ready", "checks": {"cluster": "no answer since 90 s"}}, 503),
            "no answer since 90 s",
        ),
        ("/v1/boards", Answer(boards_of()), "start the hosts"),
        ("/v1/version", Answer(b"<html>"), "start it (edgeyard up"),
        ("/v1/inventory", Answer({"boards": []}), "add the boards to the inventory"),
    ],
)
def test_doctor_shows_what_to_do(
    server: FakeServer, path: str, answer: Answer, expected: str
) -> None:
    _healthy(server)
    server.on("GET", path, answer)
    result = run("doctor")
    assert result.exit_code == 1
    assert expected in " ".join(result.stdout.split())


def test_doctor_warns_of_a_scorer_that_is_suspended(server: FakeServer) -> None:
    _healthy(server)
    late = {"scorer": "slow", "suspension_reason": "suspended until 12:00 after 3 faults in a row"}
    server.on("GET", "/v1/scorers", {"items": [late, {"scorer": "fast", "suspension_reason": ""}]})
    result = run("doctor", "--json")
    assert result.exit_code == 0
    (found,) = (one for one in json.loads(result.stdout) if one["check"] == "scorer")
    assert found["state"] == "warning"
    assert "slow is suspended until 12:00" in found["found"]
    assert "budget_s" in found["fix"]


def test_doctor_offers_canaries_where_none_run(server: FakeServer) -> None:
    _healthy(server)
    server.on("GET", "/v1/version", {"version": __version__, "canary_share": 0.0})
    offered = run("doctor")
    assert offered.exit_code == 0
    assert "canary_share = 0.01" in offered.stdout
    server.on("GET", "/v1/version", {"version": __version__, "canary_share": 0.02})
    running = run("doctor").stdout
    assert "canary_share = 0.01" not in running
    assert "take up to 2 % of boards' time" in running


def test_doctor_names_an_engine_of_canaries_that_no_board_has(server: FakeServer) -> None:
    _healthy(server)
    version = {"version": __version__, "canary_share": 0.02, "canary_engines": ["ort", "onr"]}
    server.on("GET", "/v1/version", version)
    result = run("doctor", "--json")
    assert result.exit_code == 0
    found = [one for one in json.loads(result.stdout) if one["check"] == "canaries"]
    (warning,) = (one for one in found if one["state"] == "warning")
    assert warning["found"] == "no board has the engine onr, so that its canaries never run"
    assert "EDGEYARD_CANARIES" in warning["fix"]


def test_doctor_warns_of_a_cluster_that_falls_silent(server: FakeServer) -> None:
    _healthy(server)
    checks = {"cluster": "not answering for 7 s: Nomad failed 6 times in a row"}
    server.on("GET", "/readyz", {"status": "ready", "checks": checks})
    states = {one["check"]: one for one in json.loads(run("doctor", "--json").stdout)}
    assert states["cluster"]["state"] == "warning"
    assert "not answering for 7 s" in states["cluster"]["found"]


def test_doctor_sees_another_version_and_another_clock(server: FakeServer) -> None:
    _healthy(server)
    late = {"Date": "Sat, 21 Nov 2020 08:00:00 GMT"}
    server.on("GET", "/v1/version", Answer({"version": "9.0.0"}, headers=late))
    states = {one["check"]: one for one in json.loads(run("doctor", "--json").stdout)}
    assert "server's version 9.0.0" in states["server"]["fix"]
    assert states["clock"]["state"] == "warning"


@pytest.mark.parametrize(
    ("offset_s", "state", "words"),
    [
        (-600.2, "warning", "host-a is 600 s behind the server's"),
        (7.0, "warning", "host-a is 7 s ahead of the server's"),
        (0.4, "ok", "of 1 host: the same as the server's"),
    ],
)
def test_the_clock_of_each_host_is_shown(
    server: FakeServer, offset_s: float, state: str, words: str
) -> None:
    _healthy(server)
    one = board() | {"host": "host-a", "host_clock_offset_s": offset_s}
    server.on("GET", "/v1/boards", boards_of(one))
    server.on("GET", f"/v1/boards/{UID}", one)
    findings = {each["check"]: each for each in json.loads(run("doctor", "--json").stdout)}
    assert findings["host clock"]["state"] == state
    assert words in findings["host clock"]["found"]
    shown = "agrees with the server's" if state == "ok" else words.removeprefix("host-a is ")
    assert shown in run("boards", "show", UID).stdout


def test_a_host_whose_clock_nobody_measured_is_not_judged(server: FakeServer) -> None:
    _healthy(server)
    assert "host clock" not in run("doctor").stdout


def test_doctor_works_without_a_server(server: FakeServer) -> None:
    result = run("doctor", "--url", "http://127.0.0.1:9")
    assert result.exit_code == 1
    assert "no answer from http://127.0.0.1:9" in " ".join(result.stdout.split())


def test_doctor_reports_a_bad_settings_file(server: FakeServer) -> None:
    Path("edgeyard.toml").write_text("url = 3")
    result = run("doctor")
    assert result.exit_code == 1
    assert "url has to be a string" in " ".join(result.stdout.split())


def test_render_prints_the_job_without_a_server(server: FakeServer) -> None:
    Path("net.onnx").write_bytes(a_model_file())
    Path("job.yaml").write_text(
        "model: net.onnx\nruntime: ort\nbenchmark_type: TYPE1\ntarget: [rpi4b, rpi5]\n"
    )
    result = printed(run("render", "job.yaml"))
    assert result.count('job "benchmark-rpi') == 2
    assert 'value     = "rpi5"' in result
    assert "priority = 80" in result
    assert server.asked == []


def test_render_names_what_is_wrong(server: FakeServer) -> None:
    Path("job.yaml").write_text(
        "model: net.onnx\nruntim: ort\nbenchmark_type: TYPE100\ntarget: x\n"
    )
    result = refusal(run("render", "job.yaml"))
    assert "\nruntim: is not a field" in result
    assert "\nbenchmark_type: " in result


def test_render_names_a_field_of_the_file_as_it_stands_there(server: FakeServer) -> None:
    """The flag --policy sets the name of a policy where one is sent, and none of a job file."""
    lines = "model: net.onnx\nruntime: ort\nbenchmark_type: TYPE1\ntarget: rpi4b\n"
    Path("net.onnx").write_bytes(a_model_file())
    for more, says in (
        ("name: 1.30", "name: 1.3 is a number, not text (accepted: text: quote it"),
        ("version_tag: 1.30", "version_tag: 1.3 is a number, not text"),
        ("tags: [no]", "tags[0]: false is true or false, not text"),
    ):
        Path("job.yaml").write_text(f"{lines}{more}\n")
        result = refusal(run("render", "job.yaml", "--policy", "default"))
        assert says in " ".join(result.split()), result
        assert "--policy" not in result


@pytest.mark.parametrize(("status", "code"), [(0, 0), (2, 1)])
def test_up_hands_its_options_to_the_server(
    monkeypatch: pytest.MonkeyPatch, status: int, code: int
) -> None:
    given: list[object] = []

    def serve(*options: object) -> int:
        given.extend(options)
        return status

    monkeypatch.setattr("edgeyard.benchmark_api.main.serve", serve)
    options = ("--port", "0", "--host", "::1", "--role", "api", "--config", "c.toml")
    result = run("up", "--data-dir", "d", *options)
    assert result.exit_code == code
    assert given == [Path("d"), 0, "::1", Path("c.toml"), "api"]


def test_boards_that_are_not_as_expected_end_the_check_with_2(server: FakeServer) -> None:
    def finding(uid: str, reason: str) -> dict[str, object]:
        return {"target_uid": uid, "host": "h", "reason": reason, "differences": []}

    found: dict[str, object] = {
        "ok": False,
        "unknown_devices": "deny",
        "missing": [finding(UID, "no host reports it")],
        "unknown": [finding("x86-0001-0001", "it is not in the inventory")],
        "differing": [finding("rpi5-0001-0001", "ram is 2 GiB, not 4 GiB")],
    }
    server.on("GET", "/v1/inventory/check", found)
    result = run("boards", "check")
    assert result.exit_code == 2
    assert fits(result.stdout)
    for word in (UID, "missing", "unknown", "differing", "2 GiB"):
        assert word in result.stdout
    assert "never used" in result.stderr
    result = run("boards", "check", "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout) == found
    server.on(
        "GET",
        "/v1/inventory/check",
        {**found, "ok": True, "missing": [], "unknown": [], "differing": []},
    )
    result = run("boards", "check")
    assert result.exit_code == 0
    assert "as expected" in result.stdout + result.stderr


def test_a_webhook_is_set_and_its_secret_shown_once(server: FakeServer) -> None:
    content = {"user_id": "ada", "url": "https://x/hook", "waiting": 0, "last_error": ""}
    server.on("PUT", "/v1/users/ada/webhook", {**content, "secret": "whsec_abc"})
    result = run("users", "update", "ada", "--webhook-url", "https://x/hook")
    assert result.exit_code == 0
    assert result.stdout == "whsec_abc\n"
    assert "not shown again" in result.stderr
    assert server.of("PUT", "/v1/users/ada/webhook")[0].json == {
        "url": "https://x/hook",
        "format": "edgeyard",
    }
    assert server.of("PATCH", "/v1/users/ada") == []
    server.on("PUT", "/v1/users/ada/webhook", {**content, "url": None})
    result = run("users", "update", "ada", "--webhook-url", "")
    assert result.exit_code == 0
    assert server.of("PUT", "/v1/users/ada/webhook")[1].json == {
        "url": None,
        "format": "edgeyard",
    }


def test_a_webhook_that_is_refused_names_its_flag(server: FakeServer) -> None:
    errors = [{"pointer": "/url", "reason": "leads to a private address", "accepted": "another"}]
    refused = Answer(problem(422, "url_refused", "", errors), 422)
    server.on("PUT", "/v1/users/ada/webhook", refused)
    refused_with = refusal(run("users", "update", "ada", "--webhook-url", "http://10.0.0.1/"))
    assert refused_with.startswith("edgeyard: --webhook-url: leads to a private address")


# --- a cluster that does not answer ---------------------------------------------------------------


@pytest.mark.parametrize(("verb", "path"), [("boards list", "/v1/boards"), ("queue", "/v1/queue")])
def test_old_state_is_shown_as_such(server: FakeServer, verb: str, path: str) -> None:
    content: dict[str, object] = {
        "items": [],
        "age_s": 75.4,
        "cluster_problem": "connection refused",
    }
    server.on("GET", path, content)
    said = run(*verb.split()).stderr
    assert "the cluster does not answer" in said
    assert "75 s ago" in said
    assert "connection refused" in said
    server.on("GET", path, content | {"age_s": None})
    assert "has not answered yet" in run(*verb.split()).stderr
    server.on("GET", path, content | {"cluster_problem": ""})
    assert "does not answer" not in run(*verb.split()).stderr


def test_show_and_explain_say_that_the_cluster_does_not_answer(server: FakeServer) -> None:
    silent = {"age_s": 75.4, "cluster_problem": "connection refused"}
    server.on("GET", ONE, benchmark(status="pending") | silent)
    server.on("GET", f"{ONE}/explanation", explanation(**silent))
    for verb in ("show", "explain"):
        assert "this is its state 75 s ago: connection refused" in run(verb, ID).stderr
    server.on("GET", ONE, benchmark(status="completed") | silent)
    assert run("show", ID).stderr == ""  # what has ended has ended


def test_doctor_names_a_silent_cluster_once(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    _healthy(server)
    offline = [board(f"rpi5-0001-00{number:02d}", "offline") for number in range(1, 13)]
    server.on("GET", "/v1/boards", boards_of(*offline))
    checks = {"database": "ok", "files": "ok", "cluster": "the boards' state is 75 s old"}
    server.on("GET", "/readyz", Answer({"status": "not ready", "checks": checks}, 503))
    findings = json.loads(run("doctor", "--json").stdout)
    wrong = [one for one in findings if one["state"] in ("problem", "warning")]
    assert [one["check"] for one in wrong] == ["cluster"]
    (boards,) = [one for one in findings if one["check"] == "boards"]
    assert "12 offline" in boards["found"]

    def nomad_findings(settings: object, *, probe: bool, public_url: str | None) -> list[Finding]:
        return [Finding(check="nomad", state="problem", found="does not answer", fix="start it")]

    monkeypatch.setattr("edgeyard.benchmark_api.bootstrap.nomad_findings", nomad_findings)
    findings = json.loads(run("doctor", "--nomad", "--json").stdout)
    assert [one["check"] for one in findings if one["state"] == "problem"] == ["nomad"]


BETWEEN_RUNS = {
    "share": 0.015,
    "degrees": 22.0,
    "source": "board",
    "numbers": 23,
    "sentence": "includes 1.5% between runs, from 23 repeated numbers of this board",
}


def test_a_result_is_shown_with_what_its_board_varies_by(server: FakeServer) -> None:
    shown = results()
    shown["summary"] |= {
        "primary_repeat_low": 11.8,
        "primary_repeat_high": 12.9,
        "between_runs": BETWEEN_RUNS,
    }
    server.on("GET", f"{ONE}/results", shown)
    output = " ".join(run("results", ID).stdout.split())
    assert f"repeated p50 95 %: 11.8 to 12.9 ms ({BETWEEN_RUNS['sentence']})" in output


def test_a_comparison_includes_what_boards_vary_by_and_says_so(server: FakeServer) -> None:
    near = [
        row(name, p50_ms=p50, p50_low_ms=p50 - 0.01, p50_high_ms=p50 + 0.01)
        for name, p50 in (("a", 12.3), ("b", 12.6))
    ]
    server.on("GET", "/v1/results", {"items": near})
    assert json.loads(run("results", "a", "b", "--json").stdout)[1]["ratio_low"] > 1.02
    server.on(
        "GET", "/v1/results", {"items": [one | {"between_runs": BETWEEN_RUNS} for one in near]}
    )
    assert json.loads(run("results", "a", "b", "--json").stdout)[1]["ratio_low"] < 1
    output = " ".join(run("results", "a", "b").stdout.replace("·", "").split())
    assert output.count(str(BETWEEN_RUNS["sentence"])) == 1


def test_unfinished_uploads_are_listed_and_abandoned(server: FakeServer) -> None:
    upload = {
        "upload_id": "upload-1",
        "user_id": "ann",
        "name": "big.onnx",
        "size": 100 * 2**20,
        "offset": 25 * 2**20,
        "touched_at": "2026-11-21T08:00:00Z",
    }
    server.on("GET", "/v1/uploads", {"items": [upload]})
    shown = printed(run("files", "unfinished"))
    assert "upload-1" in shown
    assert "25 MiB" in shown
    assert json.loads(run("files", "unfinished", "--json").stdout) == [upload]
    server.on("DELETE", "/v1/uploads/upload-1", Answer(None, 204))
    assert "upload-1 is deleted" in run("files", "abandon", "upload-1").stderr
