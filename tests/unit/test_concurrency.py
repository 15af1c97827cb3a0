"""Callers at once: the knee, intervals, what is refused, and what people see of a curve."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest

from edgeyard.benchmark_api.cli.concurrency import concurrency_table
from edgeyard.benchmark_api.cli.output import show
from edgeyard.benchmark_api.figures.concurrency import concurrency_figures, concurrency_sentence
from edgeyard.benchmark_api.figures.plots import plot_figure
from edgeyard.benchmark_api.figures.svg import svg_document
from edgeyard.benchmark_api.schemas.answers import ConcurrencyResult
from edgeyard.devices.metrics import primary_metric
from edgeyard.devices.runner import engines
from edgeyard.devices.runner.concurrency import curve, doubts, knee, part_rates
from edgeyard.devices.runner.conditions import Watch
from edgeyard.devices.runner.engine import SharingEngine, TensorSpec
from edgeyard.devices.runner.interval import quantile_interval
from edgeyard.errors import InvalidInput, RunFailed
from edgeyard.scheduler.engine.reports import check_report
from edgeyard.scheduler.model.run_bounds import min_run_s
from edgeyard.scheduler.model.wire import description_from_json, description_to_json
from edgeyard.scheduler.model.workload import work_of_series, workload
from tests.builders.answers import concurrency_report, report
from tests.builders.descriptions import read, refused
from tests.builders.records import a_benchmark, a_description


def levels(*points: tuple[int, float], error: float = 0.01) -> list[dict[str, object]]:
    """A drawn curve: callers and throughput, known within so much."""
    return [
        {
            "callers": callers,
            "runs_per_s": rate,
            "runs_per_s_low": rate * (1 - error),
            "runs_per_s_high": rate * (1 + error),
        }
        for callers, rate in points
    ]


@pytest.mark.parametrize(
    ("curve_points", "expected"),
    [
        ([(1, 100), (2, 200), (4, 400), (8, 400)], 4),  # four cores
        ([(1, 100), (2, 100), (4, 100)], 1),  # the callers take turns
        ([(1, 100), (2, 190), (4, 260)], 2),  # 260 is less than 1.41 times 190
        ([(1, 100), (2, 190), (4, 280)], 4),  # 280 is more
        ([(1, 100), (2, 200), (4, 400)], 4),  # it was not reached
        ([(1, 100), (2, 120), (4, 90)], 1),  # more callers are worse
        ([(8, 100)], 8),
    ],
)
def test_the_knee_has_the_largest_throughput_per_latency(
    curve_points: list[tuple[int, float]], expected: int
) -> None:
    found, near = knee(levels(*curve_points))
    assert (found, near) == (expected, [])
    # Little's law: N callers have a mean latency of N / X
    power = {callers: rate / (callers / rate) for callers, rate in curve_points}
    assert power[expected] == max(power.values())


def test_of_equal_numbers_of_callers_the_knee_is_the_smallest() -> None:
    assert knee(levels((1, 100), (4, 200))) == (1, [4])


def test_numbers_of_callers_that_the_intervals_do_not_separate_are_listed() -> None:
    # X² / N is 10,000 and 9,800 and 5,000
    points = [(1, 100.0), (2, 140.0), (4, 141.4)]
    assert knee(levels(*points, error=0.001)) == (1, [])
    assert knee(levels(*points, error=0.01)) == (1, [2])


def test_a_part_has_whole_rounds_and_no_inference_in_part() -> None:
    # two callers end together every 0.1 s: 20 per second however they are grouped
    ends_s = np.repeat(np.arange(1, 41) * 0.1, 2)
    rates = part_rates(ends_s, 0.0, 2)
    assert len(rates) == 20
    assert rates == pytest.approx(20)
    assert part_rates(np.array([0.5]), 0.0, 4) == pytest.approx([2.0])


@pytest.mark.parametrize(("count", "has_high"), [(20, False), (367, False), (368, True)])
def test_the_upper_end_of_a_p99_takes_368_inferences(count: int, has_high: bool) -> None:
    samples = np.random.default_rng(1).permutation(np.arange(1.0, count + 1))
    _, high = quantile_interval(samples, 0.99)
    assert (high is not None) == has_high


@pytest.mark.parametrize("count", range(2, 30))
def test_the_interval_of_a_quantile_holds_it_however_few_there_are(count: int) -> None:
    samples = np.random.default_rng(count).exponential(size=count)
    for share in (0.9, 0.99, 0.999):
        low, high = quantile_interval(samples, share)
        value = np.percentile(samples, 100 * share)
        assert (value if low is None else low) <= value
        assert value <= (value if high is None else high)


def test_the_interval_of_a_p99_holds_it_in_95_of_100_series() -> None:
    rng = np.random.default_rng(5)
    true = -np.log(0.01)  # of the exponential distribution
    held = 0
    for _ in range(400):
        low, high = quantile_interval(rng.exponential(size=2000), 0.99)
        assert low is not None
        assert high is not None
        held += low <= true <= high
    assert 0.92 <= held / 400 <= 1


class Machine:
    """A model on so many cores, which inferences share: one alone takes 2 ms."""

    inputs = (TensorSpec("x", (1,), "float32"),)
    outputs = (TensorSpec("y", (1,), "float32"),)
    facts: Mapping[str, object] = MappingProxyType({})

    def __init__(self, cores: int, fails_after: int | None = None) -> None:
        self._cores, self._left, self.at_once, self.max_at_once = cores, fails_after, 0, 0
        self._lock = threading.Lock()

    def run(self, feeds: object) -> Sequence[Any]:
        with self._lock:
            self.at_once += 1
            sharing = max(1.0, self.at_once / self._cores)
            self.max_at_once = max(self.max_at_once, self.at_once)
            if self._left is not None:
                self._left -= 1
        if self._left is not None and self._left < 0:
            raise RunFailed("user_model", "the model failed while running: drawn")
        time.sleep(0.01 * sharing)
        with self._lock:
            self.at_once -= 1
        return [np.ones(1, np.float32)]

    def curve(self, callers: Sequence[int], **more: Any) -> Any:
        options: dict[str, Any] = {"min_runs": 20, "max_s": 30.0, "min_level_s": 0.1, **more}
        return curve(
            self,
            lambda: self,
            {"x": np.ones(1, np.float32)},
            lambda count: Watch(threads=count),
            lambda percent, phase: None,
            callers=callers,
            shared=True,
            **options,
        )


def test_the_result_of_a_curve_is_that_of_its_knee() -> None:
    notes: list[str] = []
    machine = Machine(cores=1)
    found = machine.curve([1, 4], note=notes.append)
    report = found.as_json()
    assert machine.max_at_once == 4
    one, four = report["levels"]
    assert (report["callers"], report["knee"]) == (1, 1)
    # four callers on one core: no more throughput, four times the latency
    assert 2 < four["p50_ms"] / one["p50_ms"] < 8
    assert four["nb_inference"] >= 20
    assert found.measurement.latencies_ms.shape == (one["nb_inference"],)
    stated = found.measurement.as_json()
    primary = primary_metric({"benchmark_type": "TYPE1", **stated})
    assert primary is not None
    assert primary.metric.name == "runs_per_s"
    assert primary.value == one["runs_per_s"]
    assert (primary.low, primary.high) == (one["runs_per_s_low"], one["runs_per_s_high"])
    assert stated["inference_latency"]["p50"] == one["p50_ms"]
    # Little's law
    assert one["runs_per_s"] == pytest.approx(1e3 / one["p50_ms"], rel=0.5)
    assert [each.partition(":")[0] for each in notes] == ["1 caller", "4 callers"]


def test_one_number_of_callers_has_no_knee() -> None:
    report = Machine(cores=2).curve([2]).as_json()
    assert (report["callers"], report["knee"], len(report["levels"])) == (2, None, 1)


def test_a_failing_caller_ends_the_run_with_its_reason() -> None:
    # one run before the warm-up, one of each more caller, and as many as are warmed up by
    with pytest.raises(RunFailed, match="failed while running: drawn"):
        Machine(cores=4, fails_after=60).curve([4], min_level_s=5.0)


def test_too_little_time_for_the_callers_is_said_with_what_to_change() -> None:
    with pytest.raises(RunFailed, match="longer user_time, or fewer callers") as failed:
        Machine(cores=1).curve([1, 64], max_s=0.0)
    assert failed.value.category == "timeout"


def test_more_callers_than_cores_are_a_reason_and_no_failure() -> None:
    codes = [each.code for each in doubts(concurrency_report(cores=2))]
    assert codes == ["callers_exceed_cores"]
    assert not doubts(concurrency_report(cores=4))


def test_inferences_that_are_shorter_than_what_python_adds_are_a_reason() -> None:
    report = concurrency_report()
    for each in report["levels"]:
        each["p50_ms"] /= 1000
    assert [each.code for each in doubts(report)] == ["callers_take_turns"]


@pytest.mark.parametrize(
    ("engine", "shared"), [("ort", True), ("openvino", True), ("ncnn", True), ("tflite", False)]
)
def test_callers_share_the_loaded_model_where_the_engine_allows_it(
    engine: str, shared: bool
) -> None:
    assert isinstance(engines.find(engine), SharingEngine) == shared


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"concurrency": 0}, "/concurrency"),
        ({"concurrency": 65}, "/concurrency"),
        ({"concurrency": "1,2,2"}, "/concurrency"),
        ({"concurrency": "many"}, "/concurrency"),
        ({"concurrency": 1.5}, "/concurrency"),
        ({"concurrency": True}, "/concurrency"),
        ({"concurrency": list(range(1, 18))}, "/concurrency"),
        ({"concurrency": 2, "soak": "30 min"}, "/concurrency"),
        ({"concurrency": 2, "precision": "2 %"}, "/concurrency"),
        ({"concurrency": 2, "profile_layers": True}, "/concurrency"),
        ({"concurrency": 2, "keep_outputs": True, "dataset": "d.npz"}, "/concurrency"),
        ({"concurrency": 2, "benchmark_type": "TYPE2", "dataset": "d.npz"}, "/concurrency"),
        ({"concurrency": 2, "nb_inference": 2_000_000}, "/nb_inference"),
    ],
)
def test_what_callers_at_once_can_not_be_is_refused_at_submission(
    fields: dict[str, object], pointer: str
) -> None:
    assert pointer in [each.pointer for each in refused(**fields)]


@pytest.mark.parametrize("stated", ["65", "10000", "1,10000", 10**6])
def test_too_many_callers_are_refused_with_the_range(stated: object) -> None:
    (problem,) = refused(concurrency=stated)
    assert "which is outside of 1 to 64" in problem.reason


@pytest.mark.parametrize("stated", ["1,2,4", "4, 2,1", [1, 2, 4], ["1", 4, 2], ["1,2", "4"]])
def test_numbers_of_callers_are_stored_in_rising_order(stated: object) -> None:
    found = read(concurrency=stated)
    assert found.concurrency == (1, 2, 4)
    shown = description_to_json(found)
    assert shown["concurrency"] == [1, 2, 4]
    assert description_from_json(shown) == found


def test_one_number_of_callers_and_none_are_accepted() -> None:
    assert read(concurrency=64).concurrency == (64,)
    assert read().concurrency == ()


def test_each_number_of_callers_takes_its_time() -> None:
    kind = read().benchmark_type
    one = min_run_s(kind, 20)
    assert min_run_s(kind, 20, levels=3) >= one + 5


def test_another_concurrency_is_other_work_and_another_series() -> None:
    found, series = [], set()
    for stated in ({}, {"concurrency": 2}, {"concurrency": "1,2"}, {"soak": 600}):
        made = a_benchmark(description=read(**stated))
        work = workload(made, {})
        found.append((work["load"], work["metric"]))
        series.add(work_of_series(made, {}))
    rate = "runs_per_s in 1/s, higher is better"
    p50 = "p50 in ms, lower is better"
    assert found == [
        (None, p50),
        ("concurrency 2", rate),
        ("concurrency 1,2", rate),
        ("soak of 600 s", p50),
    ]
    assert len(series) == 4


def test_only_callers_at_once_make_the_throughput_of_a_report_primary() -> None:
    own: Any = report(benchmark_type="TYPE1", benchmark_id="b-1", primary_metric="runs_per_s")
    several = a_benchmark(description=a_description(concurrency=(1, 2, 4)))
    check_report({**own, "runs_per_s": 180.0, "concurrency": concurrency_report()}, several)
    with pytest.raises(InvalidInput, match="primary"):
        check_report({**own, "runs_per_s": 180.0}, several)


@pytest.mark.parametrize(
    "changes",
    [
        {"runs_per_s": -1.0},
        {"ram_model": -1},
        {"inference_latency": {"p50": -1.0}},
        {"energy": {"per_inference": {"value": -3.0}}},
    ],
)
def test_a_host_cannot_state_less_than_nothing(changes: dict[str, object]) -> None:
    own: Any = report(benchmark_type="TYPE1", benchmark_id="b-1")
    check_report(own, a_benchmark())
    with pytest.raises(InvalidInput, match=r"0 to 1e\+15"):
        check_report({**own, **changes}, a_benchmark())


def test_a_curve_without_levels_is_described() -> None:
    assert "The knee is at 3 callers" in concurrency_sentence(a_curve(levels=[], knee=3))


def a_curve(**changes: object) -> ConcurrencyResult:
    return msgspec.convert(concurrency_report(**changes), ConcurrencyResult)


def test_the_pictures_show_throughput_and_latencies_with_the_knee(tmp_path: Path) -> None:
    figures = concurrency_figures(a_curve())
    assert [each.axis.unit for each in figures] == ["1/s", "ms"]
    assert [len(each.series) for each in figures] == [1, 2]
    for each in figures:
        ElementTree.fromstring(svg_document(each))
        assert each.remarks[0] == "1 knee, number of callers: 2"
    plot_figure(figures, tmp_path / "curve.svg")
    ElementTree.parse(tmp_path / "curve.svg")


def test_the_sentence_says_where_the_knee_is_and_how_sure_that_is() -> None:
    assert concurrency_sentence(a_curve()) == (
        "The knee is at 2 callers, where throughput per latency is largest: the result is from "
        "there. Callers had one loaded model on 4 cores."
    )
    unsure = concurrency_sentence(a_curve(knee=4, callers=4, not_distinct=[2], shared_model=False))
    assert "it may be at more" in unsure
    assert "Within the intervals it may be at 2, too" in unsure
    assert "a loaded model each" in unsure
    assert concurrency_sentence(a_curve(knee=None)).startswith("The result is of 2 callers at once")


def test_the_table_has_a_row_for_each_number_of_callers(capsys: pytest.CaptureFixture[str]) -> None:
    show(*concurrency_table(a_curve()))
    shown = capsys.readouterr().out
    first_words = [line.split()[0] for line in shown.splitlines() if line.split()]
    assert [each for each in first_words if each.isdigit()] == ["1", "2", "4"]
    assert "182" in shown, "the upper end of the throughput of two callers"


def test_joules_have_a_column_where_they_are_known(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEYARD_COLUMNS", "80")
    show(*concurrency_table(a_curve()))
    assert " J " not in capsys.readouterr().out
    levels = [each | {"energy_j": 0.123} for each in concurrency_report()["levels"]]
    show(*concurrency_table(a_curve(levels=levels)))
    lines = capsys.readouterr().out.splitlines()
    assert sum("0.123" in line for line in lines) == 3
    assert max(len(line.rstrip()) for line in lines if "0.123" in line) <= 80
