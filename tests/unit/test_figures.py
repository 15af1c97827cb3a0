"""What a figure shows of values, intervals, verdicts and hostile names."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from edgeyard.benchmark_api.cli.report import report_page
from edgeyard.benchmark_api.figures.intervals import Axis, IntervalFigure, Point, share
from edgeyard.benchmark_api.figures.svg import svg_figure

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
    path = drawing(report_page([measured(0.0, 10.0)], "")).find("path[@class='interval']")
    assert path is not None
    assert path.get("d", "").startswith("M8.0 ")  # the left end of the axis


def test_figure_and_table_of_a_report_show_the_interval_between_runs() -> None:
    again = {"primary_repeat_low": 3.0, "primary_repeat_high": 8.0}
    page = report_page([{**measured(4.9, 5.1), **again}], "")
    assert page.count("3 to 8") == 2
    assert "4.9" not in page


@pytest.mark.parametrize(("largest", "logarithmic"), [(20.0, False), (20.1, True)])
def test_an_axis_is_logarithmic_above_a_factor_of_twenty(largest: float, logarithmic: bool) -> None:
    drawn = figure(Point(name="a", value=1.0, low=0.0, high=2.0), Point(name="b", value=largest))
    assert drawn.logarithmic is logarithmic
    assert ("logarithmic" in svg_figure(drawn)) is logarithmic


def test_a_small_value_beside_a_large_one_is_off_the_edge() -> None:
    drawn = figure(Point(name="a", value=0.027), Point(name="b", value=57.0))
    assert 0.05 < share(drawn, 0.027) < share(drawn, 57.0) < 1.0


def test_verdicts_differ_by_shape_and_words() -> None:
    verdicts = ("comparable", "suspect", "invalid")
    page = svg_figure(figure(*(Point(name=v, value=1.0, verdict=v) for v in verdicts)))
    fills = [each.get("fill") for each in drawing(page).findall("circle")]
    assert fills == ["currentColor", "none", "none"]
    assert page.count("a4 4 0 0 0 0 8z") == 1  # half of the suspect one
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
    text = drawing(page).findall("text")[0]
    assert len("".join(text.itertext())) < 1_100
    assert "<script" not in page
    assert "\u202e" not in page
    assert "\u2068" in page
