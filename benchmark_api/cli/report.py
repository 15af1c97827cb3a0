"""``results --html``: a comparison as one page, with nothing to load from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape

from edgeyard import __version__
from edgeyard.benchmark_api.cli.output import (
    Row,
    accuracy,
    interval_text,
    local_time,
    marked,
    not_shown_to_differ,
    p90_of_latency,
    plain,
    primary_text,
    ratio_text,
    reasons_of,
    size,
    three_digits,
    timed_together,
)
from edgeyard.benchmark_api.cli.work import column_text, named_text
from edgeyard.benchmark_api.figures.loads import load_figures, load_rows, load_sentence_of
from edgeyard.benchmark_api.figures.results import comparison_figures, front_figures
from edgeyard.benchmark_api.figures.svg import FIGURE_STYLE, svg_figure
from edgeyard.benchmark_api.printing import printable
from edgeyard.benchmark_api.schemas.answers import Results
from edgeyard.benchmark_api.sdk.comparison import (
    WORKLOAD,
    differences,
    has_interval_of_repetition,
    interval_of_row,
    shared_metric,
    workload_text,
)
from edgeyard.benchmark_api.sdk.fields import record, text
from edgeyard.benchmark_api.sdk.fronts import front_text, fronts_of, missing_fronts
from edgeyard.devices.metrics import measured_metrics

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem;
color-scheme:light dark}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.3rem .7rem;
border-bottom:1px solid #8884;vertical-align:top}td.n,th.n{text-align:right;
font-variant-numeric:tabular-nums}td.dim{opacity:.5}.suspect{color:#b36b00}.invalid{color:#b00020}
.wide{overflow-x:auto}.wide td{white-space:nowrap}
.note{opacity:.75}
"""


def report_page(rows: Sequence[Row], title: str, details: Sequence[Results] = ()) -> str:
    """Return rows of `compare` as a page.

    Args:
        rows: Compared results.
        title: Campaign or tag that they belong to; "": none.
        details: Those of them of which the page has all numbers, and what their loads showed.
    """
    heading = f"Benchmarks of {title}" if title else "Benchmarks"
    count = "1 benchmark" if len(rows) == 1 else f"{len(rows)} benchmarks"
    page = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width'>",
        f"<title>{_text(heading)}</title><style>{_STYLE}{FIGURE_STYLE}</style><h1>{_text(heading)}</h1>",
        f"<p class=note>{count} · written {_text(local_time(datetime.now(UTC)))} "
        f"by Edgeyard {_text(__version__)}</p>",
        *_common(rows),
        *_chart(rows),
        *_table(rows),
        *_loads(details),
        *_numbers(details),
        *_remarks(rows),
        "</html>\n",
    ]
    return "\n".join(page)


def _text(value: object) -> str:
    return escape(printable(plain(value)))


def _common(rows: Sequence[Row]) -> list[str]:
    """Return what all rows have in common."""
    differing = differences(rows)
    same = [
        named_text(name, part)
        for name in WORKLOAD
        if rows and name not in differing and (part := workload_text(rows[0], name))
    ]
    shown = " · ".join(same)
    return [f"<p>All: {_text(shown)}</p>"] if shown and len(rows) > 1 else []


def _chart(rows: Sequence[Row]) -> list[str]:
    """Return a figure of each primary metric, with the table's intervals, and of each sweep."""
    measured = map(svg_figure, comparison_figures(rows, accuracy))
    return [*measured, *map(svg_figure, front_figures(rows))]


def _board(row: Row) -> object:
    return row.get("target_uid") or row.get("target")


def _table(rows: Sequence[Row]) -> list[str]:
    differing = differences(rows)
    names = [WORKLOAD[name] for name in differing]
    heads = ["Model", "Board", *(name.capitalize() for name in names)]
    metric = shared_metric(rows)
    named = metric.label if metric is not None else "Result"
    number_of = marked("primary_value") if metric is not None else primary_text
    repeated = any(map(has_interval_of_repetition, rows))
    optional: dict[str, Callable[[Row], str]] = {
        "p90, ms": p90_of_latency,
        "Ratio (95 %)": ratio_text,
        "Accuracy": accuracy,
        "Memory": lambda row: size(row.get("ram_peak_bytes")),
    }
    known = {name: of for name, of in optional.items() if any(map(of, rows))}
    numbers = [named, "95 %, repeated" if repeated else "95 %", *known]
    swept = any(row.get("on_front") is not None for row in rows)
    lines = [
        "<h2>Results</h2><div class=wide><table><tr><th class=n>Group<th>Verdict"
        + "".join(f"<th>{_text(each)}" for each in heads)
        + "".join(f"<th class=n>{_text(each)}" for each in numbers)
        + ("<th>Front" if swept else "")
        + "<th>Benchmark"
    ]
    for row in rows:
        interval = interval_text(*interval_of_row(row), row.get("primary_degrees"))
        texts = [row.get("model"), _board(row), *(column_text(row, name) for name in differing)]
        verdict = plain(row.get("verdict") or row.get("status"))
        cells = [f"<td class=n>{_text(row.get('group'))}"]
        cells.append(f"<td class='{escape(verdict)}'>{_text(verdict)}")
        cells += [f"<td>{_text(each)}" for each in texts]
        cells += [f"<td class=n>{_text(each)}" for each in (number_of(row), interval)]
        for of in known.values():
            shade = f" {not_shown_to_differ(row)}" if of is ratio_text else ""
            cells.append(f"<td class='n{shade}'>{_text(of(row))}")
        if swept:
            cells.append(f"<td>{front_text(row)}")
        cells.append(f"<td>{_text(row.get('benchmark_id'))}")
        lines.append("<tr>" + "".join(cells))
    lines.append("</table></div>")
    return lines


def _loads(details: Sequence[Results]) -> list[str]:
    """Return a section for each load: what it showed, its figures, and a table of its parts."""
    lines = []
    for each in details:
        rows = load_rows(each)
        if not rows:
            continue
        lines.append(f"<h2>Load of {_text(_name(each))}</h2>")
        lines.append(f"<p>{_text(load_sentence_of(each))}</p>")
        lines += map(svg_figure, load_figures(each))
        known = [name for name in rows[0] if any(row[name] is not None for row in rows)]
        heads = "".join(f"<th class=n>{_text(_heading(name))}" for name in known)
        lines.append(f"<div class=wide><table><tr>{heads}")
        for row in rows:
            cells = "".join(f"<td class=n>{_text(_number(row[name]))}" for name in known)
            lines.append(f"<tr>{cells}")
        lines.append("</table></div>")
    return lines


def _name(result: Results) -> str:
    model = "" if result.summary is None else f"{result.summary.model} · "
    return f"{model}{result.benchmark_id}"


def _numbers(details: Sequence[Results]) -> list[str]:
    """Return a section for each result with all its numbers, the primary one first."""
    lines = []
    for each in details:
        found = measured_metrics(each.newest_report)
        if not found:
            continue
        lines.append(f"<h2>Numbers of {_text(_name(each))}</h2>")
        lines.append(
            "<div class=wide><table><tr><th>Number<th class=n>Value<th>Unit"
            "<th class=n>95 %, of this run<th>Better"
        )
        for one in found:
            interval = interval_text(one.low, one.high, one.degrees)
            lines.append(
                f"<tr><td>{_text(one.metric.title or one.metric.name)}"
                f"<td class=n>{_text(three_digits(one.value))}<td>{_text(one.metric.unit)}"
                f"<td class=n>{_text(interval)}<td>{_text(one.metric.better)}"
            )
        lines.append("</table></div>")
    return lines


_UNITS = {"s": "s", "ms": "ms", "j": "J", "c": "°C", "mhz": "MHz"}


def _heading(name: str) -> str:
    """Return the name of a field of a window, level or trial, its unit last, for people."""
    words = name.split("_")[1:]
    if words[:3] == ["runs", "per", "s"]:
        return f"{' '.join(['throughput', *words[3:]])}, 1/s"
    if len(words) > 1 and words[-1] in _UNITS:
        return f"{' '.join(words[:-1])}, {_UNITS[words[-1]]}"
    return " ".join(words)


def _number(value: object) -> object:
    return three_digits(value) if isinstance(value, float) else value


def _remarks(rows: Sequence[Row]) -> list[str]:
    lines = [
        f"<li>{_text(row.get('model'))} on {_text(_board(row))} is {_text(row.get('verdict'))}: "
        f"{_text(reasons_of(row))}"
        for row in rows
        if reasons_of(row)
    ]
    lines += [
        f"<li>{_text(row.get('model'))} on {_text(_board(row))} was timed {_text(timed)}."
        for row in rows
        if (timed := timed_together(row))
    ]
    if len({plain(row.get("group")) for row in rows}) > 1:
        lines.insert(0, "<li>Ratios are relative to the best of each group of equal work.")
    between = dict.fromkeys(
        f"{plain(row.get('model'))} on {plain(_board(row))}, repeated, {sentence}."
        for row in rows
        if has_interval_of_repetition(row)
        and (sentence := text(record(row, "between_runs"), "sentence"))
    )
    lines += [f"<li>The interval of {_text(each)}" for each in between]
    lines += [f"<li>On the front: {_text(each.sentence)}." for each in fronts_of(rows)]
    lines += [f"<li>{_text(each)}." for each in missing_fronts(rows)]
    return ["<h2>Remarks</h2><ul>", *lines, "</ul>"] if lines else []
