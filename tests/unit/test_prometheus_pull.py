"""What a Prometheus may answer: nothing, slowly, nonsense; and files of queries."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from edgeyard.benchmark_api.prometheus import Prometheus
from edgeyard.errors import InvalidInput, Unavailable
from edgeyard.scheduler.twin.series import Series
from edgeyard.simulator.importers.prometheus import Pull, read_queries
from edgeyard.simulator.scenario import Scenario
from edgeyard.simulator.scenario_puller import Report, ScenarioPuller
from tests.builders.web import QuietHandler, serving

BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
Handle = Callable[[QuietHandler], None]


@contextmanager
def server(handle: Handle) -> Iterator[str]:
    """An HTTP server that answers each POST as `handle` does."""

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            self.body()
            handle(self)

    with serving(Handler) as url:
        yield url


def answering(body: bytes, status: int = 200) -> Handle:
    return lambda request: request.answer(body, status)


def matrix(*values: tuple[object, object]) -> bytes:
    result = [{"metric": {"instance": "a"}, "values": values}]
    return json.dumps({"status": "success", "data": {"result": result}}).encode()


def ask(url: str, **more: float) -> Sequence[Series]:
    prometheus = Prometheus(url, **more)
    try:
        return prometheus.query_range("up", BEGIN, BEGIN + HOUR, 60.0)
    finally:
        prometheus.close()


def at(minutes: float) -> float:
    return (BEGIN + timedelta(minutes=minutes)).timestamp()


def test_samples_that_are_not_finite_count_as_missing() -> None:
    body = matrix((at(0), "NaN"), (at(1), "2"), (at(2), "+Inf"), (at(3), "text"), (at(4), "3"))
    with server(answering(body)) as url:
        (found,) = ask(url)
    assert (found.times, found.values) == ([at(1), at(4)], [2.0, 3.0])


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"<html>a proxy</html>", 502, "answered 502 and no JSON of Prometheus"),
        (b'{"status": "success", "data": {"result": [1, "2"]}}', 200, "no JSON of Prometheus"),
        (b'{"status": "success"}', 200, "refused 'up'"),
        (b'{"status": "error", "error": "parse error: x"}', 400, "refused 'up': parse error: x"),
        (matrix((at(2), "1"), (at(1), "1")), 200, "not ascending times"),
        (matrix((at(-90), "1")), 200, "not ascending times of the range"),
        (matrix((1e300, "1")), 200, "not ascending times of the range"),
        (b"\xff", 200, "no JSON of Prometheus"),
        (b"", 200, "no JSON of Prometheus"),
    ],
)
def test_what_is_no_answer_of_a_prometheus_is_refused(body: bytes, status: int, words: str) -> None:
    with server(answering(body, status)) as url, pytest.raises(Unavailable, match=words) as caught:
        ask(url)
    assert url.removeprefix("http://") in str(caught.value)


def test_an_answer_that_comes_in_drops_ends_after_its_bound() -> None:
    over = threading.Event()

    def drip(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        while not over.wait(0.01):
            try:
                request.wfile.write(b" ")
                request.wfile.flush()
            except OSError:
                return

    with server(drip) as url:
        with pytest.raises(Unavailable, match="the answer takes over"):
            ask(url, max_answer_s=0.2)
        over.set()


def test_a_prometheus_that_stops_in_the_middle_of_an_answer_does_not_answer() -> None:
    over = threading.Event()

    def stop(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        request.wfile.write(b'{"status":')
        over.wait()

    with server(stop) as url:
        with pytest.raises(Unavailable, match="does not answer"):
            ask(url, timeout_s=0.2)
        over.set()


@pytest.mark.parametrize(
    "url",
    ["http://h:abc", "http://[::1", "http://\0", "http://x/" + "a" * 70_000, "h:9090", "ftp://h"],
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="is not a URL of Prometheus") as caught:
        Prometheus(url)
    assert len(str(caught.value)) < 400


class Stored:
    """Keeps names of scenarios."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def newest(self) -> None:
        return None

    def add(self, scenario: Scenario) -> None:
        self.names.append(scenario.name)


def test_a_window_without_nodes_does_not_hold_up_the_next_ones() -> None:
    """It is tried again until a later window is over, and then left out with a report."""
    clock = [BEGIN + HOUR]
    stored, reports = Stored(), list[tuple[Report, str]]()

    def query(promql: str, begin: datetime, end: datetime, step_s: float) -> Sequence[Series]:
        if begin == BEGIN:
            return ()  # its exporters were away
        label = "alloc_id" if "allocs" in promql else "instance"
        times = [begin.timestamp(), begin.timestamp() + 60]
        return [Series(labels={label: "a"}, times=times, values=[2.0, 2.0])]

    puller = ScenarioPuller(
        Pull(query=query, step_s=60.0),
        stored,
        lambda: clock[0],
        lambda kind, sentence: reports.append((kind, sentence)),
    )
    puller.turn()
    puller.turn()
    assert [kind for kind, _ in reports] == [Report.FAILED, Report.FAILED]
    clock[0] += HOUR
    puller.turn()
    assert [kind for kind, _ in reports[2:]] == [Report.SKIPPED, Report.STORED, Report.RECOVERED]
    assert "2026-11-01 00:00:00+00:00 to 2026-11-01 01:00:00+00:00" in reports[2][1]
    assert "has no series with the label" in reports[2][1]
    assert stored.names == ["prometheus-20261101T010000Z"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('node_cpu = "x"', "q.toml: node_cpu: is unknown; did you mean node_cpus?"),
        (
            "node_cpus = 3",
            "q.toml: node_cpus: is 3, which is not a string (accepted: PromQL in quotation marks)",
        ),
        ("job_label = []", "the name of a label in quotation marks"),
        ('node_label = " "', "q.toml: node_label: is empty (accepted: the name of a label)"),
        ('node_cpus = ""', "q.toml: node_cpus: is empty (accepted: PromQL)"),
        ("node_cpus = sum(x)", "q.toml: is not valid TOML: Invalid value (at line 1, column 13)"),
        ("[node]\ncpus = 'x'", "q.toml: node: is unknown"),
    ],
)
def test_a_wrong_file_of_queries_names_the_field(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("q.toml").write_text(text)
    with pytest.raises(InvalidInput) as caught:
        read_queries(Path("q.toml"))
    assert message in str(caught.value)


def test_what_a_file_of_queries_leaves_out_has_its_default(tmp_path: Path) -> None:
    (tmp_path / "q.toml").write_text('job_memory_bytes = ""\nuser_label = ""')
    found = read_queries(tmp_path / "q.toml")
    assert (found.job_memory_bytes, found.user_label, found.node_label) == ("", "", "instance")
