"""Columns to tensors: the only place where pairs of a class and a board become numbers for a model.

Training and serving both come here, so that a model sees in use what it saw in training. A model's
manifest names the columns it wants, in order, and how each is normalised::

    x = (value - mean) / scale, and 0 where the value is missing

``<column>?`` is 1 where the column has a value and 0 where it is missing.

``extra.<name>`` is the number of that name in the ``extra`` of the job description. The manifest
states its default, or that it is required: a scorer abstains where it is missing.

Each column states a digest of what it computes for a fixed sample, which a test computes again. The
version of a model's inputs is made of these digests: a column that computes something else has
another digest, and models that read it are refused until they are trained again.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs, Resources, attribute_column
from edgeyard.scheduler.framework.extra import EXTRA_INPUT_PATTERN, extra_number, extra_problem
from edgeyard.scheduler.model.tariff import seconds_of_day
from edgeyard.scheduler.prediction.estimates import FailureCauses, PastPairs, RunTimeParts

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

MAX_VALUE = 8.0
"""Normalised values are clipped to it, so that models do not extrapolate far."""


class ColumnAxis(StrEnum):
    """The axis along which a column has values."""

    CLASS = "class"
    BOARD = "board"
    PAIR = "pair"


@dataclass(frozen=True, eq=False)
class View:
    """The pairs that columns are read for; what several columns need is worked out once.

    Attributes:
        rows: Classes, shape (pairs,).
        boards: Boards, shape (pairs,).
    """

    batch: Batch
    rows: Rows
    boards: Rows

    @cached_property
    def past(self) -> PastPairs:
        """The pairs, with their past runs."""
        return PastPairs(self.batch, self.rows, self.boards)

    @cached_property
    def distribution(self) -> RunTimeParts:
        """Distribution of run times according to past runs."""
        return self.past.run_time_parts()

    @cached_property
    def loading(self) -> RunTimeParts:
        """Distribution of times of loading according to past runs."""
        return self.past.loading_parts()

    @cached_property
    def causes(self) -> FailureCauses:
        """Chances of failures by cause according to past runs."""
        return self.past.failure_causes()


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        along: What it has a value for.
        digest: Of its values for a fixed sample, which tests have.
        meaning: With the unit; for the reference page.
        read: Shape (classes,), (boards,) or (pairs,); NaN where missing.
    """

    along: ColumnAxis
    digest: str
    meaning: str
    read: Callable[[View], Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One input of a model: a column's name and how it is normalised.

    Attributes:
        default: Of ``extra.<name>``: for benchmarks that state no number; None: it is required.
    """

    column: str
    mean: float = 0.0
    scale: float = 1.0
    default: float | None = None

    @property
    def is_extra(self) -> bool:
        """Whether its values are stated in ``extra`` of job descriptions."""
        return EXTRA_INPUT_PATTERN.fullmatch(self.column) is not None


def _engine(name: str) -> Callable[[View], Floats]:
    return lambda view: np.array([each == name for each in view.batch.engines], np.float64)


def _type(name: str) -> Callable[[View], Floats]:
    return lambda view: np.array([each.value == name for each in view.batch.types], np.float64)


def _cores(view: View) -> Floats:
    column = attribute_column(view.batch, "cpu.cores")
    values = np.array(
        [
            float(each) if isinstance(each, (int, float)) and 0 < each < 1e6 else np.nan
            for each in column.values
        ],
        dtype=np.float64,
    )
    return np.log2(values)[column.index] if len(values) else np.empty(0)


def _host_load(part: str) -> Callable[[View], Floats]:
    def read(view: View) -> Floats:
        loads = view.batch.knowledge.host_loads
        return np.array(
            [
                getattr(loads[host], part) if host in loads else np.nan
                for host in view.batch.snapshot.hosts
            ],
            dtype=np.float64,
        )

    return read


def _host_busy(view: View) -> Floats:
    snapshot = view.batch.snapshot
    host_of_board = view.batch.board_hosts
    counts = np.bincount(host_of_board)
    busy = np.bincount(host_of_board[snapshot.busy], minlength=len(counts))
    return (busy / np.maximum(counts, 1))[host_of_board]


def _lab_utilisation(view: View) -> Floats:
    snapshot = view.batch.snapshot
    busy = snapshot.busy[snapshot.online]
    return np.full(len(snapshot.online), busy.mean() if len(busy) else np.nan)


def _log_family_queue(view: View) -> Floats:
    batch = view.batch
    waiting = np.bincount(batch.class_of_job, minlength=len(batch.families))
    names = np.array(batch.families, dtype=np.str_)
    online = batch.board_families[batch.snapshot.online]
    of_family = {
        name: (waiting[names == name].sum(), np.count_nonzero(online == name))
        for name in set(batch.families)
    }
    found = np.full(len(batch.families), np.nan)
    for row, name in enumerate(batch.families):
        count, boards = of_family[name]
        if boards:
            found[row] = np.log1p(count / boards)
    return found


def _hour(view: View, turn: Callable[[float], float]) -> Floats:
    share = seconds_of_day(view.batch.now) / 86400.0
    return np.full(len(view.batch.snapshot.uids), turn(2.0 * math.pi * share))


def _resources_needed(view: View) -> Floats:
    resources = view.batch.resources
    if resources is None:
        return np.full(view.batch.shape[0], np.nan)
    largest = resources.total.max(axis=0)
    shares: Floats = (resources.needs / np.where(largest > 0.0, largest, 1.0)).mean(axis=1)
    return shares


def _of_resources(shares: Callable[[Resources, Pairs], Floats]) -> Callable[[View], Floats]:
    def read(view: View) -> Floats:
        if view.batch.resources is None:
            return np.full(len(view.rows), np.nan)
        starts = np.searchsorted(view.rows, np.arange(view.batch.shape[0] + 1))
        pairs = Pairs(rows=view.rows, boards=view.boards, starts=starts)
        return shares(view.batch.resources, pairs)

    return read


def _log(values: NDArray[np.generic]) -> Floats:
    """Natural logarithm; NaN where there is nothing to take it of."""
    numbers = np.asarray(values, dtype=np.float64)
    return np.log(np.where(numbers > 0, numbers, np.nan))


COLUMNS: Mapping[str, Column] = {
    "log_nb_inference": Column(
        ColumnAxis.CLASS,
        "bb42c0b0",
        "ln of the runs asked for",
        lambda view: _log(np.array([each.nb_inference for each in view.batch.kinds])),
    ),
    "log_bound_s": Column(
        ColumnAxis.CLASS,
        "4df74b49",
        "ln of the time after which an attempt is ended, seconds: by `user_time`, or the server's "
        "bound without one, and by the budget",
        lambda view: _log(view.batch.time_limits_s),
    ),
    "log_budget": Column(
        ColumnAxis.CLASS,
        "6fc14848",
        "ln of the credits that one attempt may cost (`user_budget`); missing without one",
        lambda view: _log(view.batch.budgets),
    ),
    "log_asked_ram_bytes": Column(
        ColumnAxis.CLASS,
        "085224fc",
        "ln of the RAM asked for, bytes; missing where none was",
        lambda view: _log(view.batch.ram_bytes),
    ),
    "log_model_bytes": Column(
        ColumnAxis.CLASS,
        "1cc58c07",
        "ln of the model file's size, bytes; missing until it is fetched",
        lambda view: _log(view.batch.model_bytes),
    ),
    "engine_ort": Column(ColumnAxis.CLASS, "c0a07a83", "1 for ONNX Runtime", _engine("ort")),
    "engine_tflite": Column(
        ColumnAxis.CLASS, "90e2549a", "1 for TensorFlow Lite", _engine("tflite")
    ),
    "type_1": Column(ColumnAxis.CLASS, "80773204", "1 for TYPE1", _type("TYPE1")),
    "type_2": Column(ColumnAxis.CLASS, "b4c54a24", "1 for TYPE2", _type("TYPE2")),
    "type_3": Column(ColumnAxis.CLASS, "c0507e71", "1 for TYPE3", _type("TYPE3")),
    "log_family_queue": Column(
        ColumnAxis.CLASS,
        "f5422687",
        "ln of 1 + the benchmarks that wait for the family, for each of its online boards; missing "
        "where none is online",
        _log_family_queue,
    ),
    "log_board_ram_bytes": Column(
        ColumnAxis.BOARD,
        "75a93cdf",
        "ln of the board's RAM, bytes",
        lambda view: _log(view.batch.snapshot.ram_bytes),
    ),
    "log_board_cores": Column(
        ColumnAxis.BOARD,
        "1449b187",
        "log2 of the attribute cpu.cores; missing where the host states none",
        _cores,
    ),
    "host_cpu": Column(
        ColumnAxis.BOARD,
        "602a1694",
        "load of the host's CPUs, 0-1; missing where it reported none lately",
        _host_load("cpu"),
    ),
    "host_memory": Column(
        ColumnAxis.BOARD,
        "837e91af",
        "load of the host's memory, 0-1; missing as before",
        _host_load("memory"),
    ),
    "host_busy": Column(
        ColumnAxis.BOARD, "7fb011bf", "share of the host's boards that are busy", _host_busy
    ),
    "lab_utilisation": Column(
        ColumnAxis.BOARD,
        "ebc1cab9",
        "share of all online boards that are busy, the same for each board; missing where none is "
        "online",
        _lab_utilisation,
    ),
    "hour_sin": Column(
        ColumnAxis.BOARD,
        "f5aa240f",
        "sine of the hour of the day, UTC, as an angle, the same for each board",
        lambda view: _hour(view, np.sin),
    ),
    "hour_cos": Column(
        ColumnAxis.BOARD,
        "4b68cc8f",
        "cosine of the hour of the day, as before",
        lambda view: _hour(view, np.cos),
    ),
    "log_history_s": Column(
        ColumnAxis.PAIR,
        "20d0c574",
        "ln of the seconds that the history expects; missing where it knows nothing",
        lambda view: view.distribution.location,
    ),
    "history_spread": Column(
        ColumnAxis.PAIR,
        "a47a133c",
        "scale of the history's distribution of ln seconds",
        lambda view: np.sqrt(view.distribution.noise + view.distribution.error),
    ),
    "history_error": Column(
        ColumnAxis.PAIR,
        "97a9c6ec",
        "standard error of these ln seconds: small where there are many past runs of the kind",
        lambda view: np.sqrt(view.distribution.error),
    ),
    "log_loading_s": Column(
        ColumnAxis.PAIR,
        "1759ede8",
        "ln of the seconds that the history expects from the placement to the start of the task; "
        "missing where it knows nothing",
        lambda view: view.loading.location,
    ),
    "loading_spread": Column(
        ColumnAxis.PAIR,
        "40fb3706",
        "scale of the history's distribution of these ln seconds",
        lambda view: np.sqrt(view.loading.noise + view.loading.error),
    ),
    "loading_error": Column(
        ColumnAxis.PAIR,
        "655d26c4",
        "standard error of these ln seconds, as before",
        lambda view: np.sqrt(view.loading.error),
    ),
    "incomparable_rate": Column(
        ColumnAxis.PAIR,
        "e7537d5e",
        "chance by the history that the number of a result is not comparable, 0-1; missing where "
        "no number was judged",
        lambda view: view.past.measurement_chances()[0],
    ),
    "model_failure_rate": Column(
        ColumnAxis.PAIR,
        "53d2a72b",
        "chance by the history of a failure that follows what is run, 0-1",
        lambda view: view.causes.model,
    ),
    "board_failure_rate": Column(
        ColumnAxis.PAIR,
        "e95203c3",
        "chance by the history of a failure that follows the board, 0-1",
        lambda view: view.causes.board,
    ),
    "failure_rate": Column(
        ColumnAxis.PAIR,
        "f1a7a260",
        "chance of a failure by the history, 0-1",
        lambda view: view.past.failure_rates(),
    ),
    "resources_needed": Column(
        ColumnAxis.CLASS,
        "8fa3da26",
        "share that the job takes of the largest node, the mean over all resources, 0-1; missing "
        "where a benchmark takes a whole board",
        _resources_needed,
    ),
    "resources_left": Column(
        ColumnAxis.PAIR,
        "37a2fa0f",
        "share of the node that is left after the start, the mean over all resources; missing as "
        "before",
        _of_resources(Resources.left),
    ),
    "resources_aligned": Column(
        ColumnAxis.PAIR,
        "ced0aabb",
        "need times what is free, as shares of the node, the mean over all resources; missing as "
        "before",
        _of_resources(Resources.alignment),
    ),
}


CHANCES = ("failure_rate", "model_failure_rate", "board_failure_rate", "incomparable_rate")
"""Columns of the history's chances: risks rise with them."""


def known(name: str) -> bool:
    """Return whether a model can ask for this input."""
    return name.removesuffix("?") in COLUMNS or bool(EXTRA_INPUT_PATTERN.fullmatch(name))


def _column(name: str) -> Column:
    """Return the column of an input's name that is `known`, without its question mark."""
    if not EXTRA_INPUT_PATTERN.fullmatch(name):
        return COLUMNS[name]

    def read(view: View) -> Floats:
        return np.array([extra_number(each, name) for each in view.batch.extras], np.float64)

    return Column(ColumnAxis.CLASS, "extra", "the number of that name in `extra`", read)


def unrated(batch: Batch, inputs: Iterable[Input]) -> NDArray[np.bool_]:
    """Return which classes a model with these inputs can't rate, because of their ``extra``.

    Returns:
        Shape (classes,).
    """
    found = np.zeros(len(batch.extras), dtype=np.bool_)
    for each in inputs:
        if each.is_extra:
            found |= [
                bool(extra_problem(extra, each.column, required=each.default is None))
                for extra in batch.extras
            ]
    return found


def features_version(names: Iterable[str]) -> str:
    """Return the version of these inputs of a model: a digest of what their columns compute.

    Args:
        names: Of inputs that are `known`, in any order, ``column?`` too.
    """
    columns = sorted({name.removesuffix("?") for name in names})
    text = "\n".join([f"{MAX_VALUE:g}", *(f"{name} {_column(name).digest}" for name in columns)])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class Encoder:
    """The tensor of one batch for one model, chunk by chunk."""

    def __init__(self, batch: Batch, rows: Rows, boards: Rows, inputs: Sequence[Input]) -> None:
        """Read every column once, and normalise it before its values are spread over pairs."""
        self._rows, self._boards = rows, boards
        view = View(batch, rows, boards)
        values: dict[str, Floats] = {}
        self._columns: list[tuple[ColumnAxis, NDArray[np.float32]]] = []
        for each in inputs:
            name = each.column.removesuffix("?")
            column = _column(name)
            if name not in values:
                values[name] = column.read(view)
            ready = _normalised(values[name], each)
            self._columns.append((column.along, ready))

    def chunks(self, size: int) -> Iterator[NDArray[np.float32]]:
        """Yield new arrays of shape (up to ``size``, inputs), in the order of the pairs."""
        for start in range(0, len(self._rows), size):
            part = slice(start, start + size)
            rows, boards = self._rows[part], self._boards[part]
            out = np.empty((len(rows), len(self._columns)), dtype=np.float32)
            for index, (along, ready) in enumerate(self._columns):
                if along is ColumnAxis.CLASS:
                    out[:, index] = ready[rows]
                elif along is ColumnAxis.BOARD:
                    out[:, index] = ready[boards]
                else:
                    out[:, index] = ready[part]
            yield out


def raw(batch: Batch, rows: Rows, boards: Rows, columns: Sequence[str]) -> Mapping[str, Floats]:
    """Return the values of pairs before they are normalised, for fitting ``mean`` and ``scale``."""
    found = {}
    view = View(batch, rows, boards)
    for name in columns:
        column = _column(name)
        values = column.read(view)
        if column.along is ColumnAxis.CLASS:
            values = values[rows]
        elif column.along is ColumnAxis.BOARD:
            values = values[boards]
        found[name] = values
    return found


def normalise(values: Mapping[str, Floats], inputs: Sequence[Input]) -> NDArray[np.float32]:
    """Return what `Encoder` makes of the values of `raw`; shape (pairs, inputs)."""
    columns = [_normalised(values[each.column.removesuffix("?")], each) for each in inputs]
    return np.stack(columns, axis=1)


def _normalised(values: Floats, wanted: Input) -> NDArray[np.float32]:
    if wanted.column.endswith("?"):
        return (~np.isnan(values)).astype(np.float32)
    if wanted.default is not None:
        values = np.where(np.isnan(values), wanted.default, values)
    scaled = np.clip((values - wanted.mean) / wanted.scale, -MAX_VALUE, MAX_VALUE)
    return np.where(np.isnan(scaled), 0.0, scaled).astype(np.float32)
