"""The client for programs, against canned answers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgeyard import Client
from edgeyard.benchmark_api.sdk import (
    ApiError,
    AuthError,
    BenchmarkCancelled,
    BenchmarkExpired,
    BenchmarkFailed,
    MissingExtra,
    NotFoundError,
    ServerNotReached,
    ValidationFailed,
    WaitTimeout,
)
from edgeyard.benchmark_api.sdk.benchmark import Benchmark
from edgeyard.errors import InvalidInput
from tests.builders.answers import (
    ID,
    accepted,
    benchmark,
    board,
    boards,
    campaign,
    concurrency_report,
    dry_run,
    explanation,
    load_report,
    problem,
    queue,
    results,
    row,
    soak_report,
    user_file,
)
from tests.builders.answers import event as event_of
from tests.builders.model_files import a_model_file

Handler = Callable[[httpx.Request], httpx.Response]


class Time:
    """A clock that moves when somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


class Server:
    """Answers in order, the last one again and again; exceptions are raised."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, httpx.Response):
            return answer
        return httpx.Response(200, json=answer)

    @property
    def bodies(self) -> list[object]:
        return [json.loads(one.content) for one in self.requests]


def client_of(handler: Handler, time: Time | None = None) -> Client:
    time = time or Time()
    return Client(
        "http://server",
        "ey_token",
        transport=httpx.MockTransport(handler),
        sleep=time.sleep,
        monotonic_s=lambda: time.now_s,
    )


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.mark.slow
def test_importing_the_client_loads_no_web_stack() -> None:
    code = (
        "import sys; from edgeyard import Client;"
        "print([m for m in ('fastapi','sqlalchemy','pydantic','numpy','pandas','matplotlib',"
        "'typer','yaml','onnxruntime') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- calls ----------------------------------------------------------------------------------------


def test_calls_carry_the_token_and_who_calls() -> None:
    server = Server(benchmark())
    client_of(server).benchmark(ID)
    headers = server.requests[0].headers
    assert headers["Authorization"] == "Bearer ey_token"
    assert headers["User-Agent"].startswith("edgeyard/")


def test_an_id_can_not_lead_to_another_path() -> None:
    server = Server(benchmark())
    client_of(server).benchmark("../users?x=1")
    assert server.requests[0].url.raw_path == b"/v1/benchmarks/..%2Fusers%3Fx%3D1"


@pytest.mark.parametrize(
    "trouble",
    [
        httpx.ConnectError("[Errno 111] Connection refused"),
        httpx.ReadTimeout("slow"),
        httpx.RemoteProtocolError("cut"),
        httpx.Response(503, json=problem(503, "unavailable")),
        httpx.Response(429, json=problem(429, "too_many")),
        httpx.Response(502, text="bad gateway"),
    ],
)
def test_a_get_is_tried_again_until_it_is_answered(trouble: object) -> None:
    time = Time()
    server = Server(trouble, trouble, benchmark())
    assert client_of(server, time).benchmark(ID).status == "completed"
    assert len(server.requests) == 3
    assert len(time.slept) == 2
    assert all(slept > 0 for slept in time.slept)


def test_retry_after_is_honoured() -> None:
    time = Time()
    busy = httpx.Response(503, json=problem(503, "unavailable"), headers={"Retry-After": "7"})
    client_of(Server(busy, benchmark()), time).benchmark(ID)
    assert time.slept == [7.0]


def test_a_server_that_asks_for_more_patience_than_half_a_minute_is_not_waited_for() -> None:
    time = Time()
    busy = httpx.Response(429, json=problem(429, "x", "later"), headers={"Retry-After": "3600"})
    with pytest.raises(ApiError) as caught:
        client_of(Server(busy), time).benchmark(ID)
    assert caught.value.retry_after_s == 3600
    assert time.slept == []


def test_a_server_without_room_is_not_waited_for() -> None:
    time = Time()
    reported = problem(507, "out_of_space", "storing the file: no room is left on the server")
    full = httpx.Response(507, json=reported, headers={"Retry-After": "60"})
    with pytest.raises(ApiError, match="no room is left on the server"):
        client_of(Server(full), time).benchmark(ID)
    assert time.slept == []


def test_waits_for_one_call_have_a_limit_all_together() -> None:
    time = Time()
    busy = httpx.Response(503, json=problem(503, "unavailable"), headers={"Retry-After": "12"})
    with pytest.raises(ApiError):
        client_of(Server(busy), time).benchmark(ID)
    assert time.slept == [12.0, 12.0]


def test_tries_end_with_an_error_that_says_where_and_what() -> None:
    server = Server(httpx.ConnectError("[Errno 111] Connection refused"))
    with pytest.raises(ServerNotReached, match="http://server: Connection refused") as caught:
        client_of(server).benchmark(ID)
    assert caught.value.url == "http://server"
    assert len(server.requests) == 6


def test_a_submission_is_tried_again_with_the_same_key() -> None:
    server = Server(httpx.ReadTimeout("slow"), accepted())
    client_of(server).submit(model="net.onnx", runtime="ort", benchmark_type="TYPE1", target="x")
    keys = {one.headers["Idempotency-Key"] for one in server.requests}
    assert len(server.requests) == 2
    assert len(keys) == 1


def test_what_may_not_be_done_twice_is_not_sent_twice() -> None:
    server = Server(httpx.ReadTimeout("slow"))
    with pytest.raises(ServerNotReached):
        client_of(server).api.post("/v1/tokens", {})
    assert len(server.requests) == 1
    server = Server(httpx.ConnectError("refused"), {"token": "x"})
    client_of(server).api.post("/v1/tokens", {})  # it never arrived
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, AuthError), (403, AuthError), (404, NotFoundError), (422, ValidationFailed)],
)
def test_problems_become_typed_errors(status: int, kind: type[ApiError]) -> None:
    wrong = {"pointer": "/target", "reason": "no such family", "accepted": "rpi4b, rpi5"}
    answer = httpx.Response(status, json=problem(status, "some_code", "in words", [wrong]))
    with pytest.raises(kind) as caught:
        client_of(Server(answer)).benchmark(ID)
    error = caught.value
    assert (error.status, error.code, error.detail) == (status, "some_code", "in words")
    assert str(error) == "/target: no such family (accepted: rpi4b, rpi5)"


def test_an_answer_that_is_no_json_is_reported_as_such() -> None:
    with pytest.raises(ApiError, match="not JSON; is this the URL"):
        client_of(Server(httpx.Response(200, text="<html>"))).benchmark(ID)
    with pytest.raises(ApiError, match="answered 500 <html>"):
        client_of(Server(httpx.Response(500, text="<html>"))).benchmark(ID)


# --- submitting -----------------------------------------------------------------------------------


def test_a_local_model_is_uploaded_and_named_by_its_url(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(a_model_file(fill=b"model"))
    server = Server(
        {}, httpx.Response(201, json=user_file("http://s/f")), accepted(warnings=["careful"])
    )
    made = client_of(server).submit(
        model=tmp_path / "net.onnx", runtime="ort", benchmark_type="TYPE1", target="rpi4b"
    )
    assert isinstance(made, Benchmark)
    assert (made.benchmark_id, made.warnings) == (ID, ("careful",))
    assert server.requests[0].url.path == "/v1/benchmarks/check"
    assert b'filename="net.onnx"' in server.requests[1].content
    assert b"model" in server.requests[1].content
    assert json.loads(server.requests[2].content) == {
        "model": "net.onnx",
        "model_url": "http://s/f",
        "runtime": "ort",
        "benchmark_type": "TYPE1",
        "target": "rpi4b",
    }


def test_an_upload_that_is_tried_again_is_sent_whole_again(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"m" * 100_000)
    server = Server(httpx.WriteError("cut"), user_file("http://s/f"))
    client_of(server).upload(tmp_path / "net.onnx")
    assert [b"m" * 100_000 in one.content for one in server.requests] == [True, True]


def test_names_and_urls_are_left_to_the_server() -> None:
    server = Server(accepted())
    client = client_of(server)
    client.submit(model="known.onnx", runtime="ort", benchmark_type="TYPE1", target_uid="x-1")
    client.submit(model="https://h/net.onnx", runtime="ort", benchmark_type="TYPE1", target="x")
    assert [one["model"] for one in server.bodies] == ["known.onnx", "https://h/net.onnx"]  # type: ignore[index]


@pytest.mark.parametrize("model", ["models/net.onnx", Path("net.onnx")])
def test_a_path_without_a_file_is_refused_before_anything_is_sent(model: str | Path) -> None:
    server = Server(accepted())
    with pytest.raises(InvalidInput, match="/model: there is no file"):
        client_of(server).submit(model=model, runtime="ort", benchmark_type="TYPE1", target="x")
    assert server.requests == []


def test_of_several_datasets_one_without_a_file_is_refused_before_anything_is_sent(
    tmp_path: Path,
) -> None:
    rows = tmp_path / "rows.npz"
    rows.write_bytes(b"rows")
    server = Server(accepted())
    with pytest.raises(InvalidInput, match=r"/dataset_urls: there is no file .*more\.npz"):
        client_of(server).submit(
            model="net.onnx", runtime="ort", benchmark_type="TYPE2", target="x",
            dataset_urls=[rows, "https://h/rows.npz", "more.npz"],
        )  # fmt: skip
    assert server.requests == []


def test_lists_make_a_campaign_and_a_list_of_benchmarks(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(a_model_file(fill=b"model"))
    members = [{"benchmark_id": one, "status": "pending"} for one in ("a", "b", "c", "d")]
    server = Server(
        {},
        user_file("http://s/f"),
        {
            "campaign_id": "campaign-1",
            "benchmarks": members,
            "links": {},
            "warnings": ["careful"],
        },
    )
    made = client_of(server).submit(
        model=[tmp_path / "net.onnx", "other.onnx"],
        runtime="ort",
        benchmark_type="TYPE1",
        target=["rpi4b", "rpi5"],
    )
    assert [one.benchmark_id for one in made] == ["a", "b", "c", "d"]
    assert {one.campaign_id for one in made} == {"campaign-1"}
    assert [each.url.path for each in server.requests] == [
        "/v1/campaigns/check",
        "/v1/files",
        "/v1/campaigns",
    ]
    assert json.loads(server.requests[2].content) == {
        "matrix": {"model": ["http://s/f", "other.onnx"], "target": ["rpi4b", "rpi5"]},
        "description": {"runtime": "ort", "benchmark_type": "TYPE1"},
    }


def test_submit_and_wait_gives_the_end() -> None:
    server = Server(accepted(), benchmark(status="running"), benchmark())
    done = client_of(server).submit(
        model="net.onnx",
        runtime="ort",
        benchmark_type="TYPE1",
        target="x",
        wait=True,
        progress=False,
    )
    assert done.status == "completed"


def test_a_preview_of_a_matrix_is_one_request() -> None:
    server = Server({"items": [dry_run(), dry_run()]})
    answers = client_of(server).preview({"model": "m", "target": ["a", "b"], "runtime": ["ort"]})
    assert [one.would for one in answers] == ["run", "run"]
    assert server.bodies == [
        {"matrix": {"target": ["a", "b"], "runtime": ["ort"]}, "description": {"model": "m"}}
    ]
    assert server.requests[0].url.params["dry_run"] == "true"


# --- looking --------------------------------------------------------------------------------------


def test_lists_are_read_page_by_page() -> None:
    server = Server(
        {"items": [benchmark("a"), benchmark("b")], "next_cursor": "n"},
        {"items": [benchmark("c")], "next_cursor": None},
    )
    found = client_of(server).list(status=["running", "pending"], tag="x")
    assert [one.benchmark_id for one in found] == ["a", "b", "c"]
    assert server.requests[1].url.params["cursor"] == "n"
    assert server.requests[0].url.params.get_list("status") == ["running", "pending"]


def test_a_benchmark_is_read_with_its_types() -> None:
    found = client_of(Server(benchmark(status="failed", name="nightly"))).benchmark(ID)
    assert found.name == "nightly"
    assert found.failure is not None
    assert (found.failure.category, found.ended) == ("user_model", True)
    assert found.started_at is not None
    assert found.attempts[0].target_uid == "rpi4b-0001-0001"


def test_an_answer_of_a_newer_server_is_read_as_far_as_it_is_known() -> None:
    found = client_of(Server(benchmark(status="hovering", new=1))).benchmark(ID)
    assert (found.status, found.ended) == ("hovering", False)


def test_an_answer_of_another_shape_is_an_error_that_names_the_field() -> None:
    with pytest.raises(ApiError, match=r"Expected `float \| null`, got `str` - at `\$.progress`"):
        client_of(Server(benchmark(progress="much"))).benchmark(ID)


def test_an_explanation_reports_verdicts_and_scores() -> None:
    found = client_of(Server(explanation())).explain(ID)
    assert (found.chosen_uid, found.binding, found.priority) == ("rpi4b-0001-0001", "strict", 80)
    assert found.verdicts[1].scores == {"fastest": 52.0, "least_loaded": 0.9, "ilp": None}
    assert found.verdicts[2].never


def test_boards_and_queue_are_lists() -> None:
    assert client_of(Server(boards(board()))).boards()[0].state == "idle"
    assert list(client_of(Server(queue())).queue()) == []


def test_logs_come_as_lines_though_they_arrive_in_pieces() -> None:
    pieces = {0: b"first\r\nsec", 10: b"ond \xff\nlast", 20: b""}

    def handler(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=pieces[int(request.url.params.get("offset", 0))])

    assert list(client_of(handler).logs(ID)) == ["first", "second �", "last"]


def test_followed_logs_go_on_after_a_cut_and_through_the_next_attempt() -> None:
    state = {"attempts": [1], "status": "running", "cut": True}

    class Cut(httpx.SyncByteStream):
        def __iter__(self):  # type: ignore[no-untyped-def]
            yield b"one\ntw"
            raise httpx.ReadError("cut")

    def handler(request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/logs"):
            attempts = [{"number": one} for one in state["attempts"]]  # type: ignore[attr-defined]
            return httpx.Response(200, json=benchmark(status=state["status"], attempts=attempts))  # type: ignore[arg-type]
        attempt, offset = request.url.params["attempt"], int(request.url.params.get("offset", 0))
        if state.pop("cut", None):
            return httpx.Response(200, stream=Cut())
        if attempt == "1":
            assert offset == 6
            state["attempts"] = [1, 2]
            return httpx.Response(200, content=b"o\n")
        state["status"] = "completed"
        return httpx.Response(200, content=b"again\n" if offset == 0 else b"")

    assert list(client_of(handler).logs(ID, follow=True)) == ["one", "two", "again"]


def test_followed_events_are_read_from_the_stream_and_taken_up_after_a_cut() -> None:
    def event(seq: int, status: str) -> dict[str, object]:
        return event_of(seq, status=status)

    asked: list[str | None] = []

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith(ID):
            return httpx.Response(200, json=benchmark())
        if "text/event-stream" not in request.headers["Accept"]:
            fresh = "after" not in request.url.params
            items = [event(1, "pending")] if fresh else []
            return httpx.Response(200, json={"items": items, "next_after": 1})
        asked.append(request.headers.get("Last-Event-ID"))
        if len(asked) == 1:
            raise httpx.ReadError("cut")
        text = f": still here\n\nid: 3\nevent: x\ndata: {json.dumps(event(3, 'completed'))}\n\n"
        return httpx.Response(200, text=text)

    assert [one.seq for one in client_of(handler).events(ID, follow=True)] == [1, 3]
    assert asked == ["1", "1"]


# --- results --------------------------------------------------------------------------------------


def test_results_are_typed() -> None:
    found = client_of(Server(results(verdict="suspect"))).results(ID)
    assert found.latency is not None
    assert found.verdict is not None
    assert (found.latency.p50_ms, found.latency.p50_low_ms, found.latency.p50_high_ms) == (
        12.3,
        12.1,
        12.6,
    )
    assert (found.verdict.verdict, found.verdict.comparable) == ("suspect", False)
    assert found.verdict.reasons[0].code == "other_load"


def test_results_are_short_as_text_and_a_table_in_a_notebook() -> None:
    found = client_of(Server(results(verdict="suspect"))).results(ID)
    assert repr(found) == (
        f"<Results {ID}: status completed; ran net.onnx (ort) on rpi4b-0001-0001; "
        "p50 12.3 ms (95 %: 12.1 to 12.6 ms); verdict suspect>"
    )
    shown = found._repr_html_()  # called by notebooks
    assert shown.count("<tr>") == shown.count("</tr>") == 5
    assert "suspect: Other work had 40% of the time." in shown
    assert "latencies.npy, report.json" in shown
    odd = results()
    odd["summary"]["model"] = "<script>alert(1)</script>.onnx"
    assert "<script>" not in client_of(Server(odd)).results(ID)._repr_html_()


def test_what_a_load_measured_is_part_of_its_results() -> None:
    def found(**load: object) -> Any:
        return client_of(Server({**results(), **load})).results(ID)

    assert (found().soak, found().concurrency, found().load_test) == (None, None, None)
    soak, curve, load = soak_report(), concurrency_report(), load_report()
    assert len(found(soak=soak).soak.windows) == len(soak["windows"])
    assert found(concurrency=curve).concurrency.knee == curve["knee"]
    assert found(load_test=load).load_test.largest_rate == load["largest_rate"]


def test_no_result_yet_is_no_error() -> None:
    empty: dict[str, object] = {
        "benchmark_id": ID,
        "status": "running",
        "summary": None,
        "inference": [],
        "layers": None,
        "soak": None,
        "concurrency": None,
        "load_test": None,
        "reports": [],
        "files": [],
    }
    found = client_of(Server(empty)).results(ID)
    assert repr(found) == f"<Results {ID}: status running>"
    assert (found.latency, found.verdict, found.files) == (None, None, ())


def test_a_download_is_whole_or_not_there(tmp_path: Path) -> None:
    class Cut(httpx.SyncByteStream):
        def __iter__(self):  # type: ignore[no-untyped-def]
            yield b"half"
            raise httpx.ReadError("cut")

    server = Server(results(), httpx.Response(200, content=b"all"))
    target = client_of(server).results(ID).download("report.json", tmp_path)
    assert target == tmp_path / "report.json"
    assert target.read_bytes() == b"all"
    assert server.requests[1].url.path == f"/v1/benchmarks/{ID}/results/1/report.json"
    target.unlink()
    with pytest.raises(ServerNotReached):
        client_of(Server(results(), httpx.Response(200, stream=Cut()))).results(ID).download(
            "report.json", target
        )
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"no file 'x' .accepted: latencies.npy, report.json"):
        client_of(Server(results())).results(ID).download("x", tmp_path)


def test_rows_keep_the_order_that_was_asked_for() -> None:
    server = Server({"items": [row("a"), row("b")]})
    assert [one.benchmark_id for one in client_of(server).result_rows(["b", "a"])] == ["b", "a"]


def test_a_data_frame_has_a_row_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server({"items": [row("a"), row("b", p50_ms=24.6), row("c", p50_ms=None)]})
    frame = client_of(server).results_frame(["a", "b", "c"])
    assert list(frame.index) == ["a", "b", "c"]
    assert frame.loc["a", "p50_ms"] == 12.3
    assert frame.loc["b", "ratio"] == 2.0
    assert all(frame[name].dtype == float for name in ("p50_ms", "ratio", "ratio_low", "accuracy"))
    assert frame["ended_at"].dt.tz is not None
    assert frame.loc["a", "model_sha256"].startswith("0123")
    assert frame.loc["a", "inputs"] == "x 1×3×224×224 float32"
    assert all(frame[name].dtype == float for name in ("metric_value", "between_runs"))
    values = frame.to_numpy().ravel()
    assert [value for value in values if isinstance(value, dict | list)] == []
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"pip install 'edgeyard-.*\.whl\[data\]'"):
        client_of(server).results_frame(["a"])


# --- waiting --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("failed", BenchmarkFailed),
        ("expired", BenchmarkExpired),
        ("cancelled", BenchmarkCancelled),
    ],
)
def test_a_bad_end_is_raised_unless_it_is_not_checked(status: str, kind: type[Exception]) -> None:
    client = client_of(Server(benchmark(status=status)))
    with pytest.raises(kind):
        client.wait(ID, progress=False)
    assert client.wait(ID, progress=False, check=False).status == status


def test_a_failure_reports_its_category_and_the_other_ends() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        name = request.url.path.rsplit("/", 1)[-1]
        statuses = {"a": "cancelled", "b": "failed", "c": "completed"}
        return httpx.Response(200, json=benchmark(name, statuses[name]))

    with pytest.raises(BenchmarkFailed, match="b failed: user_model") as caught:
        client_of(handler).wait(["a", "b", "c"], progress=False)
    assert caught.value.category == "user_model"
    assert len(caught.value.benchmarks) == 3


def test_a_wait_ends_in_time_and_names_who_is_left() -> None:
    time = Time()
    with pytest.raises(WaitTimeout) as caught:
        client_of(Server(benchmark(status="pending")), time).wait([ID], 30, progress=False)
    assert caught.value.benchmark_ids == (ID,)
    assert time.now_s == pytest.approx(30)
    assert len(time.slept) < 40  # looks grow rarer while nothing changes


def test_a_server_that_restarts_does_not_end_the_wait() -> None:
    gone = [httpx.ConnectError("refused")] * 20
    server = Server(benchmark(status="running"), *gone, benchmark())
    assert client_of(server).wait(ID, progress=False).status == "completed"


def test_a_server_that_is_gone_for_good_does() -> None:
    time = Time()
    with pytest.raises(ServerNotReached):
        client_of(Server(httpx.ConnectError("refused")), time).wait(ID, progress=False)
    assert 600 < time.now_s < 700


def test_members_of_a_campaign_are_looked_at_together() -> None:
    looks: list[str] = []
    ids = ["a", "b", "c", "d", "e"]

    def handler(request: httpx.Request) -> httpx.Response:
        looks.append(request.url.path)
        if "campaigns" in request.url.path:
            states = [benchmark(one, campaign_id="campaign-1") for one in ids]
            return httpx.Response(200, json=campaign(*states))
        name = request.url.path.rsplit("/", 1)[-1]
        return httpx.Response(200, json=benchmark(name, "running", campaign_id="campaign-1"))

    client_of(handler).wait(ids, progress=False)
    assert looks == [*(f"/v1/benchmarks/{one}" for one in ids), "/v1/campaigns/campaign-1"]


def test_progress_is_one_line_a_change_where_stderr_is_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    busy = {"code": "board_busy", "sentence": "b"}
    turn = {"code": "priority", "sentence": "p"}
    server = Server(
        benchmark(status="pending", waiting_reason=busy),
        benchmark(status="pending", waiting_reason=turn),
        benchmark(status="running"),
        benchmark(status="running", progress=60.0),
        benchmark(),
    )
    client_of(server).wait(ID)
    lines = [line.split(" ", 1)[1] for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        f"{ID} PENDING · board_busy: b",
        f"{ID} RUNNING measuring ███░░ 3/5 · 41 % · rpi4b-0001-0001",
        f"{ID} COMPLETED · rpi4b-0001-0001 · ran 2.0 s",
    ]


def test_a_run_ended_when_its_result_arrived_though_its_end_was_learned_of_later(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = benchmark(ended_at="2026-11-21T08:10:41Z")
    shown["attempts"][0]["result_at"] = "2026-11-21T08:04:32Z"
    client_of(Server(shown)).wait(ID)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("COMPLETED · rpi4b-0001-0001 · ran 271.0 s")
