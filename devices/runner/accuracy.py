"""TYPE2: how often a model is right on a dataset, and how long it takes."""

from __future__ import annotations

import gc
import math
import time
from dataclasses import dataclass
from typing import IO, Callable, Dict, Iterator, List, Mapping, Optional, Sequence

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.runner.conditions import Watch
from edgeyard.devices.runner.dataset import Dataset, numbered
from edgeyard.devices.runner.engine import Progress, Session, TensorSpec
from edgeyard.devices.runner.feeds import Feeds
from edgeyard.devices.runner.first_run import first_outputs
from edgeyard.devices.runner.interval import wilson_interval
from edgeyard.devices.runner.measure import (
    MEASURED_PERCENT,
    WARMED_PERCENT,
    Clock,
    Measurement,
    check_finite,
    collections_paused,
    timed_runs,
    warming,
)
from edgeyard.devices.runner.metrics import Metric, classes_of, label_problem
from edgeyard.devices.runner.quantization import real_values
from edgeyard.devices.runner.trust import (
    Reason,
    doubted,
    judge,
    labels_not_given,
    labels_shifted,
)
from edgeyard.devices.runner.warmup import warm_up
from edgeyard.errors import RunFailed

_REPORT_INTERVAL_S = 0.25


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Predictions of the model, row by row.

    Attributes:
        measurement: Latencies of batches.
        ranked: Shape (rows, k): the most likely classes, best first.
        labels: Shape (rows,); None: the dataset has none, so that no accuracy is known.
        top: Share of rows whose class is among the first k, by k.
        classes: Scores per row; 0 where the model returns classes itself.
        batch_size: Rows per run.
        numbers: Of another metric; None: ``top`` says how often classes were right.
    """

    measurement: Measurement
    ranked: NDArray[np.int64]
    labels: Optional[NDArray[np.int64]]
    top: Mapping[int, float]
    classes: int
    batch_size: int
    numbers: Optional[Mapping[str, object]] = None
    rows: int = 0

    def as_json(self) -> Mapping[str, object]:
        """Return the values as the report contains them."""
        if self.numbers is not None:
            return {"rows": self.rows, "batch_size": self.batch_size, **self.numbers}
        rows = 0 if self.labels is None else len(self.labels)
        low, high = wilson_interval(round(self.top[1] * rows), rows)
        return {
            "rows": rows,
            "classes": self.classes or None,
            "batch_size": self.batch_size,
            "top1": self.top[1],
            "top1_ci95": [low, high],
            "top5": self.top.get(5),
            "top_k": {str(k): share for k, share in self.top.items()},
        }


def batch_size_of(inputs: Sequence[TensorSpec], wish: object) -> int:
    """Rows a run: the model's own batch where it is fixed, else what was wished, else 1.

    Raises:
        RunFailed: ``user_input``: no whole number, or not the model's.
    """
    fixed = {spec.shape[0] for spec in inputs if spec.shape and isinstance(spec.shape[0], int)}
    sizes = {size for size in fixed if isinstance(size, int) and size > 0}
    if wish is None:
        return next(iter(sizes)) if len(sizes) == 1 else 1
    if type(wish) is not int or not 1 <= wish <= 65536:
        raise RunFailed("user_input", "parameters/batch_size: not a whole number from 1 to 65536")
    if sizes - {wish}:
        raise RunFailed(
            "user_input", f"parameters/batch_size: the model takes {min(sizes)} rows, not {wish}"
        )
    return wish


def evaluate(
    session: Session,
    dataset: Dataset,
    batch_size: int,
    watch: Watch,
    progress: Progress,
    *,
    clock: Clock = time.perf_counter_ns,
    max_warmup_s: float = math.inf,
    outputs: Optional[IO[bytes]] = None,
    metric: Optional[Metric] = None,
) -> Accuracy:
    """Warm up on the first batch, then run every row once.

    Args:
        outputs: Where the model's output of every row goes, as it is; None: nowhere.
        metric: Compares outputs with the dataset's truth; None: classes are counted.

    Raises:
        RunFailed: ``user_input``: outputs and labels don't fit; ``user_model``: NaN; and what
            `Session.run` raises.
    """
    rows = dataset.rows
    first = _padded(dataset.batch(0, min(batch_size, rows)), batch_size)
    began = clock()
    values = first_outputs(session, first)
    first_ms = (clock() - began) / 1e6
    check_finite(session, values)
    index, classes = _index(session, dataset), 0
    output = session.outputs[index]
    read: Callable[[object], NDArray[np.int64]] = _nothing
    if dataset.labels is not None:
        classes = _classes(session, index, real_values(values[index], output), batch_size)
        dataset = numbered(dataset, classes)
        read = _reader(output, dataset, classes)
    gc.collect()
    with collections_paused():
        warmup = warm_up(
            warming(lambda count: timed_runs(session.run, first, count, clock), progress),
            max_warmup_s,
        )
        progress(WARMED_PERCENT, "measuring")
        latencies: List[float] = []
        ranked: List[NDArray[np.int64]] = []
        reported_at = time.monotonic()
        watch.start()
        for start in range(0, rows, batch_size):
            end = min(start + batch_size, rows)
            feeds = _padded(dataset.batch(start, end), batch_size)
            began = clock()
            values = session.run(feeds)
            latencies.append((clock() - began) / 1e6)
            check_finite(session, values)
            real = real_values(values[index], output)
            ranked.append(read(real)[: end - start])
            if metric is not None and dataset.truth is not None:
                metric.add(
                    _rows_of(real, output.name, end - start, batch_size),
                    dataset.truth[start:end],
                )
            if outputs is not None:
                outputs.write(_row_bytes(values[index], end - start, batch_size))
            if time.monotonic() - reported_at >= _REPORT_INTERVAL_S:
                reported_at = time.monotonic()
                watch.look()
                progress(
                    WARMED_PERCENT + (MEASURED_PERCENT - WARMED_PERCENT) * end / rows, "measuring"
                )
        conditions = watch.stop()
    series = np.array(latencies)
    all_ranked = np.concatenate(ranked)
    reasons = [
        *dataset.input_reasons(),
        *(_label_reasons(all_ranked, dataset.labels, classes) if metric is None else ()),
        *(() if metric is None else metric.reasons()),
    ]
    return Accuracy(
        measurement=Measurement(
            latencies_ms=series,
            warmup=warmup,
            conditions=conditions,
            verdict=doubted(judge(series, conditions, warmup=warmup), reasons),
            first_ms=first_ms,
            rows_a_run=batch_size,
        ),
        ranked=all_ranked,
        labels=dataset.labels,
        top=_top(all_ranked, dataset),
        classes=classes,
        batch_size=batch_size,
        numbers=None if metric is None else metric.result(),
        rows=rows,
    )


def _padded(feeds: Feeds, batch_size: int) -> Feeds:
    """Return batches; the last one repeats its last row up to the size that the model takes."""
    padded: Dict[str, NDArray[np.generic]] = {}
    for name, rows in feeds.items():
        lacking = batch_size - len(rows) if rows.ndim else 0
        padded[name] = (
            np.concatenate([rows, np.repeat(rows[-1:], lacking, axis=0)]) if lacking else rows
        )
    return padded


def _reader(
    output: TensorSpec, dataset: Dataset, classes: int
) -> Callable[[object], NDArray[np.int64]]:
    """Return how classes are read from an output: shape (rows, k), best first.

    Raises:
        RunFailed: ``user_input``: the model cannot give a class of the dataset.
    """
    assert dataset.labels is not None
    if problem := label_problem(dataset.labels, classes, output.classes, output.name):
        raise RunFailed("user_input", f"the dataset has {problem}")
    max_k = min(max(dataset.preprocessing.top_k), classes) if classes else 1

    def read(value: object) -> NDArray[np.int64]:
        array = np.asarray(value)
        if not classes:
            return array.reshape(-1, 1).astype(np.int64)
        scores = array.reshape(len(array), classes)
        # stable: of equal scores the lower class counts first, on every machine
        return np.argsort(-scores.astype(np.float64), axis=1, kind="stable")[:, :max_k]

    return read


def _nothing(value: object) -> NDArray[np.int64]:
    """Read no classes: there is nothing to compare them with."""
    return np.zeros((0, 0), dtype=np.int64)


def _label_reasons(
    ranked: NDArray[np.int64], labels: Optional[NDArray[np.int64]], classes: int
) -> Iterator[Reason]:
    """State what speaks against the classes of a dataset being those of the model.

    Args:
        ranked: Shape (rows, k): classes that the model gave, best first.
        labels: Shape (rows,); None: there are none.
        classes: That the model has; 0: not known.
    """
    if labels is None:
        return
    given, rows = ranked[:, 0], len(labels)
    if not classes:
        numbers, counts = np.unique(labels, return_counts=True)
        by_class = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
        yield from labels_not_given(by_class, np.unique(given).tolist())
    by_step = {step: int((given == labels + step).sum()) for step in (1, -1)}
    yield from labels_shifted(int((given == labels).sum()), by_step, rows, "rows")


def _rows_of(value: object, name: str, rows: int, batch_size: int) -> NDArray[np.generic]:
    """Return the output of a batch's rows.

    Raises:
        RunFailed: ``user_input``: it has no dimension for rows.
    """
    if not isinstance(value, np.ndarray) or value.ndim == 0 or len(value) != batch_size:
        shape = list(value.shape) if isinstance(value, np.ndarray) else type(value).__name__
        raise RunFailed(
            "user_input",
            f"output {name!r} is {shape}; a metric needs a value for each of {batch_size} rows; "
            "name another output by preprocessing/output",
        )
    return value[:rows]


def _row_bytes(value: object, rows: int, batch_size: int) -> bytes:
    """The output of a batch's rows, little-endian; all of it where it has none of its own a row."""
    array = np.asarray(value)
    if array.ndim and len(array) == batch_size:
        array = array[:rows]
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def _index(session: Session, dataset: Dataset) -> int:
    """Return which output is read."""
    names = [spec.name for spec in session.outputs]
    wish: Optional[str] = dataset.preprocessing.output
    if wish is not None and wish not in names:
        raise RunFailed(
            "user_input",
            f"preprocessing/output: the model has no output {wish!r}; it has {', '.join(names)}",
        )
    return names.index(wish) if wish is not None else 0


def _classes(session: Session, index: int, value: object, batch_size: int) -> int:
    """Return how many scores a row of an output has; 0: it holds class numbers.

    Args:
        session: Of the model.
        index: Which output.
        value: Of the output, for a batch.
        batch_size: Rows of the batch.

    Raises:
        RunFailed: ``user_input``: it is neither.
    """
    shape, numbers = f"is a {type(value).__name__}", False
    if isinstance(value, np.ndarray):
        numbers = value.dtype.kind in "fiu"
        shape = f"is {list(value.shape)}" if numbers else "holds text, not numbers"
        if numbers and value.ndim and len(value) == batch_size:
            per_row = value.size // batch_size
            if value.dtype.kind in "iu" and per_row == 1:
                return 0
            if classes := classes_of(value.shape[1:]):
                return classes
    others = [
        spec.name
        for at, spec in enumerate(session.outputs)
        if at != index and spec.dtype.startswith(("float", "int", "uint"))
    ]
    advice = "the model has no other output of numbers"
    if others:
        advice = f"name another one by preprocessing/output: {', '.join(others)}"
    elif numbers:
        advice += (
            ", so compare it by parameters/metric regression or by a metric of your own "
            "(client.evaluate)"
        )
    raise RunFailed(
        "user_input",
        f"output {session.outputs[index].name!r} {shape}; accuracy needs one score a class for "
        f"each of {batch_size} rows, or class numbers; {advice}",
    )


def _top(ranked: NDArray[np.int64], dataset: Dataset) -> Mapping[int, float]:
    if dataset.labels is None:
        return {}
    hits = ranked == dataset.labels[:, None]
    return {
        k: float(hits[:, :k].any(axis=1).mean())
        for k in dataset.preprocessing.top_k
        if k <= ranked.shape[1]
    }
