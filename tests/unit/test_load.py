"""Loads by LoadGen's rules: arrivals, early stopping, the search, and what is refused."""

from __future__ import annotations

import html
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest

from edgeyard.benchmark_api.cli.load import load_table
from edgeyard.benchmark_api.cli.output import show
from edgeyard.benchmark_api.cli.report import report_page
from edgeyard.benchmark_api.figures.load import load_sentence, load_test_figures
from edgeyard.benchmark_api.figures.loads import load_figures, load_rows, load_sentence_of
from edgeyard.benchmark_api.figures.plots import plot_figure
from edgeyard.benchmark_api.schemas.answers import LoadResult, Results
from edgeyard.devices.metrics import primary_metric
from edgeyard.devices.runner.arrivals import arrivals_s, max_late, min_queries
from edgeyard.devices.runner.conditions import Conditions, Watch
from edgeyard.devices.runner.engine import TensorSpec
from edgeyard.devices.runner.load import MAX_TRIALS, doubts, load
from edgeyard.devices.runner.spec import SERVER, SINGLE_STREAM, LoadRules
from edgeyard.errors import InvalidInput, RunFailed
from edgeyard.scheduler.engine.reports import check_report
from edgeyard.scheduler.model.wire import description_from_json, description_to_json
from edgeyard.scheduler.model.workload import work_of_series, workload
from tests.builders.answers import (
    concurrency_report,
    load_report,
    load_trial,
    report,
    results,
    row,
    soak_report,
)
from tests.builders.cli import printed, run
from tests.builders.descriptions import read, refused
from tests.builders.records import a_benchmark, a_description
from tests.fakes.api_server import FakeServer


class OfABusyMachine(Watch):
    """The conditions of a machine whose other work is stated."""

    def __init__(self, other_load: float, queued: float) -> None:
        super().__init__(threads=1)
        self._other, self._queued_share = other_load, queued

    def stop(self) -> Conditions:
        return replace(super().stop(), other_load=self._other, queued=self._queued_share)


class Board:
    """A model whose inferences take times of a virtual clock."""

    inputs = (TensorSpec("x", (1,), "float32"),)
    outputs = (TensorSpec("y", (1,), "float32"),)
    facts: Mapping[str, object] = MappingProxyType({})

    def __init__(
        self,
        takes_ms: Callable[[int], float] = lambda run: 10.0,
        sleeps_late_ms: float = 0.0,
        other_load: float = 0.0,
        queued: float | None = None,
    ) -> None:
        self._takes_ms, self._sleeps_late_ms = takes_ms, sleeps_late_ms
        self._other = other_load, other_load if queued is None else queued
        self.now_ns, self.runs = 0, 0
        self.notes: list[str] = []
        self.percents: list[float] = []

    def run(self, feeds: object) -> Sequence[Any]:
        self.now_ns += int(self._takes_ms(self.runs) * 1e6)
        self.runs += 1
        return [np.ones(1, np.float32)]

    def clock(self) -> int:
        self.now_ns += 1_000
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9 + self._sleeps_late_ms * 1e6)

    def load(self, rules: LoadRules, *, min_runs: int = 20, max_s: float = 3600.0) -> Any:
        return load(
            self,
            {"x": np.ones(1, np.float32)},
            lambda: OfABusyMachine(*self._other),
            lambda percent, phase: self.percents.append(percent),
            rules=rules,
            min_runs=min_runs,
            max_s=max_s,
            clock=self.clock,
            sleep=self.sleep,
            note=self.notes.append,
        )


def server(**changes: Any) -> LoadRules:
    fields = {"percentile": 99.0, "bound_s": 0.05, "duration_s": 10.0, **changes}
    return LoadRules(kind=SERVER, **fields)


def mt19937(seed: int) -> Callable[[], int]:
    """The words of ``std::mt19937``, by the generator of Python's own library."""
    state = [seed]
    for at in range(1, 624):
        state.append((1812433253 * (state[-1] ^ state[-1] >> 30) + at) & 0xFFFFFFFF)
    twister = random.Random()
    twister.setstate((3, (*state, 624), None))
    return lambda: twister.getrandbits(32)


def test_the_peer_has_the_words_of_the_standard() -> None:
    words = mt19937(5489)
    for _ in range(9_999):
        words()
    assert words() == 4123659995  # ISO/IEC 14882, [rand.predef]


@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1])
def test_arrivals_are_those_of_loadgen_with_the_same_seed(seed: int) -> None:
    words, at, expected = mt19937(seed), 0.0, []
    for _ in range(500):
        expected.append(at)
        low, high = words(), words()
        at += -math.log(1 - (low + high * 2.0**32) / 2.0**64) / 40
    assert arrivals_s(40, 500, seed) == pytest.approx(expected, rel=1e-12)


def test_gaps_of_arrivals_are_exponential() -> None:
    gaps = np.diff(arrivals_s(50, 20_000, 3))
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.03)
    assert gaps.std() == pytest.approx(1 / 50, rel=0.03)
    assert np.mean(gaps > 1 / 50) == pytest.approx(math.exp(-1), rel=0.03)


@pytest.mark.parametrize(("percentile", "queries"), [(90, 64), (99, 662)])
def test_as_many_queries_are_needed_as_loadgen_needs(percentile: float, queries: int) -> None:
    share = percentile / 100
    assert min_queries(share) == queries
    assert (max_late(queries, share), max_late(queries - 1, share)) == (1, 0)


@pytest.mark.parametrize(("queries", "share"), [(64, 0.9), (662, 0.99), (5000, 0.99)])
def test_so_few_late_queries_are_seen_by_chance_once_in_a_hundred_trials(
    queries: int, share: float
) -> None:
    def at_most(late: int) -> float:
        return sum(
            math.comb(queries, k) * (1 - share) ** k * share ** (queries - k)
            for k in range(late + 1)
        )

    allowed = max_late(queries, share)
    assert at_most(allowed) <= 0.01 < at_most(allowed + 1)


def test_single_stream_lasts_its_time_and_its_count() -> None:
    rules = LoadRules(kind=SINGLE_STREAM, percentile=90, duration_s=2.0)
    found = Board(lambda run: 10.0 + run % 10).load(rules)
    report = found.as_json()
    assert report["result"]["duration_s"] >= 2.0
    assert report["result"]["nb_inference"] == pytest.approx(2.0 / 0.0145, rel=0.05)
    assert report["latency_ms"] == pytest.approx(18, abs=0.5)
    assert report["early_stopping_ms"] >= report["latency_ms"]
    assert report["rate"] is None
    few = Board(lambda run: 100.0).load(LoadRules(kind=SINGLE_STREAM, percentile=99))
    assert few.as_json()["result"]["nb_inference"] == 662
    many = Board().load(LoadRules(kind=SINGLE_STREAM, percentile=90, duration_s=0.1), min_runs=500)
    assert many.as_json()["result"]["nb_inference"] == 500


def test_latencies_of_a_queue_are_those_of_lindleys_recursion() -> None:
    found = Board().load(server(rate=70.0, bound_s=1.0, seed=5))
    latencies = found.measurement.latencies_ms
    arrivals_ms = arrivals_s(70.0, len(latencies), 5) * 1e3
    ends, free = [], 0.0
    for arrives in arrivals_ms:
        free = max(free, arrives) + 10
        ends.append(free)
    assert latencies == pytest.approx(np.array(ends) - arrivals_ms, abs=1.0)
    report = found.as_json()
    assert report["result"]["duration_s"] >= 10
    assert report["result"]["queue_max"] >= 2
    assert report["result"]["kept"] is True
    assert (report["rate"], report["largest_rate"]) == (70.0, None)


def test_the_largest_rate_that_keeps_the_bound_is_found_by_bisection() -> None:
    board = Board()
    found = board.load(server())
    report = found.as_json()
    kept, other = report["largest_rate"], report["rate_not_kept"]
    assert kept < other <= 1.05 * kept
    assert report["ended"] == "found"
    by_rate = sorted(report["trials"], key=lambda each: each["rate"])
    verdicts = [each["kept"] for each in by_rate]
    assert verdicts == sorted(verdicts, reverse=True), "kept below, not above"
    assert len(by_rate) <= MAX_TRIALS
    result = report["result"]
    assert result["rate"] == kept
    assert result["p50_ms"] <= result["p90_ms"] <= result["p99_ms"] <= 50
    assert result["late"] <= result["max_late"]
    # a queue of one server that takes 10 ms can't take more than 100/s
    assert 50 < kept < 100
    primary = primary_metric({"benchmark_type": "TYPE1", **_stated(found)})
    assert primary is not None
    assert (primary.metric.name, primary.value) == ("load_rate", kept)
    assert primary.metric.better == "higher"
    assert not doubts(report)
    assert any(note.startswith("trial 2 at") and "bound kept at" in note for note in board.notes)
    assert board.percents == sorted(board.percents)


def _stated(found: Any) -> dict[str, Any]:
    return {**found.measurement.as_json(), "load_test": found.as_json()}


def test_the_same_seed_finds_the_same_rate_and_another_one_similar() -> None:
    first, again, other = (
        Board().load(server(seed=seed, duration_s=100.0)).as_json()["largest_rate"]
        for seed in (1, 1, 2)
    )
    assert first == again
    assert other == pytest.approx(first, rel=0.2)


def test_a_bound_that_no_rate_keeps_is_refused_before_the_search() -> None:
    with pytest.raises(RunFailed, match="can't be kept at any rate") as failed:
        Board().load(server(bound_s=0.009))
    assert failed.value.category == "user_input"
    assert "median 10" in failed.value.sentence
    assert "larger load_bound" in failed.value.sentence


def test_two_slow_queries_at_the_start_do_not_show_that_no_rate_keeps_the_bound() -> None:
    seen = iter(range(1_000_000))
    board = Board(lambda run: 100.0 if 100 <= next(seen) < 102 else 10.0)
    assert board.load(server()).as_json()["largest_rate"] > 50


def test_a_bound_that_the_slowest_runs_exceed_is_refused_too() -> None:
    with pytest.raises(RunFailed, match="can't be kept at any rate"):
        Board(lambda run: 100.0 if run % 40 == 0 else 10.0).load(server())


def test_a_search_that_has_no_time_left_states_what_it_knows() -> None:
    whole = Board()
    whole.load(server())
    report = Board().load(server(), max_s=0.6 * whole.now_ns / 1e9).as_json()
    assert report["ended"] == "time"
    assert report["largest_rate"] > 0
    assert [each.code for each in doubts(report)] == ["bracket_wide"]


def test_no_time_for_one_trial_is_a_timeout() -> None:
    with pytest.raises(RunFailed, match="longer user_time") as failed:
        Board().load(server(), max_s=9.0)
    assert failed.value.category == "timeout"


def test_a_trial_that_the_time_of_the_run_ends_states_what_a_trial_takes() -> None:
    rules = LoadRules(kind=SINGLE_STREAM, percentile=90)
    with pytest.raises(RunFailed, match="a trial takes 64 queries and 10 s") as failed:
        Board().load(rules, max_s=5.0)
    assert "queries in 4." in failed.value.sentence or "queries in 5 s" in failed.value.sentence
    with pytest.raises(RunFailed, match="a trial takes 662 queries and 10 s"):
        Board().load(server(rate=60.0), max_s=9.0)


def test_a_generator_that_is_late_makes_its_trials_invalid() -> None:
    board = Board(sleeps_late_ms=5.0)
    with pytest.raises(RunFailed, match="generator itself was late by") as failed:
        board.load(server())
    assert failed.value.category == "user_input"
    trials = {each.split(" at ")[0] for each in board.notes if each.startswith("trial ")}
    assert trials == {"trial 1", "trial 2", "trial 3"}, "no rate is low enough"
    fixed = Board(sleeps_late_ms=5.0).load(server(rate=30.0)).as_json()
    assert fixed["result"]["valid"] is False
    assert fixed["result"]["generator_late_ms"] == pytest.approx(5, abs=0.3)
    (found,) = [each for each in doubts(fixed) if each.code == "generator_late"]
    assert found.invalid
    on_time = Board(sleeps_late_ms=0.05).load(server(rate=30.0)).as_json()
    assert on_time["result"]["valid"] is True


def test_other_work_that_made_queries_wait_is_stated_where_a_bound_is_not_kept() -> None:
    waited = "runs waited for their CPUs 30% of the time"
    with pytest.raises(RunFailed, match="generator itself was late by") as failed:
        Board(sleeps_late_ms=5.0, other_load=0.3).load(server())
    assert failed.value.category == "user_input"  # who chose the bound; no fault of the board
    assert waited in failed.value.sentence
    assert "submit it again when the board is quiet" in failed.value.sentence
    assert "larger load_bound" not in failed.value.sentence
    with pytest.raises(RunFailed, match="can't be kept at any rate") as failed:
        Board(lambda run: 100.0 if run % 40 == 0 else 10.0, other_load=0.3).load(server())
    assert failed.value.category == "user_input"
    assert waited in failed.value.sentence
    with pytest.raises(RunFailed, match="can't be kept at any rate") as failed:
        Board(other_load=0.3, queued=0.0).load(server(bound_s=0.009))  # on another core
    assert "Other work" not in failed.value.sentence


def test_a_queue_that_grows_ends_its_trial() -> None:
    report = Board().load(server(rate=1000.0)).as_json()
    assert report["result"]["ended"] == "queue"
    assert report["result"]["kept"] is False
    assert report["result"]["queue_max"] < 2000


def test_a_board_that_stalls_once_catches_up_at_a_fixed_rate() -> None:
    stalled = Board(lambda run: 800.0 if run == 5000 else 0.1)
    report = stalled.load(server(rate=2000.0, bound_s=0.005)).as_json()
    assert report["result"]["ended"] == "complete"
    assert report["result"]["queue_max"] > 1000


def test_a_queue_that_grew_is_stated() -> None:
    report = Board().load(server(rate=1000.0)).as_json()
    (found,) = [each for each in doubts(report) if each.code == "rate_not_sustained"]
    assert found.invalid
    for each in doubts(report):
        assert "a longer load_duration" not in each.sentence, "the queue ended it"


@pytest.mark.parametrize(
    "rules",
    [
        server(duration_s=36_000.0, rate=100_000.0),
        LoadRules(kind=SINGLE_STREAM, percentile=90, duration_s=36_000.0),
    ],
)
def test_a_trial_that_has_the_most_queries_before_its_duration_is_suspect(rules: LoadRules) -> None:
    report = Board(lambda run: 0.001).load(rules, max_s=1e6).as_json()
    assert report["result"]["nb_inference"] == 1_000_000
    (found,) = [each for each in doubts(report) if each.code == "load_cut_short"]
    assert not found.invalid
    assert "before the load_duration of 36000 s: it had 1,000,000 queries" in found.sentence
    for each in doubts(report):
        assert "a longer load_duration" not in each.sentence


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"load": "offline"}, "/load"),
        ({"load": "server"}, "/load_bound"),
        ({"load": "server", "load_bound": "0.1 us"}, "/load_bound"),
        ({"load": "server", "load_bound": 0.1, "load_percentile": 100}, "/load_percentile"),
        ({"load": "server", "load_bound": 0.1, "load_seed": -1}, "/load_seed"),
        ({"load": "server", "load_bound": 0.1, "load_rate": 0}, "/load_rate"),
        ({"load": "server", "load_bound": 0.1, "load_rate": 1e6}, "/load_rate"),
        ({"load": "server", "load_bound": 0.1, "nb_inference": 2_000_000}, "/nb_inference"),
        ({"load": "server", "load_bound": 0.1, "soak": "30 min"}, "/load"),
        ({"load": "single-stream", "precision": "2 %"}, "/load"),
        ({"load": "single-stream", "concurrency": 2}, "/load"),
        ({"load": "single-stream", "profile_layers": True}, "/load"),
        ({"load": "single-stream", "load_bound": "20 ms"}, "/load_bound"),
        ({"load": "single-stream", "load_rate": 5}, "/load_rate"),
        ({"load": "single-stream", "load_seed": 5}, "/load_seed"),
        ({"load_bound": "20 ms"}, "/load_bound"),
        ({"load": "single-stream", "benchmark_type": "TYPE2", "dataset": "d.npz"}, "/load"),
    ],
)
def test_what_a_load_can_not_be_is_refused_with_its_field(
    fields: dict[str, object], pointer: str
) -> None:
    assert pointer in [each.pointer for each in refused(**fields)]


@pytest.mark.parametrize(
    ("bound", "reason"),
    [
        ("100", "has no unit"),
        (0, "is not above 0"),
        (-1, "is negative"),
        ("40 days", "is more than"),
        ("0.5 us", "is below 1 µs"),
    ],
)
def test_a_time_that_is_none_is_refused_by_the_end_that_it_passes(
    bound: object, reason: str
) -> None:
    (problem,) = refused(load="server", load_bound=bound)
    assert problem.reason.startswith(reason)


def test_a_bound_out_of_range_and_a_percentile_that_is_no_number_are_named() -> None:
    (problem,) = refused(load="server", load_bound="31 days")
    assert "from 1 µs to 30 days" in problem.accepted
    (problem,) = refused(load="server", load_bound="20 ms", load_percentile=math.nan)
    assert "not a number" in problem.reason


def test_a_number_of_requests_that_is_too_large_is_refused_with_its_limit() -> None:
    stated = {"requests": 10**8, "prompt_length": 8}
    problems = refused(benchmark_type="GENAI", runtime="ort-genai", parameters=stated)
    assert ("/parameters/requests", "1 to 10,000") in [(p.pointer, p.accepted) for p in problems]


def test_a_load_is_stored_as_it_was_stated() -> None:
    stated = {"load": "server", "load_bound": "20 ms", "load_seed": 3, "load_duration": "1 min"}
    found = read(**stated, load_percentile=95)
    assert found.load_rules == LoadRules(
        kind=SERVER, percentile=95.0, duration_s=60.0, bound_s=0.02, seed=3
    )
    assert description_from_json(description_to_json(found)) == found
    assert read(load="single-stream").load_rules == LoadRules(kind=SINGLE_STREAM, percentile=90.0)
    assert read().load_rules is None


def test_another_load_is_other_work_with_its_own_metric() -> None:
    found, series = [], set()
    bound = {"load": "server", "load_bound": 0.02}
    stated: list[dict[str, object]] = [
        {"load": "single-stream"},
        bound,
        {**bound, "load_rate": 30},
        {**bound, "load_seed": 1},
    ]
    for each in stated:
        made = a_benchmark(description=read(**each))
        work = workload(made, {})
        found.append((work["load"], work["metric"]))
        series.add(work_of_series(made, {}))
    rate = "load_rate in 1/s, higher is better"
    latency = "load_latency in ms, lower is better"
    assert found == [
        ("single-stream by LoadGen's rules: p90, 10 s", latency),
        ("server by LoadGen's rules: p99 within 20 ms, 10 s, seed 0", rate),
        ("server by LoadGen's rules: p99 within 20 ms, 30/s, 10 s, seed 0", latency),
        ("server by LoadGen's rules: p99 within 20 ms, 10 s, seed 1", rate),
    ]
    assert len(series) == 4


OF_A_LOAD = a_benchmark(description=a_description(load="server", load_bound_s=0.05))


def test_only_a_load_makes_its_rate_primary() -> None:
    own: Any = report(benchmark_type="TYPE1", benchmark_id="b-1", primary_metric="load_rate")
    check_report({**own, "load_test": load_report()}, OF_A_LOAD)
    with pytest.raises(InvalidInput, match="primary"):
        check_report(own, OF_A_LOAD)


def test_a_large_rate_is_shown_without_an_exponent() -> None:
    words = load_sentence(a_load(largest_rate=44_432.1, rate_not_kept=46_000.0))
    assert "is 44,432 queries/s" in words
    assert "46,000/s" in words


def test_a_rate_below_zero_is_refused() -> None:
    own: Any = report(benchmark_type="TYPE1", benchmark_id="b-1", primary_metric="load_rate")
    with pytest.raises(InvalidInput, match="below 0"):
        check_report({**own, "load_test": load_report(largest_rate=-5.0)}, OF_A_LOAD)


def a_load(**changes: object) -> LoadResult:
    return msgspec.convert(load_report(**changes), LoadResult)


def test_what_the_runner_writes_is_what_the_api_answers() -> None:
    for rules in (server(), server(rate=30.0), LoadRules(kind=SINGLE_STREAM, percentile=90)):
        written = Board().load(rules).as_json()
        answered = msgspec.to_builtins(msgspec.convert(written, LoadResult))
        assert answered == written


def test_the_pictures_show_latencies_the_bound_and_the_queue_by_rate(tmp_path: Path) -> None:
    latency, queue = load_test_figures(a_load())
    assert [each.name for each in latency.series] == ["p50", "p90", "p99", "bound"]
    assert [each.x for each in queue.series[0].samples] == [25, 40, 41.5, 50]
    assert [each.x for each in latency.marks] == [40]
    drawn = [each.verdict for each in latency.series[0].samples]
    assert drawn == ["", "", *drawn[2:]]
    stopped = a_load()
    trials = [
        msgspec.structs.replace(each, ended="queue") if each.rate == 50 else each
        for each in stopped.trials
    ]
    latency, _ = load_test_figures(msgspec.structs.replace(stopped, trials=trials))
    assert latency.series[0].samples[-1].verdict == "stopped"
    assert latency.legend == ["hollow: the trial was stopped, not joined"]
    late = [msgspec.structs.replace(each, valid=False) for each in stopped.trials]
    latency, _ = load_test_figures(msgspec.structs.replace(stopped, trials=late))
    assert latency.legend == ["hollow: invalid, not joined"]
    plot_figure([latency, queue], tmp_path / "load.svg")
    ElementTree.parse(tmp_path / "load.svg")


def test_the_sentence_states_the_rules_the_rates_and_the_lateness() -> None:
    assert load_sentence(a_load()) == (
        "By LoadGen's rules (server, seed 7, no MLPerf result) the largest rate that keeps 50 ms "
        "at the 99th percentile is 40 queries/s, and 41.5/s did not keep it, in 4 trials. At "
        "40/s 1 of 662 queries were late, 1 allowed. The generator itself was late by 0.06 ms at "
        "the 99th percentile."
    )
    invalid = [load_trial(40.0, 12.0), load_trial(41.5, 13.0, valid=False)]
    assert "Trials from 41.5/s on were invalid" in load_sentence(a_load(trials=invalid))
    assert "not kept at 40 queries/s" in load_sentence(
        a_load(largest_rate=None, result=load_trial(40.0, 12.0, kept=False))
    )
    single = load_sentence(a_load(kind="single-stream", bound_ms=None, percentile=90.0))
    assert "early stopping: 48 ms" in single
    assert "at the 90th percentile" in single


def test_the_table_has_a_row_for_each_trial_in_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    show(*load_table(a_load()))
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if not line.startswith("By LoadGen's rules")]
    assert max(map(len, rows)) <= 80
    assert [line.split()[0] for line in rows[3:7]] == ["25", "40", "41.5", "50"]
    heads = ("RATE/s", "QUERIES", "KEPT", "LATE", "p50 ms", "p90 ms", "p99 ms")
    assert "  ".join((*heads, "MAX QUEUE", "SENT LATE ms")) in rows[2]


def test_queries_one_after_another_have_no_empty_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    alone = load_trial(None, 10.0, kept=None, late=None, max_late=None)
    found = a_load(kind="single-stream", bound_ms=None, result=alone, trials=[alone])
    show(*load_table(found))
    shown = capsys.readouterr().out
    assert "QUERIES  p50 ms  p90 ms  p99 ms\n" in shown
    page = report_page([], "", [msgspec.convert(results() | {"load_test": found}, Results)])
    assert "queue" not in page.partition("<h2>Load of")[2]


@pytest.mark.parametrize(
    ("part", "reported", "column", "heading"),
    [
        ("soak", soak_report(), "window_p50_ms", "p50, ms"),
        ("concurrency", concurrency_report(), "level_runs_per_s", "throughput, 1/s"),
        ("load_test", load_report(), "trial_rate", "rate"),
    ],
)
def test_each_load_has_a_section_of_the_page_and_rows_of_an_export(
    part: str, reported: Any, column: str, heading: str
) -> None:
    found = msgspec.convert({**results(), part: reported}, Results)
    rows = load_rows(found)
    assert len(rows) > 1
    assert all(column in each for each in rows)
    page = report_page([], "", [found])
    assert load_sentence_of(found) in html.unescape(page)
    assert f"<th class=n>{heading}<" in page
    assert "_ms<" not in page
    assert page.count('<figure class="edgeyard-figure') == len(load_figures(found)) > 0


@pytest.mark.parametrize(
    ("part", "reported"),
    [
        ("soak", soak_report()),
        ("concurrency", concurrency_report()),
        ("load_test", load_report()),
    ],
)
def test_a_load_is_drawn_and_written_as_a_page_by_one_command(
    server: FakeServer, part: str, reported: Any
) -> None:
    pytest.importorskip("matplotlib")
    server.on("GET", "/v1/results", {"items": [row("a")]})
    server.on("GET", "/v1/benchmarks/a/results", {**results("a"), part: reported})
    words = ("results", "a", "--plot", "load.svg", "--html", "load.html")
    found = run(*words, "--json")
    assert part in json.loads(printed(found)), "one answer"
    assert "wrote load.svg" in found.stderr
    assert "wrote load.html" in found.stderr
    ElementTree.parse("load.svg")
    assert "Load of net.onnx" in Path("load.html").read_text()


def test_the_page_has_all_numbers_of_a_language_model_with_their_intervals() -> None:
    answer: Any = results()
    rate = {"value": 41.5, "unit": "1/s", "title": "tokens written per second", "better": "higher"}
    answer["reports"][-1]["report"] |= {
        "benchmark_type": "GENAI",
        "primary_metric": "decode_tokens_per_s",
        "results": {"decode_tokens_per_s": {**rate, "ci95": [40.0, 43.0]}},
    }
    page = report_page([], "", [msgspec.convert(answer, Results)])
    row = "<td>tokens written per second<td class=n>41.5<td>1/s<td class=n>40 to 43<td>higher"
    assert row in page
    assert page.index("<tr><td>", page.index("Numbers of")) == page.index("<tr>" + row)


def test_the_page_tells_the_interval_of_a_run_from_that_of_a_repeated_one() -> None:
    between = {"share": 0.01, "degrees": 2.0, "source": "default", "numbers": 0}
    sentence = "includes 1.0% between runs, the default"
    known = {"primary_repeat_low": 11.5, "primary_repeat_high": 13.1}
    repeated = row("a", between_runs={**between, "sentence": sentence}, **known)
    page = report_page([repeated], "", [msgspec.convert(results(), Results)])
    assert "<th class=n>95 %, repeated" in page
    assert "<th class=n>95 %, of this run" in page
    assert (
        f"<li>The interval of net.onnx on {repeated['target_uid']}, repeated, {sentence}." in page
    )
    assert "repeated" not in report_page([row("a")], "")


def test_the_page_has_the_columns_of_which_something_is_known() -> None:
    unknown = row("a") | {"p90_ms": None, "ratio": None, "accuracy": None, "ram_peak_bytes": None}
    page = report_page([unknown], "")
    assert "1 benchmark ·" in page
    assert not any(name in page for name in ("p90", "Ratio", "Accuracy", "Memory"))
    assert "<th class=n>Memory" in report_page([unknown, row("b") | {"ram_peak_bytes": 1}], "")


def test_other_results_have_no_section() -> None:
    found = msgspec.convert(results(), Results)
    assert load_rows(found) == []
    assert "Load of" not in report_page([], "", [found])
