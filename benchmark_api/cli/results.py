"""``results``: one benchmark's numbers, or a comparison of several, with a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeyard.benchmark_api.cli.output import (
    THROUGHPUT_COLUMNS,
    Column,
    Row,
    accuracy,
    console,
    digits_field,
    emit_csv,
    emit_json,
    field,
    interval_text,
    is_data_doubted,
    local_time,
    marked,
    not_shown_to_differ,
    note,
    p90_of_latency,
    plain,
    primary_column,
    ratio_text,
    reasons_of,
    show,
    size,
    table,
    three_digits,
    timed_together,
)
from edgeyard.benchmark_api.cli.output_files import (
    check_matplotlib,
    check_output,
    check_plot,
    make_folder,
    write_output,
)
from edgeyard.benchmark_api.cli.program import Output, Session, verb
from edgeyard.benchmark_api.cli.watching import Campaign, Ids, Tag, chosen_ids
from edgeyard.benchmark_api.cli.work import GROUP, shared_work, work_columns
from edgeyard.benchmark_api.printing import printable
from edgeyard.benchmark_api.schemas.answers import as_json
from edgeyard.devices.metrics import (
    LOAD_RATE,
    P50,
    RUNS_PER_S,
    MeasuredMetric,
    Metric,
    known_ends,
)
from edgeyard.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import RenderableType

    from edgeyard.benchmark_api.schemas import answers as shapes
    from edgeyard.benchmark_api.sdk import Benchmark, Results
    from edgeyard.benchmark_api.sdk.results import DeclaredValue

Plot = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Draw the comparison: .png, .svg or .pdf.")
]
Html = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the comparison as one self-contained page: .html."),
]
_PAGE = "--html, which has a picture of each"
MAX_EPOCHS = 12
"""Maximum number of epochs whose losses are all shown; of more only the first and the last are."""


def results(
    session: Session,
    benchmark_ids: Ids = None,
    campaign: Campaign = None,
    tag: Tag = None,
    benchmark_type: Annotated[
        str | None, typer.Option("--type", help="Compare only those of this type, e.g. TYPE1.")
    ] = None,
    plot: Plot = None,
    html: Html = None,
    download: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Download the uploaded files into this folder."),
    ] = None,
) -> None:
    """Show what was measured.

    Each result has a verdict on its numbers: comparable, suspect or invalid. Several ids, or a
    campaign, give a comparison of the primary metric: the p50, or what the engine declares. Its
    ratios are relative to the best benchmark that did the same work (content of the model, inputs,
    engine and version, parameters, type, metric) and have a 95 % interval; a ratio is dim if its
    interval contains 1. Of a sweep of parameters, FRONT marks the results that no other one beats
    in every respect, and --plot draws them. Results over time: `edgeyard series show`.
    """
    if plot is not None:
        check_plot(plot)
    if html is not None and html.suffix.lower() not in (".html", ".htm"):
        raise InvalidInput.at("--html", f"can't write {html.name!r}", "a file that ends in .html")
    if html is not None:
        check_output(html, "--html")
    from edgeyard.benchmark_api.sdk.comparison import compare
    from edgeyard.benchmark_api.sdk.fronts import with_fronts

    chosen = chosen_ids(session, benchmark_ids, campaign, tag)
    if not chosen:
        raise InvalidInput.at("ID", "no results to show", "ids, --campaign ID or --tag TAG")
    if download is not None:
        _download(session, chosen, download)
    if len(chosen) == 1 and plot is None and html is None and benchmark_type is None:
        _show_one(session, session.client.results(chosen[0]))
        return
    rows = with_fronts(
        [
            row
            for row in compare([as_json(row) for row in session.client.result_rows(chosen)])
            if benchmark_type in (None, row.get("benchmark_type"))
        ]
    )
    if html is not None:
        _write_page(session, html, rows, campaign or tag or "")
    if plot is not None and len(chosen) == 1 and _plot_load(session, chosen[0], plot):
        return
    if plot is not None:
        _one_axis(rows)
    if session.output is Output.JSON:
        emit_json(rows)
    elif session.output is Output.CSV:
        from edgeyard.benchmark_api.sdk.comparison import frame_row

        emit_csv([frame_row(row) for row in rows])
    else:
        show(*_comparison(rows), *_without_result(session, rows))
    if plot is not None:
        from edgeyard.benchmark_api.cli.output import accuracy
        from edgeyard.benchmark_api.figures.plots import plot_figure
        from edgeyard.benchmark_api.figures.results import comparison_figures, front_figures

        fronts = front_figures(rows)
        if len(fronts) > 1:
            session.report(f"drew the first of {len(fronts)} sweeps; --html FILE draws all")
        figures = fronts or comparison_figures(rows, accuracy)
        if not figures:
            raise InvalidInput.at("--plot", "nothing to draw: nothing was measured")
        check_matplotlib()
        plot_figure(figures[0], plot)
        session.report(f"wrote {plot}")


def _write_page(session: Session, html: Path, rows: Sequence[Row], title: str) -> None:
    """Write the rows as a page, with all numbers of those that a p50 does not sum up."""
    from edgeyard.benchmark_api.cli.report import report_page
    from edgeyard.benchmark_api.sdk.comparison import workload_text

    details = [
        session.client.results(plain(row.get("benchmark_id"))).answer
        for row in rows
        if len(rows) == 1
        or workload_text(row, "load")
        or row.get("primary_metric") not in (None, P50.name)
    ]
    write_output(html, "--html", report_page(rows, title, details))
    session.report(f"wrote {html}")


def _plot_load(session: Session, benchmark_id: str, plot: Path) -> bool:
    """Show and draw a soak, several callers, or a load by LoadGen's rules; False: it is none."""
    found = session.client.results(benchmark_id)
    from edgeyard.benchmark_api.figures.loads import load_figures
    from edgeyard.benchmark_api.figures.plots import plot_figure

    figures = load_figures(found.answer)
    if not figures:
        return False
    check_matplotlib()
    _show_one(session, found)
    plot_figure(figures, plot)
    session.report(f"wrote {plot}")
    return True


def _one_axis(rows: Sequence[Row]) -> None:
    """Refuse results that cannot share an axis: different types or metrics, or training steps.

    Raises:
        InvalidInput: There are several types or primary metrics, or only times of training steps.
    """
    from edgeyard.benchmark_api.sdk.comparison import metric_of_row

    measured = [row for row in rows if row.get("primary_value")]
    types = sorted({plain(row.get("benchmark_type")) for row in measured})
    if len(types) > 1:
        problem = f"{' and '.join(types)} have no common axis"
        raise InvalidInput.at("--plot", problem, f"one of them, by --type, or {_PAGE}")
    metrics = sorted({metric.label for each in measured if (metric := metric_of_row(each))})
    if len(metrics) > 1:
        problem = f"{'; '.join(metrics)} have no common axis"
        raise InvalidInput.at("--plot", problem, f"benchmarks with one primary metric, or {_PAGE}")
    if types == ["TYPE3"]:
        raise InvalidInput.at(
            "--plot", "can draw latencies of inferences only, and TYPE3 measures training"
        )


def _comparison(rows: Sequence[Row]) -> list[RenderableType]:
    """Return a table of what differs between the rows, below what all have in common."""
    from edgeyard.benchmark_api.sdk.comparison import WORKLOAD, differences

    differing = differences(rows)
    width = console().width
    work, remarks = work_columns(rows, differing, width)
    columns = [
        *_MODEL_AND_BOARD,
        *work,
        *(_WHEN if _look_alike(rows, differing) else ()),
        primary_column(rows, always=False),
        _interval_column(rows),
        *_MEASURED,
    ]
    several = len({row.get("group") for row in rows}) > 1
    if several:
        columns.insert(0, GROUP)
    parts = [*shared_work(rows, differing), table(rows, columns, width), *remarks]
    if several:
        names = ", ".join(WORKLOAD[name] for name in differing)
        ratios = "; ratios are relative to the best of each group"
        has_ratios = any(ratio_text(row) for row in rows)
        parts.append(note("groups", f"did different work ({names}){ratios if has_ratios else ''}"))
    parts += [note("front", each) for each in _front_notes(rows)]
    for board, sentence in _between_runs_of_boards(rows):
        parts.append(note(f"interval of ratios on {board}", sentence))
    for row in rows:
        which = f"{plain(row.get('model'))} on {plain(row.get('target_uid') or row.get('target'))}"
        which = f"group {plain(row.get('group'))}, {which}" if several else which
        if timed := timed_together(row):
            parts.append(note(f"{which} was timed", timed))
        if reasons := reasons_of(row):
            parts.append(note(f"{which} is {plain(row.get('verdict'))}", reasons))
    return parts


def _front_notes(rows: Sequence[Row]) -> list[str]:
    """Return for each sweep what decides who is on its front, or why there is none."""
    from edgeyard.benchmark_api.sdk.fronts import fronts_of, missing_fronts

    return [*dict.fromkeys(front.sentence for front in fronts_of(rows)), *missing_fronts(rows)]


def _look_alike(rows: Sequence[Row], differing: Sequence[str]) -> bool:
    """Return whether two rows have the same model, board and work."""
    from edgeyard.benchmark_api.sdk.comparison import workload_text

    seen = {
        (
            plain(row.get("model")),
            plain(row.get("target_uid") or row.get("target")),
            *(workload_text(row, name) for name in differing),
        )
        for row in rows
    }
    return len(seen) < len(rows)


def _between_runs_of_boards(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Board and what its numbers' intervals include between runs, each pair once."""
    pairs = (
        (plain(row.get("target_uid")), _between_runs(row.get("between_runs")))
        for row in rows
        if row.get("ratio") is not None and len(rows) > 1
    )
    return [pair for pair in dict.fromkeys(pairs) if pair[1]]


def _without_result(session: Session, rows: Sequence[Row]) -> list[RenderableType]:
    """Return a footnote for each benchmark that has not completed: its status and why."""
    parts: list[RenderableType] = []
    for row in rows:
        if row.get("status") != "completed":
            benchmark = session.client.benchmark(str(row.get("benchmark_id")))
            parts.append(note(benchmark.benchmark_id, _state(benchmark)))
    return parts


def _state(benchmark: Benchmark) -> str:
    why = benchmark.failure or (None if benchmark.ended else benchmark.waiting_reason)
    return f"{benchmark.status}: {why}" if why else benchmark.status


_MODEL_AND_BOARD = (
    Column(title="MODEL", of=field("model")),
    Column(title="BOARD", of=lambda row: plain(row.get("target_uid") or row.get("target"))),
)

_WHEN = (
    Column(title="BENCHMARK", of=field("benchmark_id"), whole=True, from_width=120),
    Column(title="ENDED", of=lambda row: local_time(row.get("ended_at"))),
)
"""What tells apart runs of the same work on the same board."""


def _front(row: Row) -> str:
    from edgeyard.benchmark_api.sdk.fronts import front_text

    return front_text(row)


def _interval_of(row: Row) -> str:
    from edgeyard.benchmark_api.sdk.comparison import interval_of_row

    return interval_text(*interval_of_row(row), row.get("primary_degrees"))


def _beside_primary(title: str, name: str) -> Column:
    """Return a column of a number of language models, empty where it is the primary one."""
    of = marked(name)
    return Column(
        title=title,
        of=lambda row: "" if row.get("primary_metric") == name else of(row),
        right=True,
        whole=True,
        from_width=120,
        always=False,
    )


def _interval_column(rows: Sequence[Row]) -> Column:
    from edgeyard.benchmark_api.sdk.comparison import has_interval_of_repetition

    return Column(
        title="95 %, REPEATED" if any(map(has_interval_of_repetition, rows)) else "95 %",
        of=_interval_of,
        right=True,
        whole=True,
        from_width=120,
        always=False,
        yields=2,
    )


_MEASURED = (
    Column(title="P90 ms", of=p90_of_latency, right=True, whole=True, from_width=100, always=False),
    Column(
        title="RATIO (95 %)",
        of=ratio_text,
        style=not_shown_to_differ,
        right=True,
        whole=True,
        always=False,
    ),
    Column(
        title="FRONT",
        of=_front,
        whole=True,
        always=False,
    ),
    _beside_primary("FIRST TOKEN ms", "time_to_first_token_ms"),
    _beside_primary("PREFILL TOKENS/s", "prefill_tokens_per_s"),
    *THROUGHPUT_COLUMNS,
    Column(title="ACCURACY", of=accuracy, right=True, always=False),
    Column(title="LOSS", of=digits_field("final_loss"), right=True, always=False),
    Column(title="RAM", of=lambda row: size(row.get("ram_peak_bytes")), right=True, from_width=100),
    Column(
        title="J",
        of=marked("energy_j"),
        right=True,
        yields=1,
        always=False,
    ),
    Column(title="VERDICT", of=lambda row: plain(row.get("verdict") or row.get("status"))),
)


def _show_one(session: Session, found: Results) -> None:
    completed = found.status == "completed"
    benchmark = None if completed else session.client.benchmark(found.benchmark_id)
    if session.output is Output.JSON:
        emit_json(found.as_json())
    elif session.output is Output.CSV:
        emit_csv(_csv_rows(found))
    else:
        show(*_one(found, benchmark))
    if not found.report:
        yet = " yet" if benchmark is not None and not benchmark.ended else ""
        status = benchmark.status if benchmark is not None else found.status
        session.report(f"{found.benchmark_id} is {status} and has no result{yet}")


def _csv_rows(found: Results) -> list[Row]:
    """Return the row of the data frame.

    There are several of a result with the user's own inputs, one for each of their sets, and of a
    load: one for each window of a soak, number of callers, or trial.
    """
    from edgeyard.benchmark_api.figures.loads import load_rows
    from edgeyard.benchmark_api.sdk.comparison import compare, frame_row
    from edgeyard.benchmark_api.sdk.fronts import with_fronts

    if found.summary is None:
        return []
    (row,) = with_fronts(compare([as_json(found.summary)]))
    rows: list[Row] = []
    for position, each in enumerate(map(as_json, found.answer.inference)):
        of_set = {name: value for name, value in each.items() if name in row}
        for end, name in (("value", "p50_ms"), ("low", "p50_low_ms"), ("high", "p50_high_ms")):
            of_set[f"primary_{end}"] = each[name]
        shared = {k: v for k, v in row.items() if not position or k not in _OF_FIRST_SET}
        inputs = [{"name": name, **array} for name, array in each["feeds"].items()]
        workload = {**as_json(found.summary.workload), "inputs": inputs}
        rows.append({**frame_row({**shared, **of_set, "workload": workload}), "set": each["name"]})
    rows += [{**frame_row(row), **each} for each in load_rows(found.answer)]
    if rows:
        return rows
    whole = frame_row(row)
    others = _value_columns(found)
    return [whole | {name: value for name, value in others.items() if name not in whole}]


def _value_columns(found: Results) -> Row:
    """Return the values that only such a type has, numbers with their intervals."""
    columns: dict[str, object] = {}
    for name, each in found.values.items():
        columns[name] = each.value
        if not isinstance(each.value, bool | str):
            columns |= {f"{name}_low": each.low, f"{name}_high": each.high}
    if _FIRST_REQUEST in found.metrics:
        columns[_FIRST_REQUEST] = found.metrics[_FIRST_REQUEST].value
    return columns


_NO_SETTINGS = frozenset(("version", "build", "device_name", "execution_provider", "model_nodes"))
_MAX_SETTINGS, _MAX_SETTING = 12, 60

_FIRST_REQUEST = "first_request_ms"
"""Metric of language models that is one number, without an interval, and no declared value."""


_OF_FIRST_SET = (
    "primary_degrees",
    "primary_repeat_low",
    "primary_repeat_high",
    "between_runs",
)
"""Fields of a summary that hold for the first set of inputs only."""


def _one(found: Results, benchmark: Benchmark | None) -> list[RenderableType]:
    """Render the results; ``benchmark`` is given if it has not completed, to show its state."""
    from rich.text import Text

    from edgeyard.benchmark_api.cli.output import STATE_STYLE
    from edgeyard.benchmark_api.cli.pictures import facts_table

    parts: list[RenderableType] = [Text(found.benchmark_id, style="bold")]
    description = benchmark.description if benchmark is not None else {}
    placed = benchmark.target_uid if benchmark is not None else None
    row = as_json(found.summary)
    what = (
        row.get("model") or description.get("model"),
        row.get("runtime") or description.get("runtime"),
        row.get("target_uid") or placed or row.get("target") or description.get("target"),
    )
    subject = " · ".join(filter(None, map(plain, what)))
    if subject:
        parts.append(Text(printable(subject)))
    if benchmark is not None:
        style = STATE_STYLE.get(benchmark.status, "")
        parts.append(Text(printable(_state(benchmark)), style=style))
    if found.verdict is not None:
        reasons = " ".join(one.sentence or one.code for one in found.verdict.reasons)
        why = f": {reasons}" if reasons else ""
        style = STATE_STYLE.get(found.verdict.verdict, "")
        parts.append(Text(printable(found.verdict.verdict + why), style=style))
    facts = _facts(found)
    if facts:
        parts.append(facts_table(facts))
    # of other types their engines alone know what the verdict on the timing means for a value
    mark = _mark(found) if found.report.get("generation") else ""
    values = {
        name: _declared(name, each, found.metrics.get(name), mark)
        for name, each in found.values.items()
        if name == P50.name or name != row.get("primary_metric")  # which is above
    }
    if values:
        parts += [Text("\nValues", style="bold"), facts_table(values)]
    if found.answer.inference:
        from edgeyard.benchmark_api.cli.inferring import set_notes, set_table

        rows = [as_json(each) for each in found.answer.inference]
        parts += [Text("\nSets of inputs", style="bold"), set_table(rows)]
        parts += set_notes(rows[1:])
    if found.answer.layers is not None:
        from edgeyard.benchmark_api.cli.layers import layer_tables

        verdict = found.verdict.verdict if found.verdict is not None else ""
        parts += layer_tables(found.answer.layers, verdict)
    if found.answer.soak is not None:
        from edgeyard.benchmark_api.cli.soaks import soak_table

        parts += soak_table(found.answer.soak)
    if found.answer.concurrency is not None:
        from edgeyard.benchmark_api.cli.concurrency import concurrency_table

        parts += concurrency_table(found.answer.concurrency)
    if found.answer.load_test is not None:
        from edgeyard.benchmark_api.cli.load import load_table

        parts += load_table(found.answer.load_test)
    if plain(found.report.get("layers_skipped")):
        parts.append(note("layers", plain(found.report.get("layers_skipped"))))
    if found.files:
        files = [
            {"attempt": one.attempt, "name": one.name, "size": one.size_bytes}
            for one in found.files
        ]
        parts += [Text("\nFiles", style="bold"), table(files, _FILES, console().width)]
    return parts


_FILES = (
    Column(title="ATTEMPT", of=field("attempt"), right=True),
    Column(title="NAME", of=field("name")),
    Column(title="SIZE", of=lambda row: size(row.get("size")), right=True, whole=True),
)


def _mark(found: Results) -> str:
    """Return what stands behind each number of a result that is not comparable."""
    return f" {found.verdict.verdict}" if found.verdict and not found.verdict.comparable else ""


def _declared(name: str, each: DeclaredValue, measured: MeasuredMetric | None, mark: str) -> str:
    """Return a value of a type that the engine declares, with what the declaration states of it."""
    if isinstance(each.value, bool | str):
        return plain(each.value)
    ends = each.low, each.high, measured.degrees if measured is not None else None
    about = _about(Metric(name, each.title, each.unit, each.better))
    return "; ".join(filter(None, (_with_interval(each.value, ends, each.unit, mark), about)))


def _about(metric: Metric) -> str:
    """Return what a number is and which numbers are better, beyond its name."""
    title = metric.title if metric.title != metric.name else ""
    return ", ".join(filter(None, (title, metric.direction)))


def _estimated(found: Mapping[str, object], unit: str, mark: str = "") -> str:
    """Return a number of a report's energy with its interval; "" if it is not known."""
    value = found.get("value")
    ends = *known_ends(value, found.get("ci95")), found.get("ci95_degrees")
    return _with_interval(value, ends, unit, mark) if three_digits(value) else ""


def _with_interval(value: object, ends: Sequence[object], unit: str, more: str = "") -> str:
    """Return a number with its unit and its 95 % interval, as far as that is known.

    Args:
        value: The number.
        ends: Of the interval, and its degrees of freedom.
        unit: Of the number.
        more: What follows.
    """
    text = interval_text(*ends)
    interval = f" (95 %: {text})" if text else ""
    return f"{three_digits(value)} {unit}".strip() + interval + more


def _facts(found: Results) -> Mapping[str, str]:
    from edgeyard.benchmark_api.sdk.comparison import metric_of_row
    from edgeyard.benchmark_api.sdk.generation import generation_text

    mark = _mark(found)
    facts: dict[str, str] = {}
    latency = found.latency
    trained = bool(found.report.get("training"))
    generated = bool(found.report.get("generation"))
    sets = found.answer.inference
    if len(sets) > 1:
        facts["numbers of"] = f"set {sets[0].name}, the first of {len(sets)}; all are below"
    facts["request"] = plain(generation_text(found.report))
    row = as_json(found.summary)
    metric = metric_of_row(row)
    if metric is not None and metric.name != P50.name:
        ends = row.get("primary_low"), row.get("primary_high"), row.get("primary_degrees")
        more = f"{mark}; {_about(metric)}"
        facts[metric.name] = _with_interval(row.get("primary_value"), ends, metric.unit, more)
    if latency is not None:
        of = " of a step" if trained else _of_generation(found.report.get("generation"))
        p50 = found.metrics.get(P50.name)
        ends = latency.p50_low_ms, latency.p50_high_ms, p50.degrees if p50 is not None else None
        facts[f"p50{of}"] = _with_interval(latency.p50_ms, ends, "ms", mark)
        for name, value in (
            ("p90", latency.p90_ms),
            ("p99", latency.p99_ms),
            ("mean", latency.mean_ms),
            ("min", latency.min_ms),
            ("max", latency.max_ms),
        ):
            facts[name] = f"{three_digits(value)} ms{mark}" if value is not None else ""
        facts["timed"] = timed_together({"inner_loops": latency.inner_loops})
    if latency is not None and latency.count is not None and not trained:
        workload = found.summary.workload if found.summary else None
        batch_size = (workload.batch_size if workload else None) or 1
        rows = f" of up to {batch_size:.0f} rows" if batch_size > 1 else ""
        counted = "requests" if generated else "inferences"
        facts["batches" if rows else counted] = f"{latency.count:,}{rows}{_of_soak(found.answer)}"
    again = interval_text(row.get("primary_repeat_low"), row.get("primary_repeat_high"))
    if metric is not None and again:
        again = f"95 %: {again} {metric.unit}".rstrip()
        facts[f"repeated {metric.name}"] = f"{again} ({_between_runs(row.get('between_runs'))})"
    if metric is None or metric.name not in (RUNS_PER_S.name, LOAD_RATE.name):
        facts["throughput"] = _throughput(row, "steps" if trained else "runs", mark)
    judged = {
        "accuracy": f"{found.accuracy:.2%}" if found.accuracy is not None else "",
        "top-5": _share(row.get("top5")),
        **(_metric_facts(found) if row.get("metric") else {}),
    }
    doubt = " suspect" if is_data_doubted(row) else ""
    facts |= {name: value + doubt for name, value in judged.items() if value}
    facts |= _training_facts(found)
    facts["peak memory"] = size(row.get("ram_peak_bytes"))
    own = size(row.get("ram_model_bytes"))
    if own:
        facts["peak memory"] += f" (the model's own: {own})"
    facts |= _energy_facts(row, found.report, mark)
    cold, warm = three_digits(row.get("load_cold_ms")), three_digits(row.get("load_warm_ms"))
    if cold:
        facts["load"] = f"{cold} ms cold" + (f", {warm} ms warm" if warm else "")
    first = three_digits(row.get("first_inference_ms"))
    facts["first inference"] = f"{first} ms" if first else ""
    request = found.metrics.get(_FIRST_REQUEST)
    facts["first request"] = f"{three_digits(request.value)} ms" if request is not None else ""
    facts["settings"] = _settings(found.report.get("engine_facts"))
    facts["nodes"] = _nodes_by_provider(found.report.get("engine_facts"))
    facts["random input"] = _invented(found.report.get("feeds"))
    facts["sandbox"] = _sandbox(found.report.get("confinement"))
    return {name: value for name, value in facts.items() if value}


def _of_soak(found: shapes.Results) -> str:
    """Return which part of a soak the numbers are of; "" of other results."""
    if found.soak is None:
        return ""
    return " of the steady part" if found.soak.steady is not None else " of the whole soak"


def _of_generation(generation: object) -> str:
    """Return what the latencies of a language model are of; "" of other models."""
    if not isinstance(generation, Mapping):
        return ""
    return " of the first token" if generation.get("output_length") == 1 else " of a token"


def _energy_facts(
    row: Mapping[str, object], report: Mapping[str, object], mark: str
) -> dict[str, str]:
    """Return the energy of an inference and the power, and what measured them."""
    from edgeyard.benchmark_api.sdk.energy import energy_sentence
    from edgeyard.benchmark_api.sdk.fields import record

    watts, energy = three_digits(row.get("power_w")), record(report, "energy")
    unit = "J a token" if report.get("generation") else "J an inference"
    return {
        "energy": _estimated(record(energy, "per_inference"), unit, mark),
        "above idle": _estimated(record(energy, "per_inference_above_idle"), unit, mark),
        "power": f"{watts} W{mark}" if watts else "",
        "idle power": _estimated(record(energy, "idle"), "W"),
        "energy by": plain(energy_sentence(report)),
    }


def _invented(feeds: object) -> str:
    """Return what of the input neither the model nor the job description states."""
    given = feeds.items() if isinstance(feeds, Mapping) else ()
    found = []
    for name, one in given:
        invented = one.get("invented") if isinstance(one, Mapping) else None
        if isinstance(invented, list) and invented:
            found.append(f"{plain(name)}: {', '.join(map(plain, invented))}")
    return "; ".join(found)


def _settings(engine_facts: object) -> str:
    """Return what the engine really ran with, which may not be what was asked for."""
    stated = engine_facts if isinstance(engine_facts, Mapping) else {}
    found = []
    for name, value in stated.items():
        if name in _NO_SETTINGS or not isinstance(value, str | int):
            continue
        shown = plain(value) if not isinstance(value, bool) else "on" if value else "off"
        found.append(f"{plain(name).replace('_', ' ')} {shown[:_MAX_SETTING]}")
    return ", ".join(found[:_MAX_SETTINGS])


def _nodes_by_provider(engine_facts: object) -> str:
    """Return which share of the nodes each execution provider runs."""
    stated = engine_facts.get("nodes_by_provider") if isinstance(engine_facts, Mapping) else None
    found = []
    for name, one in stated.items() if isinstance(stated, Mapping) else ():
        count, share = (one.get("nodes"), one.get("share")) if isinstance(one, Mapping) else (0, 0)
        if isinstance(count, int | float) and isinstance(share, int | float):
            found.append(f"{plain(name)} {share:.0%} ({count:.0f})")
    wanted = engine_facts.get("execution_provider") if isinstance(engine_facts, Mapping) else None
    if found and isinstance(stated, Mapping) and isinstance(wanted, str) and wanted not in stated:
        found.append(f"none on {plain(wanted)}, which was asked for")
    return ", ".join(found)


def _throughput(row: Row, unit: str, mark: str) -> str:
    """Return the runs of a second and, where a run has several, their rows."""
    runs, rows = row.get("runs_per_s"), row.get("rows_per_s")
    if not isinstance(runs, int | float):
        return ""
    text = f"{three_digits(runs)} {unit}/s"
    if isinstance(rows, int | float) and rows != runs:
        text += f", {three_digits(rows)} rows/s"
    return text + mark


def _metric_facts(found: Results) -> Mapping[str, str]:
    """Return the numbers of another metric than classification."""
    value = found.report.get("accuracy")
    numbers: Row = value if isinstance(value, Mapping) else {}
    if numbers.get("metric") == "regression":
        return {name.upper(): three_digits(numbers.get(name)) for name in ("mae", "rmse")}
    names = {"miou": "mIoU", "pixel_accuracy": "pixels right", "map": "mAP", "map50": "mAP at 50 %"}
    return {shown: _share(numbers.get(name)) for name, shown in names.items()}


def _between_runs(variation: object) -> str:
    """Describe which variance between runs an interval includes, and its source."""
    return plain(variation.get("sentence")) if isinstance(variation, Mapping) else ""


def _sandbox(confinement: object) -> str:
    """Return how the run was confined and what was not."""
    if not isinstance(confinement, Mapping):
        return ""
    left = confinement.get("not_confined")
    names = ", ".join(map(plain, left)) if isinstance(left, list) else ""
    return plain(confinement.get("method")) + (f"; not confined: {names}" if names else "")


def _training_facts(found: Results) -> Mapping[str, str]:
    """Return the outcome of a training (TYPE3); empty for the other types."""
    report = found.report.get("training")
    training: Row = report if isinstance(report, Mapping) else {}
    accuracies = training.get("validation_accuracy")
    reached = accuracies[-1] if isinstance(accuracies, list) and accuracies else None
    return {
        "trained": plain(training.get("trained")),
        "steps": plain(training.get("steps")),
        "final loss": three_digits(as_json(found.summary).get("final_loss")),
        "loss by epoch": _losses(training.get("epoch_losses")),
        "validation loss": _losses(training.get("validation_losses")),
        "validation accuracy": _share(reached),
    }


def _losses(values: object) -> str:
    """Return the losses; of many, only the first and the last."""
    if not isinstance(values, list):
        return ""
    shown = [three_digits(value) for value in values]
    if len(shown) > MAX_EPOCHS:
        shown = [*shown[: MAX_EPOCHS // 2], "…", *shown[-MAX_EPOCHS // 2 :]]
    return " ".join(shown)


def _share(value: object) -> str:
    return f"{value:.2%}" if isinstance(value, int | float) else ""


def _download(session: Session, benchmark_ids: Sequence[str], folder: Path) -> None:
    for benchmark_id in benchmark_ids:
        found = session.client.results(benchmark_id)
        into = make_folder(folder / Path(benchmark_id).name, "--download")
        for name in sorted({file.name for file in found.files}):
            session.report(f"downloaded {found.download(name, into)}")


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    verb(app, "results")(results)
