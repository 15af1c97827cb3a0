"""The page Compare: results next to a baseline, by model, board and engine."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import RedirectResponse, Response
from markupsafe import Markup

from edgeyard.benchmark_api.auth import BrowserUser, Caller
from edgeyard.benchmark_api.figures.axes import labels, number_text
from edgeyard.benchmark_api.figures.intervals import IntervalFigure
from edgeyard.benchmark_api.figures.results import axis_of, baseline_figure, front_figures
from edgeyard.benchmark_api.figures.svg import svg_document, svg_figure
from edgeyard.benchmark_api.pages.page import (
    capitalized,
    items_of_page,
    number,
    page,
    page_number,
    plain,
    size,
    type_text,
)
from edgeyard.benchmark_api.pages.spreadsheets import csv_of_records
from edgeyard.benchmark_api.routes import results
from edgeyard.benchmark_api.routes.context import Context, Ctx
from edgeyard.benchmark_api.routes.contract import PageRouter
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.answers import as_json
from edgeyard.benchmark_api.schemas.requests import MAX_COMPARED, ComparisonIn, parse
from edgeyard.benchmark_api.sdk.comparison import (
    WORKLOAD,
    board_name,
    frame_row,
    interval_of_row,
    metric_of_row,
    model_name,
    parameters_apart,
    why_no_ratio,
    workload_text,
)
from edgeyard.benchmark_api.sdk.fields import Record, moment, record, records, text
from edgeyard.benchmark_api.sdk.fronts import front_text, missing_fronts
from edgeyard.devices.metrics import HIGHER, standard_metrics
from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model.benchmark import BenchmarkType
from edgeyard.scheduler.model.workload import part_text, request_text, settings_of

router = PageRouter()

MAX_PLAIN = 20
"""Ids that an address names one by one; more are packed, since proxies take 8 kB."""
MAX_UNPACKED = 64 * 1024
PAGE = 25
"""Results that one page lists one by one; the overview has all."""
MAX_POINTS = 12
"""Ratios that the page draws, the largest differences; the file has all."""

_LABEL_COLUMNS = 34
"""Columns of a name in the overview."""

DIMENSIONS = {"board": "Board", "engine": "Engine", "model": "Model"}
"""What may be in the columns of the overview; the others are in its rows."""
MAX_COLUMNS = 20
"""Columns of the overview that fit a screen: if there are more boards, engines are preferred."""

ORDERS = {"name": "Name", "ratio": "Ratio, largest first", "ratio_up": "Ratio, smallest first"}
"""Orders in which results are listed."""

_LONG = frozenset({"request", *WORKLOAD})
"""Columns whose texts are broken in lines."""

_OWN_COLUMNS = ("model_sha256", "engine", "engine_version", "metric")
"""Parts of the workload that the table shows in columns of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonQuery:
    """What the address of a comparison states.

    Attributes:
        campaign_id: "" where there are ids.
        baseline: "": the first.
        only: Whether only what differs is shown.
        across: What of `DIMENSIONS` is in the columns of the overview; "": the first that fits.
        sort: One of `ORDERS`.
        number: Of the page of results, from 1 on.
    """

    ids: tuple[str, ...] = ()
    campaign_id: str = ""
    baseline: str = ""
    only: bool = False
    across: str = ""
    sort: str = "name"
    number: int = 1

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The parameters of its address."""
        few = len(self.ids) <= MAX_PLAIN
        named = [("benchmark_id", each) for each in self.ids] if few else [("ids", pack(self.ids))]
        return [
            *named,
            *([("campaign_id", self.campaign_id)] if self.campaign_id else []),
            *([("baseline", self.baseline)] if self.baseline else []),
            *([("only", "1")] if self.only else []),
            *([("across", self.across)] if self.across else []),
            *([("sort", self.sort)] if self.sort != "name" else []),
            *([("page", str(self.number))] if self.number > 1 else []),
        ]

    def without(self, *names: str) -> list[tuple[str, str]]:
        """Return the parameters that a form sends along with a choice of the others."""
        return [pair for pair in self.pairs if pair[0] not in names]

    def address(self, path: str = "/ui/compare", **changes: object) -> str:
        """Return the address of it with changes."""
        changed: ComparisonQuery = replace(self, **changes)  # type: ignore[arg-type]
        return f"{path}?{urlencode(changed.pairs)}"


def pack(ids: Sequence[str]) -> str:
    """Return ids as one short word of letters, digits, ``-`` and ``_``."""
    return base64.urlsafe_b64encode(zlib.compress("\n".join(ids).encode(), 9)).decode().rstrip("=")


def unpack(word: str) -> list[str]:
    """Return the ids of a word of `pack`.

    Raises:
        InvalidInput: `pack` did not return this word.
    """
    try:
        data = base64.b64decode(word + "=" * (-len(word) % 4), b"-_", validate=True)
        decompressor = zlib.decompressobj()
        found = decompressor.decompress(data, MAX_UNPACKED).decode()
    except (binascii.Error, zlib.error, ValueError):
        found = ""
    if not found or not decompressor.eof:
        raise InvalidInput.at("/ids", "is no list of benchmarks: the link is not whole")
    return found.split("\n")


def comparison_query(request: Request) -> ComparisonQuery:
    """Return what an address states.

    Raises:
        InvalidInput: Its packed ids are not whole.
    """
    params = request.query_params
    packed = [each for word in params.getlist("ids") if word for each in unpack(word)]
    named = [each.strip() for each in params.getlist("benchmark_id") if each.strip()]
    sort = params.get("sort", "")
    across, ids = params.get("across", ""), tuple(dict.fromkeys([*packed, *named]))
    return ComparisonQuery(
        ids=ids,
        campaign_id="" if ids else params.get("campaign_id", "").strip(),
        baseline=params.get("baseline", "").strip(),
        only=bool(params.get("only")),
        across=across if across in DIMENSIONS else "",
        sort=sort if sort in ORDERS else "name",
        number=page_number(params.get("page", "")),
    )


@router.get("/ui/compare")
def compare(request: Request, caller: BrowserUser, context: Ctx) -> Response:
    """Up to 500 results next to one of them."""
    query, wrong, found = ComparisonQuery(), "", None
    try:
        query = comparison_query(request)
        given = urlencode(list(request.query_params.multi_items()))
        if given != urlencode(query.pairs):
            return RedirectResponse(query.address(), 303)  # what forms send besides is left out
        if query.ids or query.campaign_id:
            found = _found(query, caller, context)
    except InvalidInput as error:
        wrong = str(error)
    return page(
        request,
        "compare",
        caller,
        status=422 if wrong else 200,
        query=query,
        wrong=wrong,
        link=context.services.public_url + query.address(),
        dimensions=DIMENSIONS,
        long_columns=_LONG,
        orders=ORDERS,
        max_compared=MAX_COMPARED,
        **({"shown": None} if found is None else _shown(found, query)),
    )


@router.get("/ui/compare.csv")
def compare_csv(request: Request, caller: BrowserUser, context: Ctx) -> Response:
    """The whole comparison as a table for spreadsheets."""
    rows = [
        {
            **frame_row(row),
            "differs": "; ".join(WORKLOAD[name] for name in row["differs"]),
        }
        for row in _rows(_found(comparison_query(request), caller, context))
    ]
    return csv_of_records("comparison.csv", rows)


@router.get("/ui/compare.svg")
def compare_svg(request: Request, caller: BrowserUser, context: Ctx) -> Response:
    """The ratios to the baseline as a drawing."""
    found = _found(comparison_query(request), caller, context)
    return svg_file("comparison.svg", _figure(found, _rows(found)))


def svg_file(name: str, figure: Any) -> Response:
    """Return a drawing to be saved."""
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "Cache-Control": "no-store",
    }
    return Response(svg_document(figure), media_type="image/svg+xml", headers=headers)


def _found(query: ComparisonQuery, caller: Caller, context: Context) -> shapes.ResultComparison:
    body: dict[str, object] = {"benchmark_ids": list(query.ids)}
    if query.campaign_id:
        body["campaign_id"] = query.campaign_id
    if query.baseline:
        body["baseline"] = query.baseline
    return results.compared(parse(ComparisonIn, body), caller, context).content


def _rows(found: shapes.ResultComparison) -> list[dict[str, Any]]:
    return [as_json(each) for each in found.items]


def _baseline(found: shapes.ResultComparison, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return next(row for row in rows if row["benchmark_id"] == found.baseline)


def _figure(
    found: shapes.ResultComparison, rows: Sequence[dict[str, Any]], points: int | None = None
) -> IntervalFigure:
    """Return the ratios, or the largest differences among them in their order."""
    figure = baseline_figure(rows, _baseline(found, rows))
    if points is None or len(figure.points) <= points:
        return figure
    largest = sorted(figure.points, key=lambda each: -max(each.value, 1 / each.value))[:points]
    return replace(figure, points=[each for each in figure.points if each in largest])


def _shown(found: shapes.ResultComparison, query: ComparisonQuery) -> dict[str, Any]:
    """Return what the page shows of a comparison."""
    rows = _rows(found)
    baseline = _baseline(found, rows)
    figure = _figure(found, rows, MAX_POINTS)
    listed = [
        row
        for row in rows
        if not query.only or row is baseline or row["shown_to_differ"] or row["ratio"] is None
    ]
    listed.sort(key=lambda row: _sort_key(row, query.sort))
    several = len(rows) > 2
    parameters = parameters_apart(rows, requests=False)
    lines = {
        row["benchmark_id"]: replace(Line.of(row, baseline), parameters=own)
        for row, own in zip(rows, parameters, strict=True)
    }
    metrics = {metric for row in rows if (metric := metric_of_row(row)) is not None}
    table = overview(rows, lines, query.across) if several else None
    on_page, last = items_of_page(listed, query.number, PAGE)
    return {
        "shown": found,
        "packed": pack(query.ids or [row["benchmark_id"] for row in rows]),
        "baseline": lines[found.baseline],
        "second": next((line for name, line in lines.items() if name != found.baseline), None),
        "other": next((row["benchmark_id"] for row in rows if row is not baseline), ""),
        "left_out": len(rows) - len(listed),
        "facts": [] if several else facts(baseline, rows, only=query.only),
        "lines": [lines[row["benchmark_id"]] for row in on_page] if several else [],
        "listed": len(listed),
        "last": last,
        "metric": capitalized(axis_of(*metrics).title) if len(metrics) == 1 else "",
        "columns": columns(rows, found.differences, only=query.only) if several else [],
        "overview": table,
        "common": [] if query.only or not several else _common(rows),
        "figure": Markup(svg_figure(figure)) if figure.points else "",  # escaped there
        "fronts": [Markup(svg_figure(each)) for each in front_figures(rows)],  # escaped there
        "without_front": missing_fronts(rows),
        "points": len(figure.points),
        "ratios": sum(row["ratio"] is not None for row in rows) - 1,
    }


def _common(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return the parts of the workload that all rows have in common, with their names."""
    found = []
    if shared := _shared_parameters(rows):
        found.append((_heading("parameters"), shared))
    for name in (*_REQUEST, *(name for name in WORKLOAD if name != "parameters")):
        texts = {_work_text(row, name) for row in rows}
        if name != "metric" and len(texts) == 1 and texts != {""}:
            found.append((_heading(name), texts.pop()))
    return found


def _shared_parameters(rows: Sequence[Mapping[str, Any]]) -> str:
    first, *others = (settings_of(row["workload"]) for row in rows)
    shared = (
        f"{name}={value}"
        for name, value in first.items()
        if all(each.get(name) == value for each in others)
    )
    return ", ".join(shared)


def _sort_key(row: Mapping[str, Any], sort: str) -> tuple[object, ...]:
    """Return what orders the list; results without a ratio are last."""
    name = model_name(row), board_name(row), text(row, "runtime") or ""
    ratio = row["ratio"]
    if sort == "name":
        return name
    return (ratio is None, (-ratio if sort == "ratio" else ratio) if ratio else 0.0, *name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A result as the page shows it.

    Attributes:
        title: Of its metric.
        judged: "better" or "worse" than the baseline, "noise" where it is not shown to differ, and
            "" for the baseline and without a ratio.
        why_no_ratio: In words; "": it has one.
        parameters: Those in which the results differ.
    """

    row: Mapping[str, Any]
    benchmark_id: str
    ended_at: datetime | None
    model: str
    board: str
    engine: str
    version: str
    title: str
    value: str
    interval: str
    ratio: str
    ratio_interval: str
    judged: str
    why_no_ratio: str
    verdict: str
    parameters: str = ""

    @classmethod
    def of(cls, row: Mapping[str, Any], baseline: Mapping[str, Any] | None = None) -> Line:
        """Return the line of a row of a comparison or a history.

        Args:
            row: A row of results.
            baseline: That of a comparison; None: of a history.
        """
        low, high = interval_of_row(row)
        metric = metric_of_row(row)
        unit = metric.unit if metric is not None else ""
        value = row["primary_value"]
        return cls(
            row=row,
            benchmark_id=row["benchmark_id"],
            ended_at=moment(row, "ended_at"),
            model=row["model"],
            board=board_name(row),
            engine=row["runtime"],
            version=row["workload"].get("engine_version") or "",
            title="" if metric is None else axis_of(metric).title,
            value="" if value is None else f"{number_text(value)} {unit}".strip(),
            interval="" if low is None or high is None else _range(low, high),
            ratio="" if row["ratio"] is None else f"{row['ratio']:.2f}×",
            ratio_interval=""
            if row["ratio_low"] is None or row["ratio_high"] is None
            else _range(row["ratio_low"], row["ratio_high"]),
            judged=judged(row),
            why_no_ratio="" if baseline is None else why_no_ratio(row, baseline),
            verdict=_verdict(row),
        )

    @property
    def measured(self) -> str:
        """The value with its interval."""
        return f"{self.value} ({self.interval})" if self.interval else self.value

    @property
    def compared(self) -> str:
        """The ratio to the baseline with its interval, and what it means."""
        if self.why_no_ratio:
            return f"none: {self.why_no_ratio}"
        word = "not shown to differ" if self.judged == "noise" else self.judged
        ratio = f"{self.ratio} ({self.ratio_interval})" if self.ratio_interval else self.ratio
        return ", ".join(filter(None, (ratio, word)))

    def text(self, name: str) -> str:
        """Return the text of a further column."""
        if name == "parameters":
            return self.parameters
        return _COLUMNS[name][1](self.row) if name in _COLUMNS else _work_text(self.row, name)


def judged(row: Mapping[str, Any]) -> str:
    """Return how a row compares with what its ratio is to, as a word; see `Line`."""
    ratio = row["ratio"]
    if ratio is None or (ratio == 1 and row["ratio_low"] is None):
        return ""
    if not row["shown_to_differ"]:
        return "noise"
    return "better" if (ratio > 1) == (row["primary_better"] == HIGHER) else "worse"


def _range(low: float, high: float) -> str:
    return f"{number_text(low)} to {number_text(high)}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f} %"


def _verdict(row: Record) -> str:
    return text(row, "verdict") or text(row, "status") or ""


_REQUEST = ("request",)
"""A part of the workload that `WORKLOAD` has among the parameters: what a language model is asked,
however that was stated."""


def _work_text(row: Record, name: str) -> str:
    """Return a part of the workload, in words."""
    work = record(row, "workload")
    if name in _REQUEST:
        return request_text(work)
    if name == "benchmark_type":
        return type_text(text(work, name) or "")
    if name == "parameters":
        work = {name: settings_of(work)}
    return part_text(work, name)


def _heading(name: str) -> str:
    return capitalized(WORKLOAD.get(name, name))


_COLUMNS: dict[str, Any] = {
    "p90_ms": ("90th percentile", lambda row: _known(row["p90_ms"], "ms")),
    "p99_ms": ("99th percentile", lambda row: _known(row["p99_ms"], "ms")),
    "mean_ms": ("Mean", lambda row: _known(row["mean_ms"], "ms")),
    "runs_per_s": ("Inferences a second", lambda row: _known(row["runs_per_s"])),
    "load_cold_ms": ("Load, cold", lambda row: _known(row["load_cold_ms"], "ms")),
    "first_inference_ms": ("First inference", lambda row: _known(row["first_inference_ms"], "ms")),
    "ram_peak_bytes": ("Memory, peak", lambda row: _size(row["ram_peak_bytes"])),
    "ram_model_bytes": ("Memory of the model", lambda row: _size(row["ram_model_bytes"])),
    "energy_j": ("Energy of an inference", lambda row: _known(row["energy_j"], "J")),
    "energy_above_idle_j": (
        "Energy above idle",
        lambda row: _known(row["energy_above_idle_j"], "J"),
    ),
    "power_w": ("Power", lambda row: _known(row["power_w"], "W")),
    "accuracy": ("Accuracy", lambda row: _share(row["accuracy"])),
    "top5": ("Top 5", lambda row: _share(row["top5"])),
    "final_loss": ("Final loss", lambda row: _known(row["final_loss"])),
    "firmware": ("Firmware", lambda row: row["firmware"] or ""),
    "kernel": ("Kernel", lambda row: row["kernel"] or ""),
    "on_front": ("On the front", front_text),
    "verdict": ("Verdict", _verdict),
}
"""Columns besides the workload: heading, and the text of a row."""

_IN_TABLE = ("on_front", "p90_ms", "ram_peak_bytes", "energy_j", "accuracy", "verdict")


def _known(value: float | None, unit: str = "") -> str:
    return "" if value is None else number(value, unit)


def _size(value: float | None) -> str:
    return "" if value is None else size(value)


def columns(
    rows: Sequence[Mapping[str, Any]], differing: Sequence[str], *, only: bool
) -> list[tuple[str, str]]:
    """Return the further columns of the table, name and heading: what differs, and what counts."""
    own = [*_REQUEST, *(name for name in differing if name not in _OWN_COLUMNS)]
    if "inputs" in own and not _are_varied(rows, "inputs"):
        own.remove("inputs")
    found = [
        (name, _heading(name)) for name in own if len({_work_text(row, name) for row in rows}) > 1
    ]
    latencies = _latency_headings(rows)
    for name in _IN_TABLE:
        heading, of = _COLUMNS[name]
        texts = {of(row) for row in rows}
        if texts != {""} and texts != {"comparable"} and not (only and len(texts) == 1):
            found.append((name, latencies.get(name, heading)))
    return found


def _latency_headings(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the headings of latencies that are all of a token, or of a request, by column."""
    kinds = {(row["workload"].get("benchmark_type"), row["primary_metric"]) for row in rows}
    if len(kinds) != 1 or {kind for kind, _ in kinds} != {BenchmarkType.GENAI.value}:
        return {}
    metrics = standard_metrics(*kinds.pop())
    return {f"{each.metric.name}_ms": capitalized(each.metric.title) for each in metrics}


def _are_varied(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    """Return whether a part of the workload differs between runs of one model's content."""
    found: dict[str, set[str]] = {}
    for row in rows:
        found.setdefault(workload_text(row, "model_sha256"), set()).add(workload_text(row, name))
    return any(len(each) > 1 for each in found.values())


def facts(
    baseline: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], *, only: bool
) -> list[tuple[str, list[str]]]:
    """Return the facts of one or two results by name, those of the baseline first."""
    ordered = [baseline, *(row for row in rows if row is not baseline)]
    lines = [Line.of(row, baseline) for row in ordered]
    latencies = _latency_headings(ordered)
    metrics = [metric_of_row(row) for row in ordered]
    titles = ["" if each is None else axis_of(each).title for each in metrics]
    same = len(set(titles) - {""}) == 1
    found = [
        ("Model", [each.model for each in lines]),
        ("Board", [each.board for each in lines]),
        ("Measured", ["" if same else capitalized(each) for each in titles]),
        (
            capitalized(max(titles)) if same else "Number",
            [each.measured for each in lines],
        ),
        ("Ratio to A", ["", *(each.compared for each in lines[1:])]),
        *(
            (_heading(name), [_work_text(row, name) for row in ordered])
            for name in (*_REQUEST, *WORKLOAD)
            if name != "metric"
        ),
        *(
            (latencies.get(name, heading), [of(row) for row in ordered])
            for name, (heading, of) in _COLUMNS.items()
        ),
        ("Why this verdict", [_reasons(row) for row in ordered]),
    ]
    return [
        (name, texts)
        for name, texts in found
        if any(texts) and not (only and len(set(texts)) == 1 and len(texts) > 1)
    ]


def _reasons(row: Record) -> str:
    return " ".join(text(each, "sentence") or "" for each in records(row, "reasons"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A table of ratios: one dimension in its columns, the other two in its rows.

    Attributes:
        across: What is in its columns, of `DIMENSIONS`.
        rows: Labels of the row in both dimensions, and for each column a line, None where there is
            no result, and the number of results that it stands for: the newest of those that have
            a ratio, otherwise of all.
    """

    across: str
    headings: tuple[str, str]
    columns: list[str]
    rows: list[tuple[tuple[str, str], list[tuple[Line | None, int]]]]


def overview(
    rows: Sequence[Mapping[str, Any]], lines: Mapping[str, Line], across: str
) -> Overview | None:
    """Return the overview, or None where all would be in one row or one column."""
    of: Mapping[str, Callable[[Record], str]] = {
        "model": model_name,
        "board": board_name,
        "engine": lambda row: text(row, "runtime") or "",
    }
    if not across:
        counts = {name: len({of[name](row) for row in rows}) for name in DIMENSIONS}
        fitting = (name for name in DIMENSIONS if 1 < counts[name] <= MAX_COLUMNS)
        across = next(fitting, "board")
    down = [name for name in ("model", "engine", "board") if name != across]
    cells: dict[tuple[str, str], dict[str, list[Mapping[str, Any]]]] = {}
    for row in rows:
        where = (of[down[0]](row), of[down[1]](row))
        cells.setdefault(where, {}).setdefault(of[across](row), []).append(row)
    names = sorted({name for each in cells.values() for name in each})
    if len(names) < 2 or len(cells) < 2:
        return None

    label_of = {
        name: plain(label, _LABEL_COLUMNS)
        for every in (names, *({where[part] for where in cells} for part in (0, 1)))
        for name, label in zip(every, labels(list(every), _LABEL_COLUMNS), strict=True)
    }

    def cell(there: Sequence[Mapping[str, Any]]) -> tuple[Line | None, int]:
        if not there:
            return None, 0
        there = [row for row in there if row["ratio"] is not None] or there
        newest = max(there, key=lambda row: str(row["ended_at"]))
        return lines[newest["benchmark_id"]], len(there)

    return Overview(
        across=across,
        headings=(DIMENSIONS[down[0]], DIMENSIONS[down[1]]),
        columns=[label_of[name] for name in names],
        rows=[
            (
                (label_of[where[0]], label_of[where[1]]),
                [cell(cells[where].get(name, [])) for name in names],
            )
            for where in sorted(cells)
        ],
    )
