"""Data on stdout: as a table for people, as JSON or CSV for programs."""

from __future__ import annotations

import csv
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from edgeyard.benchmark_api.cli.program import Output
from edgeyard.benchmark_api.printing import printable
from edgeyard.devices.metrics import LOAD_LATENCY, LOAD_RATE, P50, RUNS_PER_S
from edgeyard.devices.sizes import size_text
from edgeyard.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.table import Table
    from rich.text import Text

    from edgeyard.benchmark_api.cli.program import Session

Row = Mapping[str, object]

STATE_STYLE: Mapping[str, str] = {
    "pending": "yellow",
    "scheduled": "cyan",
    "running": "blue",
    "completed": "green",
    "failed": "red",
    "cancelled": "magenta",
    "expired": "red",
    "idle": "green",
    "busy": "blue",
    "offline": "red",
    "unhealthy": "red",
    "drained": "magenta",
    "leased": "magenta",
    "quarantined": "magenta",
    "unknown": "magenta",
    "comparable": "green",
    "suspect": "yellow",
    "invalid": "red",
    "ok": "green",
    "warning": "yellow",
    "problem": "red",
}

UNLIMITED_COLUMNS = 1_000_000
"""Width without limit."""

MIN_COLUMN_WIDTH = 5
"""Columns that would be cut below this width are left out."""

MIN_NAME_WIDTH = 9
"""Columns that may be left out make way for names of this width."""

MARKS: Mapping[str, str] = {"suspect": "?", "invalid": "!"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table.

    Attributes:
        of: Returns a row's cell as text.
        whole: Never wrapped or cut, so that ids can be copied.
        from_width: Shown on terminals with at least this many columns.
        always: Shown also if all its cells are empty.
        shorten: Cut to the width that the other columns leave, which columns of this kind share;
            left out if that is too narrow.
        yields: Left out where the table is too wide, those with the greatest number first; 0:
            never. Names are shortened to `MIN_NAME_WIDTH` before.
        style: Returns the style of a row's cell; empty: the style of the cell's first word.
    """

    title: str
    of: Callable[[Row], str]
    whole: bool = False
    right: bool = False
    from_width: int = 0
    always: bool = True
    shorten: bool = False
    yields: int = 0
    style: Callable[[Row], str] = lambda _row: ""


def console() -> Console:
    """Return the console of stdout.

    A pipe or file has room for everything: nothing is cut, folded or left out there, whatever
    ``COLUMNS`` a shell exports. ``EDGEYARD_COLUMNS`` sets a width for terminals and pipes.

    Raises:
        InvalidInput: ``EDGEYARD_COLUMNS`` is no width.
    """
    from rich.console import Console
    from rich.segment import Segment

    class SafeConsole(Console):
        """A console that prints no control character of the texts that it is given."""

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else printable(text), style, control)

    return SafeConsole(
        file=sys.stdout,
        width=_width(),
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
    )


def _width() -> int | None:
    """Return the width of tables; None: that of the terminal."""
    given = os.environ.get("EDGEYARD_COLUMNS", "")
    if given:
        if not (given.isascii() and given.isdecimal() and 0 < int(given) <= UNLIMITED_COLUMNS):
            accepted = f"a number of columns from 1 to {UNLIMITED_COLUMNS}, or not set"
            raise InvalidInput.at("EDGEYARD_COLUMNS", f"is {given!r}", accepted)
        return int(given)
    return None if sys.stdout.isatty() else UNLIMITED_COLUMNS


def show(*parts: RenderableType) -> None:
    """Print for people; a plain string stays one line, so that URLs can be copied."""
    out = console()
    if out.is_terminal:
        for part in parts:
            out.print(part, soft_wrap=isinstance(part, str))
        return
    with out.capture() as captured:
        for part in parts:
            out.print(part, soft_wrap=isinstance(part, str))
    lines = captured.get().splitlines()
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in lines))  # Rich fills lines up


def warn_of_stale_state(session: Session, answer: Row) -> None:
    """Report that the cluster does not answer and how old the shown state is.

    Args:
        session: Prints the message.
        answer: The server's answer, with ``cluster_problem`` and ``age_s``.
    """
    problem, age_s = plain(answer.get("cluster_problem")), answer.get("age_s")
    if not problem:
        return
    if isinstance(age_s, int | float):
        session.report(
            f"the cluster does not answer; this is its state {age_s:.0f} s ago: {problem}"
        )
    else:
        session.report(f"the cluster has not answered yet, so no board is known: {problem}")


def emit(output: Output, rows: Sequence[Row], columns: Sequence[Column], nothing: str) -> None:
    """Print a list in the chosen form; ``nothing`` is the message for an empty table."""
    if output is Output.JSON:
        emit_json(list(rows))
    elif output is Output.CSV:
        emit_csv(rows)
    elif rows:
        show(table(rows, columns, console().width))
    else:
        sys.stderr.write(f"{nothing}\n")


def emit_one(output: Output, row: Row, *people: RenderableType) -> None:
    """Print one object; ``people`` is its form as a table."""
    if output is Output.JSON:
        emit_json(row)
    elif output is Output.CSV:
        emit_csv([row])
    else:
        show(*people)


def emit_json(value: object) -> None:
    """Print JSON that programs read."""
    sys.stdout.write(json_text(value, indent=2) + "\n")


def json_text(value: object, indent: int | None = None) -> str:
    """Return a value as JSON whose control characters, of C1 and for direction too, are escaped."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    return "".join(
        each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text
    )


_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\n")
"""What makes spreadsheets run a text of somebody else's, e.g. a name or a tag."""


def emit_csv(rows: Sequence[Row]) -> None:
    """Print CSV (RFC 4180, lines end with LF): nested values get dotted names or JSON.

    Texts that a spreadsheet would take for a formula get an apostrophe in front.
    """
    flat = [_flat(row) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    if not names:
        return
    writer = csv.DictWriter(sys.stdout, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)


def table(rows: Sequence[Row], columns: Sequence[Column], width: int) -> Table:
    """Return a table without rules, which can be pasted anywhere."""
    from rich.table import Table
    from rich.text import Text

    shown = [column for column in columns if column.from_width <= width]
    cells = [[column.of(row) for column in shown] for row in rows]
    kept = [
        position
        for position, column in enumerate(shown)
        if column.always or any(line[position] for line in cells)
    ]
    kept = _fitting(kept, shown, cells, width)
    room = _room([shown[n] for n in kept], [[line[n] for line in cells] for n in kept], width)
    kept = [n for n in kept if not shown[n].shorten or room >= MIN_COLUMN_WIDTH]
    for line in cells:
        for n in kept:
            if shown[n].shorten and len(line[n]) > room:
                line[n] = line[n][: room - 1] + "…"
    grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for position in kept:
        column = shown[position]
        column_width = max([len(column.title), *(len(line[position]) for line in cells)])
        justify: Literal["right", "left"] = "right" if column.right else "left"
        grid.add_column(
            Text(column.title),
            justify=justify,
            no_wrap=column.whole or column.shorten,
            min_width=column_width if column.whole or column.shorten else None,
            overflow="fold",
        )
    for row, line in zip(rows, cells, strict=True):
        grid.add_row(*(styled(line[n], shown[n].style(row)) for n in kept))
    return grid


def _fitting(
    kept: list[int], columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int
) -> list[int]:
    """Leave out columns that yield, until all others fit."""
    while True:
        yielding = [n for n in kept if columns[n].yields]
        names = [n for n in kept if columns[n].shorten]
        max_width = max((len(line[n]) for line in cells for n in names), default=0)
        room = _room([columns[n] for n in kept], [[line[n] for line in cells] for n in kept], width)
        if not yielding or room >= min(max_width, MIN_NAME_WIDTH):
            return kept
        kept = [n for n in kept if n != max(yielding, key=lambda each: columns[each].yields)]


def _room(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> int:
    """Width of each column to shorten: what whole ones leave, a third where others fold."""
    free = width
    for column, lines in zip(columns, cells, strict=True):
        if column.whole:
            free -= 2 + max([len(column.title), *map(len, lines)])
        else:
            free -= 2
    folding = any(not column.whole and not column.shorten for column in columns)
    # The last column needs no gap.
    return (free // 3 if folding else free + 2) // max(sum(each.shorten for each in columns), 1)


def styled(cell: str, style: str = "") -> Text:
    """Return a cell in a style, or in the colour of the state that it begins with."""
    from rich.text import Text

    word = cell.split(" ", 1)[0].rstrip(":").lower()
    return Text(printable(cell), style=style or STATE_STYLE.get(word, ""))


def note(about: str, text: str) -> Table:
    """Return a remark below a table, with a hanging indent."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text("·"), Text(printable(f"{about}: {text}")))
    return grid


def reasons_of(row: Row) -> str:
    """Return the reasons of a verdict as sentences."""
    reasons = row.get("reasons")
    if not isinstance(reasons, list):
        return ""
    return " ".join(
        plain(one.get("sentence") or one.get("code")) if isinstance(one, Mapping) else f"{one}."
        for one in reasons
    )


def field(name: str) -> Callable[[Row], str]:
    """Return a function that reads a field; ``a.b`` is the field ``b`` of ``a``."""
    path = name.split(".")

    def of(row: Row) -> str:
        value: object = row
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return plain(value)

    return of


def number_field(name: str, form: str, missing: str = "") -> Callable[[Row], str]:
    """Return a function that reads a number in a format such as ``.1%``."""

    def of(row: Row) -> str:
        value = row.get(name)
        return format(value, form) if isinstance(value, int | float) else missing

    return of


def plain(value: object) -> str:
    """Return a value as a cell; None is empty."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(plain(item) for item in value)
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def who_cancelled(row: Row) -> str:
    """Return who cancelled a benchmark, and why; "" where it is not cancelled."""
    if row.get("status") != "cancelled":
        return ""
    from edgeyard.scheduler.model.waiting_reasons import stopped

    by, reason = plain(row.get("stopped_by")), plain(row.get("stopped_reason"))
    return stopped("cancelled", by, reason) if by or reason else ""


def size(value: object) -> str:
    """Return a size in bytes with a binary unit; "" where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    return size_text(value)


def usage(row: Row, used: str, limit: str) -> str:
    """Return how much of a limit is used, from two fields of a row; without a limit the use."""
    shown = size if used == "stored_bytes" else plain
    maximum = row.get(limit)
    return shown(row.get(used)) + ("" if maximum is None else f" of {shown(maximum)}")


def three_digits(value: object) -> str:
    """Return a measured number with three significant digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    if value == 0:
        return "0"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def digits_field(name: str) -> Callable[[Row], str]:
    """Return a function that reads a number with three significant digits."""
    return lambda row: three_digits(row.get(name))


def marked(name: str) -> Callable[[Row], str]:
    """Return a function for a number, marked with its verdict: ``?`` suspect, ``!`` invalid."""

    def of(row: Row) -> str:
        text = three_digits(row.get(name))
        return text + MARKS.get(plain(row.get("verdict")), "") if text else ""

    return of


def interval_text(low: object, high: object, degrees: object = None) -> str:
    """Return a 95 % interval, e.g. ``12.1 to 12.6``, or that it is not known; "" if there is none.

    Args:
        low: Its lower end.
        high: Its upper end.
        degrees: Its degrees of freedom: what has them has an interval.
    """
    ends = three_digits(low), three_digits(high)
    if all(ends):
        return f"{ends[0]} to {ends[1]}"
    return "" if degrees is None else "not known"


def primary_column(rows: Sequence[Row], *, always: bool = True) -> Column:
    """Return the column of the primary metric, marked with the verdict.

    Its title has name and unit. Where rows have several primary metrics, the cells have the unit.
    """
    from edgeyard.benchmark_api.sdk.comparison import shared_metric

    metric = shared_metric(rows)
    of = marked("primary_value")
    if metric is not None:
        return Column(title=printable(metric.heading), of=of, right=True, whole=True, always=always)
    return Column(title="RESULT", of=primary_text, right=True, whole=True, always=always)


def primary_text(row: Row) -> str:
    """Return the primary metric with its unit, marked with the verdict, e.g. ``12.3 ms?``.

    A latency without more words is a median.
    """
    number, unit = three_digits(row.get("primary_value")), plain(row.get("primary_unit"))
    name, mark = plain(row.get("primary_metric")), MARKS.get(plain(row.get("verdict")), "")
    if unit == "1/s" and name.endswith("_per_s"):
        unit = name.removesuffix("_per_s").replace("_", " ") + "/s"  # e.g. "decode tokens/s"
    elif name == LOAD_RATE.name:
        unit = "queries/s"
    elif name == LOAD_LATENCY.name:
        unit = f"{unit} {_percentile(row)}".strip()
    return f"{number} {unit}".strip() + mark if number else ""


def _percentile(row: Row) -> str:
    """Return the percentile that a load by LoadGen's rules is about, e.g. ``p90``."""
    work = row.get("workload")
    load = plain(work.get("load")) if isinstance(work, Mapping) else ""
    found = re.search(r"\bp[0-9.]+\b", load)
    return found.group() if found is not None else ""


def p90_of_latency(row: Row) -> str:
    """Return the p90 of a row that is about its latency, marked with the verdict."""
    return marked("p90_ms")(row) if row.get("primary_metric") == P50.name else ""


def timed_together(row: Row) -> str:
    """Describe how inferences were timed if it was not one by one; empty otherwise."""
    loops = row.get("inner_loops")
    if not isinstance(loops, int) or loops < 2:
        return ""
    return (
        f"in groups of {loops} consecutive inferences: p50, p90, p99, min and max are of the means "
        "of groups, not of single inferences"
    )


def _runs_per_s(row: Row) -> str:
    """Return the throughput, marked with the verdict, where it is a number beside the primary one.

    Queries of a server load arrive by chance, so that those of a second are not the rate.
    """
    primary = row.get("primary_metric")
    return "" if primary in (RUNS_PER_S.name, LOAD_RATE.name) else marked("runs_per_s")(row)


THROUGHPUT_COLUMNS = (
    Column(
        title="RUNS/s",
        of=_runs_per_s,
        right=True,
        whole=True,
        from_width=120,
        always=False,
    ),
    Column(
        title="ROWS/s",
        of=marked("rows_per_s"),
        right=True,
        whole=True,
        from_width=120,
        always=False,
    ),
)
"""Calls of the engine a second, and rows; the latter are left out where no model has rows."""


def parameters_text(parameters: object) -> str:
    """Return parameters as flags state them, e.g. ``threads=2, fp16=true``; "" of none."""
    if not isinstance(parameters, Mapping):
        return ""
    from edgeyard.benchmark_api.schemas.matrix import value_text

    return ", ".join(f"{name}={value_text(value)}" for name, value in parameters.items())


def ratio_text(row: Row) -> str:
    """Return the ratio with its interval."""
    ratio, low, high = row.get("ratio"), row.get("ratio_low"), row.get("ratio_high")
    if not isinstance(ratio, int | float):
        return ""
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return f"{ratio:.2f}×"
    return f"{ratio:.2f}× ({low:.2f}-{high:.2f})"


def not_shown_to_differ(row: Row) -> str:
    """Return ``dim`` if the interval of the ratio contains 1."""
    low, high = row.get("ratio_low"), row.get("ratio_high")
    known = isinstance(low, int | float) and isinstance(high, int | float)
    return "dim" if known and low <= 1 <= high else ""  # type: ignore[operator]


DATA_REASONS = frozenset({"inputs_clipped", "input_range", "labels_not_given", "labels_shifted"})
"""Reasons of a verdict that speak against the accuracy."""


def accuracy(row: Row) -> str:
    """Return the accuracy, marked with ``?`` where a reason of the verdict speaks against it.

    Reasons against the latency do not mark it.
    """
    value = row.get("accuracy")
    name, other = row.get("metric"), row.get("metric_value")
    if isinstance(value, int | float):
        text = f"{value:.1%}"
    elif isinstance(other, int | float):
        text = f"{plain(name)} {other:.4g}" if name == "MAE" else f"{plain(name)} {other:.1%}"
    else:
        return ""
    return text + MARKS["suspect"] if is_data_doubted(row) else text


def is_data_doubted(row: Row) -> bool:
    """Return whether a reason of the verdict speaks against the accuracy."""
    reasons = row.get("reasons")
    listed = reasons if isinstance(reasons, list) else []
    return any(one.get("code") in DATA_REASONS for one in listed if isinstance(one, Mapping))


def age(value: object) -> str:
    """Return the age of a time: ``12 s``, ``5 min``, ``3 h``, ``8 d``."""
    at = when(value)
    if at is None:
        return ""
    seconds = max(0.0, (datetime.now(UTC) - at).total_seconds())
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length * (2 if unit != "min" else 1):
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"


def local_time(value: object) -> str:
    """Return a time in the local zone."""
    at = when(value)
    return "" if at is None else f"{at.astimezone():%Y-%m-%d %H:%M:%S}"


def clock_times(*times: datetime) -> list[str]:
    """Return times in the local zone, with their dates unless all are today."""
    local = [each.astimezone() for each in times]
    today = datetime.now(UTC).astimezone().date()
    form = "%H:%M:%S" if all(each.date() == today for each in local) else "%Y-%m-%d %H:%M:%S"
    return [f"{each:{form}}" for each in local]


def when(value: object) -> datetime | None:
    """Return a time with a zone; None for anything else."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    return value if isinstance(value, datetime) and value.tzinfo else None


def _flat(row: Row, prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in row.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{prefix}{key}.")
        elif isinstance(value, Mapping | list | tuple):
            scalars = all(not isinstance(item, Mapping | list | tuple) for item in value)
            joined = "; ".join(str(item) for item in value) if scalars else json.dumps(value)
            flat[f"{prefix}{key}"] = "" if not value else _no_formula(joined)
        elif isinstance(value, str):
            flat[f"{prefix}{key}"] = _no_formula(value)
        else:
            flat[f"{prefix}{key}"] = "" if value is None else str(value)
    return {_no_formula(name): value for name, value in flat.items()}


def _no_formula(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n")  # the module csv leaves CR unquoted
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text
