"""Logs in the Standard Workload Format (SWF): 18 fields a line, comments begin with ``;``.

Source: Chapin et al., "Benchmarks and Standards for the Evaluation of Parallel Job Schedulers",
JSSPP 1999; https://www.cs.huji.ac.il/labs/parallel/workload/swf.html.

The standard writes -1 for a value that is not known. Which jobs are kept, and how: one without a
job number or a submit time is left out, as is one with a run time of 0 (it never ran); a negative
run time (unknown, or cancelled before it started) counts as 10 s; processors are the greater of
those allocated and those requested, 1 where neither is known; a job without a requested time
requests its run time; all jobs without a user are one user's. `Log.notes` counts each of these.
Jobs are numbered in the order of their job number. Everything else that is wrong is an error that
names the line and the field.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from edgeyard.errors import FieldError, InvalidInput
from edgeyard.simulator.importers.text import opened_lines
from edgeyard.simulator.wording import count_of

UNKNOWN_RUN_S = 10.0
"""Run time of jobs whose run time is negative."""

_UNKNOWN = -1
_FIELDS = 18
_NAMES = {1: "job number", 2: "submit time", 4: "run time", 5: "allocated processors",
          8: "requested processors", 9: "requested time", 12: "user"}  # fmt: skip
_JOB, _SUBMIT, _RUN, _ALLOCATED, _PROCS, _REQUESTED, _USER = 0, 1, 3, 4, 7, 8, 11
_CHUNK_LINES = 50_000
_SHOWN = 40
MAX_PROCESSORS = 2**31 - 1
_MAX_WHOLE = 2.0**53
_MAX_SECONDS = 1e11
"""The year 5138: a later time is a mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderValue:
    """What a line of the header states: its number from 1, the name and the first word."""

    line: int
    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Log:
    """The kept jobs of a log in the order of their job number; shape (jobs,) each.

    Attributes:
        path: Where it was read from.
        job: Job numbers.
        submit: Seconds of the log's clock.
        run: Seconds, above 0.
        requested: Seconds that the user asked for, never negative.
        procs: Processors, from 1.
        user: User numbers; -1: unknown, one user as far as simulations are concerned.
        line: Line of the file, from 1.
        max_procs: Processors of the machine, as the header states them; None: it does not.
        unusable_size: The last size of the machine in the header that is no number of processors.
        notes: Which jobs of the whole log the rules left out or completed, in words with their
            number.
    """

    path: Path
    job: NDArray[np.int64]
    submit: NDArray[np.float64]
    run: NDArray[np.float64]
    requested: NDArray[np.float64]
    procs: NDArray[np.int64]
    user: NDArray[np.int64]
    line: NDArray[np.int64]
    max_procs: int | None
    unusable_size: HeaderValue | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.job)

    def part(self, skip: int = 0, count: int | None = None) -> Log:
        """Return the kept jobs without the first ``skip``, at most ``count`` of them."""
        wanted = slice(skip, None if count is None else skip + count)
        columns = ("job", "submit", "run", "requested", "procs", "user", "line")
        return replace(self, **{name: getattr(self, name)[wanted] for name in columns})


def read_swf(path: Path, advanced: Callable[[float], None] = lambda share: None) -> Log:
    """Read a log, plain or compressed by gzip.

    Args:
        path: The file; its content, not its name, decides whether it is compressed.
        advanced: Called now and then with the share of the file that was read.

    Raises:
        InvalidInput: A line that is no job; the error names the line and the field. Or the file is
            no such text.
        OSError: The file can't be read.
    """
    header = _Header()
    chunks: list[NDArray[np.float64]] = []
    numbers: list[NDArray[np.int64]] = []
    with opened_lines(path, advanced, encoding="latin-1") as lines:
        data = _data_lines(lines, header)
        while chunk := list(islice(data, _CHUNK_LINES)):
            chunks.append(_parsed(path, chunk))
            numbers.append(np.array([number for number, _ in chunk], dtype=np.int64))
    if not chunks:
        raise _error(path, None, "the file has no jobs", "lines of 18 fields")
    table, line = np.concatenate(chunks), np.concatenate(numbers)
    return _kept(path, table, line, header)


@dataclass(slots=True)
class _Header:
    """What the header says of the machine's size, by the name of its line."""

    sizes: dict[str, int] = field(default_factory=dict)
    unusable: HeaderValue | None = None

    def read(self, number: int, line: str) -> None:
        name, _, value = (part.strip() for part in line[1:].partition(":"))
        if name not in ("MaxProcs", "MaxNodes"):
            return
        text = next(iter(value.split()), "")
        if text.isdecimal() and len(text) <= _SHOWN and 0 < int(text) <= MAX_PROCESSORS:
            self.sizes[name] = int(text)
        else:
            self.unusable = HeaderValue(line=number, name=name, text=text)


def _data_lines(lines: Iterable[str], header: _Header) -> Iterator[tuple[int, str]]:
    """Yield lines of jobs with their number, and read what the header says of the machine."""
    for number, line in enumerate(lines, 1):
        if line.startswith(";"):
            header.read(number, line)
        elif line and not line.isspace():
            yield number, line


def _parsed(path: Path, chunk: list[tuple[int, str]]) -> NDArray[np.float64]:
    """Return the fields of some lines, shape (lines, 18)."""
    try:
        table = np.loadtxt([line for _, line in chunk], comments=None, ndmin=2, dtype=np.float64)
    except ValueError:
        table = None
    if table is not None and table.shape[1] == _FIELDS:
        return table
    for number, line in chunk:  # something is wrong: find out where
        fields = line.split()
        if len(fields) != _FIELDS:
            found = f"has {count_of(len(fields), 'field')}"
            raise _error(path, number, found, f"{_FIELDS} fields")
        for position, text in enumerate(fields, 1):
            if not _is_number(text):
                reason = f"{_named(position)} is {_shown(text)}"
                raise _error(path, number, reason, "a number")
    raise _error(path, chunk[0][0], "this line or a later one cannot be read", f"{_FIELDS} fields")


def _is_number(text: str) -> bool:
    """Return whether NumPy reads it as a number; unlike Python it refuses 1_000."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _kept(path: Path, table: NDArray[np.float64], line: NDArray[np.int64], header: _Header) -> Log:
    columns = (_JOB, _SUBMIT, _RUN, _ALLOCATED, _PROCS, _REQUESTED, _USER)
    for column in columns:
        values = table[:, column]
        _refuse(path, line, column, values, ~np.isfinite(values), "a finite number")
    for column, limit in (
        (_JOB, _MAX_WHOLE),
        (_ALLOCATED, float(MAX_PROCESSORS)),
        (_PROCS, float(MAX_PROCESSORS)),
        (_USER, _MAX_WHOLE),
        (_SUBMIT, _MAX_SECONDS),
        (_RUN, _MAX_SECONDS),
        (_REQUESTED, _MAX_SECONDS),
    ):
        values = table[:, column]
        _refuse(path, line, column, values, np.abs(values) > limit, f"at most {limit:.0f}")
    for column in (_JOB, _ALLOCATED, _PROCS, _USER):
        values = table[:, column]
        _refuse(path, line, column, values, values != np.floor(values), "a whole number")
    unnumbered, never = table[:, _JOB] == _UNKNOWN, table[:, _SUBMIT] == _UNKNOWN
    known = ~(unnumbered | never)
    for column in (_JOB, _SUBMIT):
        values = table[:, column]
        _refuse(path, line, column, values, (values < 0) & known, "0 or more, or -1: not known")
    table, line = table[known], line[known]

    order = np.argsort(table[:, _JOB], kind="stable")
    table, line = table[order], line[order]
    again = np.flatnonzero(table[1:, _JOB] == table[:-1, _JOB])
    if len(again):
        first = int(again[0])
        raise _error(
            path,
            int(line[first + 1]),
            f"{_named(1)} {table[first, _JOB]:.0f} occurs twice: on line {line[first]} too",
            "one line for each job; for a job that was stopped and continued, only the line of "
            "the whole job",
        )
    ran = table[:, _RUN] != 0
    table, line = table[ran], line[ran]
    if not len(table):
        reason = "every job has run time 0, or no job number or submit time, so no job is left"
        raise _error(path, None, reason)
    run = np.where(table[:, _RUN] < 0, UNKNOWN_RUN_S, table[:, _RUN])
    procs = np.maximum(table[:, _ALLOCATED], table[:, _PROCS])
    notes = (
        (unnumbered.sum(), "without a job number left out"),
        ((never & ~unnumbered).sum(), "without a submit time left out"),
        ((~ran).sum(), "with run time 0 left out"),
        ((table[:, _RUN] < 0).sum(), "with a negative run time counted as 10 s"),
        ((procs < 1).sum(), "without processors counted as one processor"),
        (
            (table[:, _REQUESTED] < 0).sum(),
            "without a requested time taken to request the run time",
        ),
        ((table[:, _USER] < 0).sum(), "without a user counted as one user's"),
    )
    return Log(
        path=path,
        job=table[:, _JOB].astype(np.int64),
        submit=table[:, _SUBMIT].copy(),
        run=run,
        requested=np.where(table[:, _REQUESTED] < 0, run, table[:, _REQUESTED]),
        procs=np.maximum(procs, 1).astype(np.int64),
        user=table[:, _USER].astype(np.int64),
        line=line,
        max_procs=header.sizes.get("MaxProcs") or header.sizes.get("MaxNodes"),
        unusable_size=header.unusable,
        notes=tuple(f"{count_of(int(count), 'job')} {what}" for count, what in notes if count),
    )


def refuse_large_jobs(log: Log, processors: int) -> None:
    """Check that every job fits the machine.

    Raises:
        InvalidInput: A job needs more processors than there are.
    """
    large = np.flatnonzero(log.procs > processors)
    if len(large):
        first = large[np.argmin(log.line[large])]
        raise _error(
            log.path,
            int(log.line[first]),
            f"fields 5 and 8 (processors): job {log.job[first]} needs {log.procs[first]}, "
            f"and the machine has {processors}",
            f"--procs {log.procs.max()} or more, which is enough for all jobs",
        )


def _refuse(
    path: Path,
    line: NDArray[np.int64],
    column: int,
    values: NDArray[np.float64],
    wrong: NDArray[np.bool_],
    accepted: str,
) -> None:
    """Raise an error for the first value that is wrong, if there is one."""
    if not wrong.any():
        return
    first = int(np.argmax(wrong))
    value = float(values[first])
    shown = str(value) if not math.isfinite(value) else f"{value:.15g}"
    raise _error(path, int(line[first]), f"{_named(column + 1)} is {shown}", accepted)


def _named(field: int) -> str:
    name = _NAMES.get(field)
    return f"field {field} ({name})" if name else f"field {field}"


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def _error(path: Path, line: int | None, reason: str, accepted: str = "") -> InvalidInput:
    where = str(path) if line is None else f"{path}, line {line}"
    return InvalidInput([FieldError(where, reason, accepted)])


def no_processors(log: Log, flag: str = "--procs with a number") -> NoReturn:
    """Raise the error for a log whose header states no size of the machine that can be used.

    Args:
        flag: What states it instead.
    """
    found = log.unusable_size
    if found is not None:
        accepted = f"a whole number from 1 to {MAX_PROCESSORS}, or {flag}"
        reason = f"{found.name} is {_shown(found.text)}"
        raise _error(log.path, found.line, reason, accepted)
    raise _error(log.path, None, "the header states neither MaxProcs nor MaxNodes", flag)
