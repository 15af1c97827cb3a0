"""Soaks: the steady part, throttling, what is refused, and what people see of one."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest

from edgeyard.benchmark_api.cli.output import show
from edgeyard.benchmark_api.cli.soaks import soak_table
from edgeyard.benchmark_api.figures.plots import plot_figure
from edgeyard.benchmark_api.figures.soaks import soak_figures, soak_sentence
from edgeyard.benchmark_api.figures.svg import svg_document
from edgeyard.benchmark_api.schemas.answers import SoakResult
from edgeyard.devices.runner.conditions import Watch
from edgeyard.devices.runner.engine import TensorSpec
from edgeyard.devices.runner.soak import doubts, soak, steady_from
from edgeyard.scheduler.model.wire import description_from_json, description_to_json
from tests.builders.answers import results, soak_report
from tests.builders.cli import printed, run
from tests.builders.descriptions import read, refused
from tests.fakes.api_server import FakeServer


class Board:
    """A session and a made-up machine in virtual time: it slows down as it gets warm."""

    inputs = (TensorSpec("x", (1,), "float32"),)
    outputs = (TensorSpec("y", (1,), "float32"),)
    facts: Mapping[str, object] = MappingProxyType({})

    def __init__(self, root: Path, latency_ms: Any, facts: Any = lambda s: {}) -> None:
        self.root, self.now_s = root, 0.0
        self._latency_ms, self._facts = latency_ms, facts
        self._jitter = itertools.cycle((0.99, 1.0, 1.01, 0.995, 1.005))
        self.show()

    def show(self) -> None:
        for name, text in self._facts(self.now_s).items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def clock(self) -> int:
        return int(self.now_s * 1e9)

    def run(self, feeds: object) -> Sequence[Any]:
        self.now_s += self._latency_ms(self.now_s) * next(self._jitter) / 1e3
        self.show()
        return [np.ones(1, np.float32)]

    def soak(self, duration_s: float, window_s: float, notes: list[str] | None = None) -> Any:
        return soak(
            self,
            {"x": np.ones(1, np.float32)},
            lambda: Watch(threads=1, root=self.root),
            lambda percent, phase: None,
            duration_s=duration_s,
            window_s=window_s,
            clock=self.clock,
            note=([] if notes is None else notes).append,
        )


def temperature(celsius: float) -> dict[str, str]:
    return {"sys/class/thermal/thermal_zone0/temp": f"{celsius * 1000:.0f}"}


def hot_from(seconds: float, at: float) -> dict[str, str]:
    throttled = "0x4" if seconds >= at else "0x0"
    return {
        **temperature(40 + min(45.0, seconds / 10)),
        "sys/devices/platform/soc/soc:firmware/get_throttled": throttled,
    }


@pytest.mark.parametrize(
    ("p50s_ms", "expected"),
    [
        ([10, 10, 10], 0),
        ([10, 12, 15, 20, 20.1, 19.9, 20], 3),
        ([10, 10, 10, 20], None),  # three have to be steady at the end
        ([10, 10], None),
        ([10, 11.5, 13.2, 15.1, 17.4], None),
        ([20, *[10] * 12, 20, *[10] * 7], 1),  # one window in ten may be disturbed
        ([*[10] * 5, 20, 10, 20, 10, 20], None),
        ([*[10] * 27, 40, 40, 40], 27),  # another level at the end is no disturbance
        ([10 * 1.01**minute for minute in range(30)], None),  # a drift without an end
        ([10 * 1.003**minute for minute in range(30)], None),
        ([10 * 0.99**minute for minute in range(30)], None),
        ([10 * 1.001**minute for minute in range(30)], 0),  # 3 % in all
        ([*[10 * 1.01**minute for minute in range(15)], *[11.6] * 15], 10),
    ],
)
def test_the_steady_part_goes_to_the_end_and_begins_as_early_as_it_can(
    p50s_ms: list[float], expected: int | None
) -> None:
    assert steady_from(p50s_ms) == expected


def test_the_number_of_a_soak_is_that_of_its_steady_part(tmp_path: Path) -> None:
    board = Board(tmp_path, lambda s: 100.0 if s < 240 else 150.0, lambda s: hot_from(s, 240))
    notes: list[str] = []
    found = board.soak(600, 60, notes)
    report = found.as_json()
    assert len(report["windows"]) == 10
    assert report["steady"]["begin_s"] == pytest.approx(240, abs=60)
    assert report["steady"]["p50_ms"] == pytest.approx(150, rel=0.02)
    assert np.median(found.measurement.latencies_ms) == report["steady"]["p50_ms"]
    assert report["windows"][0]["p50_ms"] == pytest.approx(100, rel=0.02)
    assert report["throttling"]["sign"] == "reported"
    assert report["throttling"]["after_s"] == pytest.approx(240, abs=60)
    temperatures = [each["temperature_c"] for each in report["windows"]]
    assert temperatures == sorted(temperatures)
    assert temperatures[-1] == 85
    assert not doubts(report)
    assert any(each.startswith("minute 10 of 10: p50 ") for each in notes)
    assert 0 <= report["overhead"] < 0.01


def test_a_soak_that_never_gets_steady_is_suspect_and_says_so(tmp_path: Path) -> None:
    board = Board(tmp_path, lambda s: 100.0 + s / 2)
    report = board.soak(300, 60).as_json()
    assert report["steady"] is None
    (reason,) = doubts(report)
    assert reason.code == "not_steady"
    assert report["throttling"] == {"after_s": None, "sign": None, "watched": []}


def test_a_lower_clock_is_a_sign_of_throttling_where_nothing_reports_it(tmp_path: Path) -> None:
    cpus = os.sched_getaffinity(0)
    clocks = [f"sys/devices/system/cpu/cpu{one}/cpufreq/scaling_cur_freq" for one in cpus]
    board = Board(
        tmp_path,
        lambda s: 100.0,
        lambda s: dict.fromkeys(clocks, "1500000" if s < 120 else "1000000"),
    )
    seen = board.soak(300, 60).as_json()["throttling"]
    assert seen["sign"] == "clock"
    assert seen["after_s"] == pytest.approx(120, abs=60)
    assert seen["watched"] == ["clock"]


def test_a_model_that_is_slower_than_a_window_has_as_many_windows_as_runs(tmp_path: Path) -> None:
    report = Board(tmp_path, lambda s: 1500.0).soak(10, 1).as_json()
    assert [each["nb_inference"] for each in report["windows"]] == [1] * len(report["windows"])
    assert 6 <= len(report["windows"]) <= 8


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"soak": "2 min"}, "/soak"),
        ({"soak": "2 days"}, "/soak"),
        ({"soak": "30 min", "precision": "2 %"}, "/soak"),
        ({"soak": "30 min", "nb_inference": 100}, "/soak"),
        ({"soak": "30 min", "profile_layers": True}, "/soak"),
        ({"soak": "30 min", "benchmark_type": "TYPE2", "dataset": "d.npz"}, "/soak"),
        ({"soak_window": "10 s"}, "/soak_window"),
        ({"soak": "30 min", "soak_window": "2 h"}, "/soak_window"),
        ({"soak": "soon"}, "/soak"),
        ({"soak": -1}, "/soak"),
        ({"soak": True}, "/soak"),
    ],
)
def test_what_no_soak_can_be_is_refused_at_submission(
    fields: dict[str, object], pointer: str
) -> None:
    assert pointer in [each.pointer for each in refused(**fields)]


@pytest.mark.parametrize(
    ("soak", "window"),
    [(0.6, 0.2), (0.3, 0.1), (2.1, 0.7), (1008, 0.7), (0.9, 0.3), ("2.4 s", 0.8)],
)
def test_a_soak_of_whole_windows_is_accepted_whatever_its_binary_digits(
    soak: object, window: float
) -> None:
    assert read(soak=soak, soak_window=window).soak_window_s == window


def test_a_soak_that_is_a_little_too_short_is_not_said_to_have_windows_enough() -> None:
    (problem,) = refused(soak=29.99, soak_window=10)
    assert problem.reason.startswith("29.99 s is too short for windows of 10 s: ")
    assert problem.accepted == "at least 30 s, or a shorter soak_window"


def test_a_soak_that_is_too_long_for_its_windows_says_how_long_it_may_be() -> None:
    (problem,) = refused(soak="100h")
    assert problem.reason.startswith("360000 s is too long for windows of 60 s")
    assert problem.accepted == "at most 86400 s, or a longer soak_window"


def test_a_soak_is_stored_and_shown_as_it_was_stated() -> None:
    found = read(soak="30m", soak_window="30 s")
    assert (found.soak_s, found.soak_window_s) == (1800, 30)
    shown = description_to_json(found)
    assert (shown["soak"], shown["soak_window"]) == (1800, 30)
    assert description_from_json(shown) == found


def a_soak(steady: int | None = 4, **more: object) -> SoakResult:
    return msgspec.convert(soak_report(steady=steady) | more, SoakResult)


def test_the_pictures_of_a_soak_have_latency_and_temperature_and_no_clock_that_is_not_known(
    tmp_path: Path,
) -> None:
    figures = soak_figures(a_soak())
    assert [each.axis.unit for each in figures] == ["ms", "°C"]
    for each in figures:
        ElementTree.fromstring(svg_document(each))
        assert [mark.x for mark in each.marks] == [4.0, 4.0]
        assert each.remarks[0] == "1 steady from here on: 4 min"
    windows = [sample.x for sample in figures[0].series[0].samples]
    assert windows[3] < 4.0 < windows[4], "the first steady window is right of the mark"
    plot_figure(figures, tmp_path / "soak.svg")
    ElementTree.parse(tmp_path / "soak.svg")


def test_the_sentence_says_when_it_was_steady_and_throttled() -> None:
    assert soak_sentence(a_soak()) == (
        "Steady from 4 min on, p50 150 ms: the result is of this part. Throttling after 4 min: "
        "firmware or kernel report it. Edgeyard itself took 0.1 % of a core."
    )
    never: dict[str, object] = {"after_s": None, "sign": None, "watched": []}
    sentence = soak_sentence(a_soak(steady=None, throttling=never))
    assert "Not steady within 10 min" in sentence
    assert "reports neither" in sentence


@pytest.mark.parametrize(("steady", "of"), [(4, "of the steady part"), (None, "of the whole soak")])
def test_inferences_are_of_the_part_that_the_result_is_of(
    server: FakeServer, steady: int | None, of: str
) -> None:
    server.on("GET", "/v1/benchmarks/a/results", {**results("a"), "soak": soak_report(10, steady)})
    assert f"20 {of}" in printed(run("results", "a"))


def test_joules_of_windows_have_a_column_where_they_are_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(*soak_table(a_soak()))
    assert " J " not in capsys.readouterr().out
    windows = [each | {"energy_j": 0.123} for each in soak_report()["windows"]]
    show(*soak_table(a_soak(windows=windows)))
    assert capsys.readouterr().out.count("0.123") == len(windows)
