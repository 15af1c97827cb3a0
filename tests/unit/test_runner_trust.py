"""Verdicts: each of them made to happen, on made-up clocks and machines."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeyard.devices.metrics import HIGHER, Metric
from edgeyard.devices.runner.board import board_facts, cpu_model, temperature_c
from edgeyard.devices.runner.conditions import Conditions, Watch
from edgeyard.devices.runner.engine import TensorSpec
from edgeyard.devices.runner.engines.ort import OrtEngine
from edgeyard.devices.runner.feeds import Feeds
from edgeyard.devices.runner.interval import median_interval
from edgeyard.devices.runner.measure import Measurement, StopRule, measure, timed_runs
from edgeyard.devices.runner.trust import Series, judge
from edgeyard.devices.runner.warmup import MAX_WINDOWS, warm_up
from edgeyard.errors import RunFailed
from tests.builders.runner import linear_model

QUIET = Conditions(wall_s=1.0, own_cpu_s=1.0, cpus=(0,), other_load=0.0, queued=0.0)


class Scripted:
    """A session whose runs take as long as the script says, on a clock of its own."""

    inputs = (TensorSpec("x", (1,), "float32"),)
    outputs = (TensorSpec("y", (1,), "float32"),)
    facts: Mapping[str, object] = {}

    def __init__(self, latency_ns: Callable[[int], int], value: float = 1.0) -> None:
        self._latency_ns, self._value = latency_ns, value
        self.runs = 0
        self.now_ns = 0

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> Sequence[NDArray[Any]]:
        self.now_ns += self._latency_ns(self.runs)
        self.runs += 1
        return [np.array([self._value], np.float32)]

    def clock(self) -> int:
        return self.now_ns


def jitter(run: int) -> float:
    """Between -1 and 1, the same every time, without a pattern."""
    return math.sin(run * 12.9898) * math.sin(run * 78.233)


def measured(session: Scripted, until: StopRule, machine: Path) -> Measurement:
    return measure(
        session,
        {"x": np.zeros(1, np.float32)},
        until,
        Watch(threads=1, root=machine),
        lambda percent, phase: None,
        clock=session.clock,
    )


def codes(found: Measurement) -> set[str]:
    return {reason.code for reason in found.verdict.reasons}


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine that tells nothing."""
    return tmp_path


def test_a_quiet_run_is_comparable(machine: Path) -> None:
    session = Scripted(lambda run: 5_000_000 + int(50_000 * jitter(run)))
    found = measured(session, StopRule(runs=100), machine)
    assert found.verdict.verdict == "comparable", found.verdict.reasons
    assert len(found.latencies_ms) == 100
    assert found.warmup is not None
    assert found.warmup.settled
    assert found.verdict.interval is not None
    assert found.verdict.interval.low <= np.median(found.latencies_ms)


def test_a_warm_up_is_waited_for_before_anything_counts(machine: Path) -> None:
    # the first 40 runs fall from 10 ms to 5 ms
    session = Scripted(lambda run: max(5_000_000, 10_000_000 - 125_000 * run))
    found = measured(session, StopRule(runs=50), machine)
    assert found.verdict.verdict == "comparable"
    assert found.warmup is not None
    assert found.warmup.runs >= 40
    assert found.latencies_ms.max() == 5.0


@pytest.mark.parametrize("growth", [0.98, 1.02])
def test_a_warm_up_that_never_settles_makes_the_result_invalid(
    machine: Path, growth: float
) -> None:
    session = Scripted(lambda run: int(50_000_000 * growth**run) + 1)
    found = measured(session, StopRule(runs=30), machine)
    assert found.verdict.verdict == "invalid"
    assert "not_settled" in codes(found)


def test_the_warm_up_is_bounded_in_windows_and_time() -> None:
    rising = Scripted(lambda run: int(1_000_000 * 1.02**run))
    found = warm_up(lambda count: timed_runs(rising.run, {}, count, rising.clock))
    assert not found.settled
    assert found.runs <= 6 + MAX_WINDOWS * found.window
    slow = Scripted(lambda run: int(2e9 * 1.1**run))
    found = warm_up(lambda count: timed_runs(slow.run, {}, count, slow.clock), max_s=10.0)
    assert not found.settled
    assert found.runs < 12


@pytest.mark.parametrize("run_s", [1.1, 4.3, 60.0])
def test_a_slow_but_steady_model_is_comparable(machine: Path, run_s: float) -> None:
    session = Scripted(lambda run: int(run_s * 1e9 * (1 + 0.01 * jitter(run))))
    found = measured(session, StopRule(runs=20), machine)
    assert found.verdict.verdict == "comparable", found.verdict.reasons
    assert found.warmup is not None
    assert found.warmup.runs == 4, "one that is cold, and three that agree"


def test_a_slow_model_that_still_gets_faster_is_warmed_up_for_longer(machine: Path) -> None:
    session = Scripted(lambda run: int(4.3e9 * max(1.0, 2.0 - 0.2 * run)))
    found = measured(session, StopRule(runs=20), machine)
    assert found.verdict.verdict == "comparable", found.verdict.reasons
    assert found.latencies_ms.max() == 4300.0


def test_a_slow_noisy_but_level_model_settles(machine: Path) -> None:
    noisy = Scripted(lambda run: int(4.3e9 * (1 + 0.2 * jitter(run))))
    found = warm_up(lambda count: timed_runs(noisy.run, {}, count, noisy.clock), math.inf)
    assert found.settled


def test_a_first_run_that_is_slow_makes_no_slow_model(machine: Path) -> None:
    session = Scripted(lambda run: 5_000_000 if run > 1 else 3_000_000_000)
    found = measured(session, StopRule(runs=20), machine)
    assert found.warmup is not None
    assert found.warmup.window >= 5
    assert found.verdict.verdict == "comparable"


def test_a_noisy_but_level_series_settles() -> None:
    noisy = Scripted(lambda run: 5_000_000 + int(2_000_000 * jitter(run)))
    assert warm_up(lambda count: timed_runs(noisy.run, {}, count, noisy.clock)).settled


def test_too_few_runs_are_invalid(machine: Path) -> None:
    found = measured(Scripted(lambda run: 5_000_000), StopRule(runs=5), machine)
    assert found.verdict.verdict == "invalid"
    assert codes(found) == {"too_few_runs"}


def test_a_precision_is_measured_for_until_it_is_reached(machine: Path) -> None:
    session = Scripted(lambda run: 5_000_000 + int(1_000_000 * jitter(run)))
    found = measured(session, StopRule(runs=1, precision=0.02, max_s=1e9), machine)
    assert found.verdict.interval is not None
    assert found.verdict.interval.half_width <= 0.02
    assert found.verdict.verdict == "comparable"


def test_a_slow_model_ends_in_time_with_what_was_measured_for_its_precision(
    machine: Path,
) -> None:
    session = Scripted(lambda run: int(4e8 * (1 + 0.1 * jitter(run))))
    found = measured(session, StopRule(runs=1, precision=0.001, max_s=3.0), machine)
    assert 6 <= len(found.latencies_ms) <= 9
    assert found.verdict.interval is not None
    assert "precision_not_reached" in codes(found)


def test_a_precision_that_time_does_not_allow_is_reported(machine: Path) -> None:
    session = Scripted(lambda run: 5_000_000 + int(4_000_000 * jitter(run)))
    found = measured(session, StopRule(runs=1, precision=0.001, max_s=0.5), machine)
    assert found.verdict.verdict == "suspect"
    assert codes(found) == {"precision_not_reached"}
    assert found.as_json()["precision"] == {
        "asked": 0.001,
        "reached": False,
        "half_width": pytest.approx(found.verdict.interval.half_width),  # type: ignore[union-attr]
    }


def test_short_runs_are_measured_for_a_minimum_time(machine: Path) -> None:
    session = Scripted(lambda run: 5_000_000)
    found = measured(session, StopRule(runs=20, min_s=0.5), machine)
    assert (len(found.latencies_ms), found.loops) == (100, 1)


def test_more_runs_than_the_minimum_time_takes_are_all_done(machine: Path) -> None:
    session = Scripted(lambda run: 50_000_000)
    assert len(measured(session, StopRule(runs=20, min_s=0.5), machine).latencies_ms) == 20


def test_a_minimum_time_ends_with_the_time_that_is_left(machine: Path) -> None:
    session = Scripted(lambda run: 50_000_000)
    found = measured(session, StopRule(runs=2, min_s=0.5, max_s=0.2), machine)
    assert len(found.latencies_ms) == 4


@pytest.mark.parametrize(("run_us", "loops"), [(0.5, 200), (8.0, 13), (99.0, 2), (100.0, 1)])
def test_one_number_covers_many_times_the_clocks_grain(
    machine: Path, run_us: float, loops: int
) -> None:
    session = Scripted(lambda run: int(run_us * 1000))
    found = measured(session, StopRule(runs=20), machine)
    assert found.loops == loops
    assert len(found.latencies_ms) == 20
    assert found.as_json()["nb_inference"] == 20 * loops
    assert np.median(found.latencies_ms) == pytest.approx(run_us / 1e3)
    assert found.verdict.verdict == "comparable", found.verdict.reasons


def test_a_drift_between_the_halves_is_suspect() -> None:
    series = np.array([5.0 + 0.05 * jitter(run) + (run >= 50) for run in range(100)])
    verdict = judge(series, QUIET)
    assert verdict.verdict == "suspect"
    assert "drift" in {reason.code for reason in verdict.reasons}
    assert "slower" in " ".join(reason.sentence for reason in verdict.reasons)


def test_a_p50_with_a_very_wide_interval_is_given_with_both_ends() -> None:
    series = np.array([5.0, 200.0] * 10 + [5.0])
    reasons = {reason.code: reason.sentence for reason in judge(series, QUIET).reasons}
    assert reasons["wide_interval"].startswith(
        "The 95 % interval of the p50 is 5 to 200 ms, wider than ±5%"
    )
    assert "1950" not in reasons["wide_interval"]


@pytest.mark.parametrize("number", [0.0, -5.0, 7.0])
def test_a_metric_whose_numbers_are_all_equal_has_no_wide_interval(number: float) -> None:
    score = Series(Metric("score", "score", "q/s", HIGHER), np.full(20, number))
    latencies = np.array([5.0, 5.01] * 10)
    assert judge(latencies, QUIET, primary=score).verdict == "comparable"
    wide = Series(score.metric, np.array([-5.0, -7.0] * 10))
    reasons = {one.code: one.sentence for one in judge(latencies, QUIET, primary=wide).reasons}
    assert "The 95 % interval of score is -7 to -5 q/s" in reasons["wide_interval"]


def test_an_interval_with_one_far_end_states_how_far_each_is() -> None:
    series = np.array([10.0] * 5 + [45.0, 45.3, 45.6, 46.0] * 5)
    reasons = {reason.code: reason.sentence for reason in judge(series, QUIET).reasons}
    below, above = re.findall(r"\(-(\d+)% to \+([\d.]+)%, ±", reasons["wide_interval"])[0]
    assert float(below) == pytest.approx(78, abs=1)
    assert float(above) == pytest.approx(1.5, abs=1)


def test_an_interval_that_is_not_known_is_not_stated_with_ends() -> None:
    reasons = {one.code: one.sentence for one in judge(np.geomspace(45, 1, 7), QUIET).reasons}
    assert reasons["wide_interval"].startswith(
        "The 95 % interval of the p50 is not known, and so wider than ±5%"
    )


def test_an_interval_of_a_few_runs_that_hang_together_ends_at_what_can_be() -> None:
    for series in (np.linspace(1.0, 1.5, 6), np.linspace(2.0, 1.0, 20), np.geomspace(45, 1, 7)):
        found = median_interval(series)
        assert found is not None
        middle = float(np.median(series))
        assert middle / 1000 <= found.low <= series.min()
        assert series.max() <= found.high <= middle * 1000
    far = median_interval(np.array([1e-5, 1e-4, 1.0, 1.1, 1.2, 1e5]))
    assert far is not None
    assert far.low <= 1e-5
    assert far.high >= 1e5


@pytest.mark.parametrize(
    ("conditions", "code", "verdict"),
    [
        (replace(QUIET, other_load=0.04), None, "comparable"),
        (replace(QUIET, other_load=0.5), "other_load", "suspect"),
        (replace(QUIET, queued=0.5), "other_load", "suspect"),
        (replace(QUIET, other_load=0.75), "other_load", "suspect"),
        (replace(QUIET, other_load=0.75, queued=None), "other_load", "invalid"),
        (replace(QUIET, other_load=0.75, queued=0.75), "other_load", "invalid"),
        (replace(QUIET, steal=0.2), "steal", "suspect"),
        (replace(QUIET, affinity_changed=True), "affinity_changed", "suspect"),
        (replace(QUIET, affinity_missed=True), "affinity_missed", "suspect"),
        (replace(QUIET, frequencies_mhz=(1500.0, 1490.0)), None, "comparable"),
        (replace(QUIET, frequencies_mhz=(1500.0, 600.0)), "frequency_changed", "suspect"),
        (replace(QUIET, throttle_events=3), "throttled", "suspect"),
        (replace(QUIET, throttled=True), "throttled", "suspect"),
        (replace(QUIET, clock_error=0.02), "clock", "invalid"),
    ],
)
def test_what_happened_around_decides(
    conditions: Conditions, code: str | None, verdict: str
) -> None:
    series = np.array([5.0 + 0.05 * jitter(run) for run in range(100)])
    found = judge(series, conditions)
    assert found.verdict == verdict
    assert [reason.code for reason in found.reasons] == ([code] if code else [])


BUSY = replace(QUIET, other_load=0.9, queued=0.5)


@pytest.mark.parametrize(
    ("conditions", "sentence"),
    [
        (
            BUSY,
            "Other work had 90% of the time on the CPUs measured on, and runs waited for their "
            "CPUs 50% of the time.",
        ),
        (
            replace(BUSY, queued=0.85),
            "Because of other work, runs waited for their CPUs 85% of the time; over 60% a "
            "number is invalid.",
        ),
        (
            replace(BUSY, queued=None),
            "Other work had 90% of the time on the CPUs measured on; over 60% a number is invalid.",
        ),
        (
            replace(QUIET, queued=0.6004),
            "Because of other work, runs waited for their CPUs 60.04% of the time; over 60% a "
            "number is invalid.",
        ),
        (
            replace(QUIET, other_load=0.0501),
            "Other work had 5.01% of the time on the CPUs measured on, and runs waited for their "
            "CPUs 0% of the time.",
        ),
        (replace(QUIET, steal=0.0504), "The hypervisor took 5.04% of the CPUs' time."),
        (
            replace(QUIET, clock_error=0.01004),
            "The clock ran 1.004% off the hardware's during the runs.",
        ),
    ],
)
def test_a_sentence_states_the_figure_that_decided(conditions: Conditions, sentence: str) -> None:
    series = np.array([5.0 + 0.05 * jitter(run) for run in range(100)])
    assert [one.sentence for one in judge(series, conditions).reasons] == [sentence]


def test_an_interval_that_is_a_little_too_wide_is_shown_to_be() -> None:
    series = np.array([5.0 + 0.5 * jitter(run) for run in range(100)])
    half = judge(series, QUIET).interval
    assert half is not None
    precision = half.half_width * 0.9999
    (reason,) = judge(series, QUIET, precision=precision, cap="The end came").reasons
    assert reason.sentence.startswith("The end came after 100 runs: the 95 % interval")
    shown, asked = (float(one) for one in re.findall(r"±([\d.]+)%", reason.sentence))
    assert shown > asked


def test_a_clock_that_stands_still_is_invalid() -> None:
    verdict = judge(np.array([5.0] * 20 + [0.0]), QUIET)
    assert verdict.verdict == "invalid"
    assert "clock" in {reason.code for reason in verdict.reasons}


def test_outputs_that_are_not_finite_are_refused(machine: Path) -> None:
    with pytest.raises(RunFailed, match=r"'y'.*NaN") as error:
        measured(Scripted(lambda run: 1000, value=math.nan), StopRule(runs=5), machine)
    assert error.value.category == "user_model"


def test_a_watch_sees_load_frequency_and_throttling_of_its_own_cpus(tmp_path: Path) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    stat, folder = tmp_path / "proc/stat", tmp_path / "sys/devices/system/cpu"
    stat.parent.mkdir()
    (tmp_path / "proc/self/task/1").mkdir(parents=True)
    schedstat = tmp_path / "proc/self/task/1/schedstat"
    throttled = tmp_path / "sys/devices/platform/soc/soc:firmware/get_throttled"
    throttled.parent.mkdir(parents=True)

    def tell(busy: int, queued_ns: int, mhz: int, count: int, flags: str) -> None:
        # user nice system idle iowait irq softirq steal guest guest_nice
        stat.write_text(
            "cpu 1 1 1 1 1 1 1 1 0 0\n"
            + "".join(f"cpu{cpu} {busy} 0 0 9 9 0 0 0 0 0\n" for cpu in cpus)
            + "cpu99 999999 0 0 0 0 0 0 0 0 0\n"
        )
        schedstat.write_text(f"7 {queued_ns} 3\n")
        for cpu in cpus:
            for part, value in (
                ("cpufreq/scaling_cur_freq", mhz * 1000),
                ("thermal_throttle/core_throttle_count", count),
            ):
                path = folder / f"cpu{cpu}" / part
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"{value}\n")
        throttled.write_text(flags)

    tell(busy=100, queued_ns=10, mhz=1500, count=2, flags="50000\n")
    watch = Watch(threads=1, root=tmp_path)
    watch.start()
    # far more than the few microseconds of this test: all of the time was somebody else's
    tell(busy=100_000, queued_ns=10**12, mhz=600, count=5, flags="50004\n")
    found = watch.stop()
    assert found.other_load == 1.0
    assert found.queued == 1.0
    assert found.frequencies_mhz == (1500.0, 600.0)
    assert found.throttle_events == 3 * len(cpus)
    assert found.throttled is True
    assert not found.affinity_changed
    assert found.cpus == tuple(cpus)


def test_a_board_that_reports_nothing_gives_no_facts_but_no_error_either(tmp_path: Path) -> None:
    facts = board_facts([0], tmp_path)
    assert facts["cpu_model"] is None
    assert facts["governor"] is None
    assert facts["firmware"] is None
    series = np.array([5.0] * 50)
    watch = Watch(threads=1, root=tmp_path)
    watch.start()
    verdict = judge(series, watch.stop())
    assert verdict.verdict == "comparable"
    assert set(verdict.not_checked) == {"other_load", "frequency", "throttling", "temperature"}


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("proc/device-tree/chosen/bootloader/version", "e608a69b4a7d85d8\x00"),
        ("sys/devices/virtual/dmi/id/bios_version", "1.14.2\n"),
    ],
)
def test_the_firmware_is_read_where_a_board_shows_it(tmp_path: Path, place: str, text: str) -> None:
    file = tmp_path / place
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert board_facts([0], tmp_path)["firmware"] == text.strip("\x00\n")


def test_temperature_and_processor_are_read_as_boards_tell_them(tmp_path: Path) -> None:
    for zone, value in (("thermal_zone0", "48312"), ("thermal_zone1", "-274000")):
        folder = tmp_path / "sys/class/thermal" / zone
        folder.mkdir(parents=True)
        (folder / "temp").write_text(value)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(
        "processor\t: 0\nCPU part\t: 0xd08\n\nHardware\t: BCM2711\nModel\t\t: Raspberry Pi 4\n"
    )
    assert temperature_c(tmp_path) == pytest.approx(48.312)
    assert cpu_model(tmp_path) == "Raspberry Pi 4"


@pytest.mark.slow
def test_the_timed_loop_adds_nothing_to_a_bare_one(tmp_path: Path) -> None:
    """A model of 8 µs shows what a network of 8 ms would hide."""
    import time

    import onnxruntime

    path = tmp_path / "m.onnx"
    path.write_bytes(linear_model(np.eye(4)))
    ours = OrtEngine().load(path, threads=1, parameters={})
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    bare = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds: Feeds = {"x": np.ones((1, 4), np.float32)}

    def bare_runs(count: int) -> list[int]:
        latencies = []
        for _ in range(count):
            started = time.perf_counter_ns()
            bare.run(None, feeds)
            latencies.append(time.perf_counter_ns() - started)
        return latencies

    ratios = []
    for turn in range(40):
        pair = (lambda: timed_runs(ours.run, feeds, 500), lambda: bare_runs(500))
        order = (0, 1) if turn % 2 else (1, 0)
        taken = {each: float(np.median(pair[each]())) for each in order}
        ratios.append(taken[0] / taken[1])
    # half a microsecond: twice what a Python call takes
    assert np.median(ratios) < 1.06


TOKENS = Metric("tokens_per_s", "", "1/s", "higher")


def test_the_series_of_another_primary_metric_is_judged_instead_of_the_latencies() -> None:
    noisy_ms = np.array([1.0, 9.0] * 10)
    steady = np.array([50.0, 50.1] * 10)
    assert judge(noisy_ms, QUIET, primary=Series(TOKENS, steady)).verdict == "comparable"
    falls = Series(TOKENS, np.array([12000.0, 9000.0] * 20 + [8000.0, 5000.0] * 20))
    found = {each.code: each.sentence for each in judge(noisy_ms, QUIET, primary=falls).reasons}
    assert found.keys() == {"wide_interval", "drift"}
    assert "95 % interval of tokens_per_s is" in found["wide_interval"]
    assert " 1/s" in found["wide_interval"]
    assert "e+" not in found["wide_interval"]
    assert found["drift"].endswith("was 38% lower than the first.")
    (few,) = judge(noisy_ms, QUIET, primary=Series(TOKENS, np.array([50.0]))).reasons
    assert (few.code, few.invalid) == ("too_few_runs", True)
    assert few.sentence.startswith("A series of 1 is too short for a 95 % interval of tokens_per_s")


def test_the_reference_has_every_reason_of_a_verdict() -> None:
    root = Path(__file__).parents[2]
    source = (root / "devices/runner/trust.py").read_text("utf-8")
    codes = set(re.findall(r'code="([a-z0-9_]+)"', source))
    assert "wide_interval" in codes
    schema = (root / "docs/reference/result.schema.json").read_text("utf-8")
    page = (root / "docs/reference/runner.md").read_text("utf-8")
    assert {each for each in codes if f'"{each}"' not in schema} == set()
    assert {each for each in codes if f"`{each}`" not in page} == set()
