"""What a figure shows of values, intervals, verdicts and hostile names."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest

from edgeyard.benchmark_api.cli.report import report_page
from edgeyard.benchmark_api.figures.axes import Axis
from edgeyard.benchmark_api.figures.fronts import Alternative, FrontFigure
from edgeyard.benchmark_api.figures.intervals import IntervalFigure, Point
from edgeyard.benchmark_api.figures.lines import (
    LineFigure,
    Mark,
    Sample,
    Series,
    distribution_figure,
    numbered,
    run_figure,
)
from edgeyard.benchmark_api.figures.palette import COLOURS
from edgeyard.benchmark_api.figures.plots import plot_figure
from edgeyard.benchmark_api.figures.results import (
    baseline_figure,
    comparison_figures,
    history_figure,
)
from edgeyard.benchmark_api.figures.svg import svg_figure
from edgeyard.benchmark_api.sdk.comparison import metric_of_row, relative_to

AXIS = Axis(title="throughput", unit="1/s", direction="higher")


def figure(*points: Point) -> IntervalFigure:
    return IntervalFigure(title="Boards", axis=AXIS, points=points)


def drawing(page: str) -> ElementTree.Element:
    found = re.search(r"<svg.*?</svg>", page, re.DOTALL)
    assert found
    return ElementTree.fromstring(found[0])


def measured(low: float, high: float) -> dict[str, object]:
    """A row of results with a p50 of 5 ms."""
    return {
        "model": "m",
        "target_uid": "b",
        "primary_metric": "p50",
        "primary_title": "median latency",
        "primary_unit": "ms",
        "primary_better": "lower",
        "primary_value": 5.0,
        "primary_low": low,
        "primary_high": high,
    }


def test_a_lower_end_of_zero_is_drawn_at_zero() -> None:
    page = report_page([measured(0.0, 10.0)], "")
    path = drawing(page).find(".//path[@class='edgeyard-interval']")
    assert path is not None
    assert "H8.0" in path.get("d", "")  # the left end of the axis
    assert 'class="edgeyard-cut"' not in page


def test_figure_and_table_of_a_report_show_the_interval_between_runs() -> None:
    again = {"primary_repeat_low": 3.0, "primary_repeat_high": 8.0}
    page = report_page([{**measured(4.9, 5.1), **again}], "")
    assert page.count("3 to 8") == 2
    assert "4.9" not in page


@pytest.mark.parametrize(("largest", "logarithmic"), [(20.0, False), (20.1, True)])
def test_an_axis_is_logarithmic_above_a_factor_of_twenty(largest: float, logarithmic: bool) -> None:
    drawn = figure(Point(name="a", value=1.0, low=0.0, high=2.0), Point(name="b", value=largest))
    assert drawn.scale.logarithmic is logarithmic
    assert ("logarithmic" in svg_figure(drawn)) is logarithmic


@pytest.mark.parametrize(
    "point",
    [
        Point(name="b", value=1e308, low=-1e308, high=1.7e308),
        Point(name="b", value=1.7e308),
        Point(name="b", value=-1.7e308),
    ],
)
def test_the_largest_numbers_that_a_host_can_state_are_drawn(point: Point) -> None:
    page = svg_figure(figure(Point(name="a", value=1.0, low=0.5, high=2.0), point))
    assert not re.search(r'="[^"]*\b(nan|inf)\b', page)


def test_a_small_value_beside_a_large_one_is_off_the_edge() -> None:
    drawn = figure(Point(name="a", value=0.027), Point(name="b", value=57.0))
    assert 0.05 < drawn.scale.share(0.027) < drawn.scale.share(57.0) < 1.0


def test_verdicts_differ_by_shape_and_words() -> None:
    verdicts = ("comparable", "suspect", "invalid")
    page = svg_figure(figure(*(Point(name=v, value=1.0, verdict=v) for v in verdicts)))
    marks = [each for each in drawing(page).iter() if "edgeyard-mark" in each.get("class", "")]
    assert [each.get("fill") for each in marks] == ["currentColor", "none", "none"]
    assert page.count("a4.0 4.0 0 0 0 0 8.0z") == 1  # half of the suspect one
    assert not re.search(r'class="(suspect|invalid)"', page), "rules of a page for verdicts"
    assert "? suspect" in page
    assert "! invalid" in page


def test_a_figure_has_title_description_and_numbers_and_no_inline_style() -> None:
    page = svg_figure(figure(Point(name="a", value=1.5, low=1.0, high=2.0)))
    svg = drawing(page)
    assert svg.get("role") == "img"
    assert svg.findtext("title") == "Boards"
    assert "throughput, 1/s (higher is better)" in (svg.findtext("desc") or "")
    assert "1 to 2" in page.split("<table>")[1]
    assert "style=" not in page
    assert "<script" not in page


@pytest.mark.parametrize("name", ["</script><script>", "\u202eevil", "x" * 10_000])
def test_a_hostile_name_is_shown_as_short_text(name: str) -> None:
    page = svg_figure(figure(Point(name=name, value=1.0)))
    text = next(e for e in drawing(page).iter("text") if e.find("title") is not None)
    assert len("".join(text.itertext())) < 1_100
    assert "<script" not in page
    assert "\u202e" not in page
    assert "\u2068" in page


LONG = "efficientnet_b0_imagenet_pruned_quantised_per_channel_int8"


def shown_names(page: str) -> list[str]:
    """The labels of values in a drawing, without their titles."""
    texts = (each for each in drawing(page).iter("text") if each.find("title") is not None)
    return ["".join(each.itertext())[len(each.findtext("title") or "") :] for each in texts]


@pytest.mark.parametrize(
    "models",
    [
        [f"{LONG}_v1.onnx", f"{LONG}_v2.onnx"],
        [f"v1_{LONG}.onnx", f"v2_{LONG}.onnx"],
        [f"{LONG}_v1_{LONG}.onnx", f"{LONG}_v2_{LONG}.onnx"],
    ],
)
def test_long_names_are_cut_where_they_are_alike_and_keep_board_and_engine(
    models: list[str],
) -> None:
    names = [
        f"{model} · rpi4b-0001-{number:04} · {engine}"
        for model in models
        for number in (1, 2)
        for engine in ("ort", "tflite")
    ]
    labels = shown_names(svg_figure(figure(*(Point(name=each, value=1.0) for each in names))))
    assert len(set(labels)) == len(names)
    for label, name in zip(labels, names, strict=True):
        assert len(label.strip("\u2068\u2069")) <= 46
        assert label.strip("\u2069").endswith(name[name.index(" · ") :])


def test_a_figure_of_one_metric_does_not_name_it_beside_each_result() -> None:
    latency = {**measured(4.9, 5.1), "workload": {"metric": "median latency, ms (lower is better)"}}
    rate = {
        **latency,
        "primary_metric": "runs_per_s",
        "primary_title": "throughput",
        "workload": {"metric": "throughput, 1/s (higher is better)"},
    }
    names = [each.points[0].name for each in comparison_figures([latency, rate])]
    assert names == ["m · b", "m · b"]


def test_a_table_of_points_that_nothing_judges_has_no_verdicts() -> None:
    def page(verdict: str) -> str:
        samples = [Sample(x=1.0, value=2.0, verdict=verdict)]
        series = [Series(name="a", samples=samples)]
        return svg_figure(LineFigure(title="Load", x_axis=AXIS, axis=AXIS, series=series))

    assert "Verdict" in page("suspect")
    assert "Verdict" not in page("")
    assert "<td>comparable" not in page("")


def test_two_runs_of_the_same_work_are_named_by_their_times() -> None:
    rows = [
        {**measured(4.9, 5.1), "ended_at": f"2026-11-02T0{hour}:30:00+01:00"} for hour in (8, 9)
    ]
    page = report_page(rows, "")
    assert "m · b · 2026-11-02 07:30 UTC" in page
    assert "m · b · 2026-11-02 08:30 UTC" in page


def test_large_numbers_beside_an_axis_are_short() -> None:
    page = svg_figure(figure(Point(name="a", value=140_000.0)))
    assert {"50k", "100k", "150k"} <= {each.text for each in drawing(page).iter("text")}


def test_an_interval_leaves_out_a_hollow_mark_and_an_end_off_the_axis_is_an_arrow() -> None:
    points = (
        Point(name="a", value=1.0, low=0.0, high=2.0, verdict="invalid"),
        Point(name="b", value=90.0),
    )
    svg = drawing(svg_figure(figure(*points)))
    x = 8 + 324 / 3  # of 1 on an axis from 0.1 to 100
    line = svg.find(".//path[@class='edgeyard-interval']")
    assert line is not None
    assert f"M{x - 4:.1f} 27H8.0" in line.get("d", "")
    assert f"M{x + 4:.1f} 27H" in line.get("d", "")
    assert svg.findtext(".//path[@class='edgeyard-cut']/title") == "goes on to 0"


def test_ratios_that_are_not_shown_to_differ_are_grey_and_said_to_be() -> None:
    base = measured(4.9, 5.1) | {"primary_degrees": 100.0, "target_uid": "base"}
    same = base | {"target_uid": "same", "primary_value": 5.01}
    slow = base | {
        "target_uid": "slow",
        "primary_value": 9.0,
        "primary_low": 8.9,
        "primary_high": 9.1,
    }
    other = base | {"target_uid": "other", "workload": {"batch_size": 2}}
    rows = relative_to([base, same, slow, other], base)
    drawn = baseline_figure(rows, rows[0])
    assert [point.name for point in drawn.points] == ["m · same", "m · slow"]
    assert [drawn.is_noise(point) for point in drawn.points] == [True, False]
    page = svg_figure(drawn)
    assert page.count("not shown to differ") == page.count('<g opacity="0.55">') == 1
    assert page.count('class="edgeyard-reference"') == 2
    assert drawn.scale.low < 1 < drawn.scale.high


def ended(day: int, **more: object) -> dict[str, object]:
    at = f"2026-11-{day:02}T08:00:00Z"
    return measured(4.0, 6.0) | {"ended_at": at, "runtime": "ort", "group": 1} | more


def test_a_history_marks_where_model_engine_and_kernel_changed_and_joins_no_invalid_number() -> (
    None
):
    works = [
        {"model_sha256": "a" * 64, "engine_version": "1.0"},
        {"model_sha256": "a" * 64, "engine_version": "1.0"},
        {"model_sha256": "b" * 64, "engine_version": "1.0"},
        {"model_sha256": "b" * 64, "engine_version": "1.1"},
    ]
    rows = [ended(day, workload=work) for day, work in enumerate(works, start=1)]
    rows[1]["verdict"] = "invalid"
    for row, kernel in zip(rows, ("6.1", None, "6.1", "6.6"), strict=True):
        row["kernel"] = kernel
    metric = metric_of_row(rows[0])
    assert metric is not None
    drawn = history_figure(rows, metric)
    assert [mark.text for mark in drawn.marks] == [
        "model bbbbbbbb",
        "ort version 1.1, kernel 6.6",
    ]
    page = svg_figure(drawn)
    assert page.count('class="edgeyard-change"') == 2
    assert "1 2026-11-03: model bbbbbbbb" in page
    line = drawing(page).find(".//path[@stroke-width='1.5']")
    assert line is not None
    assert line.get("d", "").count("L") == 2, "three of the four numbers are valid"
    assert "hollow: invalid, not joined" in page


def test_a_run_shows_its_warm_up_and_the_smallest_and_largest_of_many_numbers() -> None:
    drawn = run_figure("Run", AXIS, [9.0] * 20, [*([1.0] * 4999), 50.0])
    samples = drawn.series[0].samples
    assert len(samples) <= 162
    assert drawn.warm_up_until == 20.5
    assert samples[-1].ends == (1.0, 50.0)
    assert {sample.value for sample in samples if sample.x < 20.5} == {9.0}
    assert 'class="edgeyard-warm-up"' in svg_figure(drawn)
    assert 'class="edgeyard-warm-up"' not in svg_figure(run_figure("Run", AXIS, [], [1.0, 2.0]))


def test_a_run_with_few_slow_ones_is_logarithmic() -> None:
    measured = [0.007 if number % 400 else 10.0 for number in range(1600)]
    drawn = svg_figure(run_figure("A run", Axis(title="latency", unit="ms"), [], measured))
    assert "latency, ms, logarithmic" in drawn


@pytest.mark.parametrize("count", [1, 7, 160, 161, 20_000])
def test_a_distribution_states_shares_with_its_whole_tail(count: int) -> None:
    numbers = [float(each) for each in range(count, 0, -1)]
    drawn = distribution_figure("Latencies", AXIS, [("a", numbers)])
    samples = drawn.series[0].samples
    assert len(samples) <= 160
    assert (samples[0].x, samples[-1].x, samples[-1].value) == (1.0, count, 1.0)
    assert all(sample.value == pytest.approx(sample.x / count) for sample in samples)
    assert drawn.x_scale.logarithmic is (count > 20)


def test_no_colour_is_used_for_two_series_and_each_has_its_name() -> None:
    series = [
        Series(name=f"board-{n:02}", samples=[Sample(x=1.7e9 + n, value=n + 1.0)])
        for n in range(12)
    ]
    drawn = LineFigure(
        title="Boards", x_axis=Axis(title="end", unit="UTC"), axis=AXIS, series=series
    )
    page = svg_figure(drawn)
    names = ["".join(each.itertext()) for each in drawing(page).iter("text")]
    assert all(any(each.name in name for name in names) for each in series)
    for colour in set(COLOURS) - {"#000000"}:  # the line, the mark, the way to the name, its mark
        assert page.count(f'stroke="{colour}"') == 4


def test_wide_characters_count_twice_where_a_name_is_cut() -> None:
    page = svg_figure(figure(Point(name="板" * 40, value=1.0)))
    assert f"\u2068{'板' * 11}…{'板' * 11}\u2069" in page


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_a_plot_is_drawn_of_the_same_value(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    points = [
        Point(name=f"$板{n}$", value=10.0 ** (n - 3), low=0.0, high=10.0**n, verdict=verdict)
        for n, verdict in enumerate(("comparable", "suspect", "invalid"))
    ]
    plot_figure(figure(*points), tmp_path / f"values.{suffix}")
    plot_figure(run_figure("Run", AXIS, [3.0], [1.0, 2.0]), tmp_path / f"run.{suffix}")
    assert all((tmp_path / f"{name}.{suffix}").stat().st_size > 1000 for name in ("values", "run"))


def test_a_long_name_of_an_axis_is_whole_in_smaller_letters() -> None:
    axis = Axis(title="latency at the percentile that counts", unit="ms", direction="lower")
    long = svg_figure(IntervalFigure(title="Load", axis=axis, points=[Point(name="a", value=1.0)]))
    assert f'font-size="10">{axis.label}</text>' in long
    short = Axis(title="latency", unit="ms", direction="lower")
    drawn = svg_figure(IntervalFigure(title="Load", axis=short, points=[Point(name="a", value=1)]))
    assert f'text-anchor="middle">{short.label}</text>' in drawn


def test_texts_of_a_plot_neither_overlap_nor_leave_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path: drawn.append(self))
    axis = Axis(title="median latency of a token", unit="ms", direction="lower")
    line = LineFigure(
        title="Median latency of each 10 s",
        x_axis=Axis(title="since the begin", unit="s"),
        axis=axis,
        series=[Series(name="", samples=[Sample(x=x, value=0.1 + x) for x in (1.0, 20.0)])],
        marks=[Mark(x=0.0, text="steady from here on")],
    )
    points = [Alternative(name=f"threads={x}", x=x, values=[x], on_front=True) for x in (1, 9)]
    front = FrontFigure(title="Pareto front", x_axis=axis, axes=[axis], points=points)
    plot_figure([line, line], tmp_path / "lines.png")
    plot_figure(front, tmp_path / "front.png")
    for each in drawn:
        each.draw_without_rendering()
        sides = [side for axes in each.axes for side in (axes.xaxis, axes.yaxis)]
        ticks = [tick for side in sides for tick in side.get_major_ticks()]
        numbers = {id(label) for tick in ticks for label in (tick.label1, tick.label2)}
        texts = [text for text in each.findobj(Text) if id(text) not in numbers]
        boxes = [
            (text.get_text(), text.get_window_extent())
            for text in texts
            if isinstance(text, Text) and text.get_text()
        ]
        for text, box in boxes:
            assert 0 <= box.x0 < box.x1 <= each.bbox.width, text
            assert 0 <= box.y0 < box.y1 <= each.bbox.height, text
        for (text, box), (other, other_box) in combinations(boxes, 2):
            assert not box.overlaps(other_box), (text, other)


def test_the_same_change_of_several_boards_is_one_mark() -> None:
    rows = [
        ended(day, target_uid=board, kernel="6.1" if day < 20 else "6.6")
        for day in (1, 10, 20, 28)
        for board in ("a", "b")
    ]
    metric = metric_of_row(rows[0])
    assert metric is not None
    assert [mark.text for mark in history_figure(rows, metric).marks] == ["kernel 6.6 on a, b"]


def test_a_model_changes_within_its_series_which_names_the_figure() -> None:
    contents = {1: "a", 2: "b", 3: "a", 4: "b", 5: "c"}
    rows = [
        ended(day, target_uid="x", workload={"model_sha256": content * 64}, group=1 + day % 2)
        for day, content in contents.items()
    ]
    metric = metric_of_row(rows[0])
    assert metric is not None
    drawn = history_figure(rows, metric, "nightly")
    assert drawn.title.startswith("nightly on x")
    assert [mark.text for mark in drawn.marks] == ["model cccccccc"]


def test_numbers_of_marks_that_would_touch_stand_in_one_text() -> None:
    assert numbered([], 14) == []
    assert numbered([20, 20, 60, 70, 200], 14) == [("1, 2", 20), ("3, 4", 65), ("5", 200)]


def test_times_of_one_day_are_hours_below_a_figure_and_the_day_stands_beside_the_axis() -> None:
    rows = [ended(5), ended(5) | {"ended_at": "2026-11-05T09:30:00Z"}]
    metric = metric_of_row(rows[0])
    assert metric is not None
    page = svg_figure(history_figure(rows, metric))
    assert ">08:00</text>" in page
    assert ">09:30</text>" in page
    assert "end of the run, UTC, 2026-11-05" in page


def test_a_rate_whose_title_states_it_has_no_unit_beside_it() -> None:
    rate = Axis(title="tokens written per second", unit="1/s", direction="higher")
    assert rate.label == "tokens written per second (higher is better)"
