"""CSV files as columns: read in chunks, each wrong cell refused with its line and field."""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeyard.errors import InvalidInput
from edgeyard.simulator.importers.text import opened_lines

MAX_ROWS = 2_000_000
"""Maximum rows of one file."""

MAX_SECONDS = 1e11
"""Maximum time (the year 5138); a later one is a mistake."""

_CHUNK_ROWS = 50_000
_SHOWN = 40

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A column of numbers.

    Attributes:
        names: Its name, and other names by which some files call it.
        low: Smallest value.
        high: Largest value.
        whole: Only whole numbers.
        empty: Value of an empty cell; None: it must not be empty.
        missing: Value of all cells if there is no such column; None: it must be there.
        parse: Turns the text of a cell into a number.
    """

    names: tuple[str, ...]
    low: float = 0.0
    high: float = MAX_SECONDS
    whole: bool = False
    empty: float | None = None
    missing: float | None = None
    parse: Callable[[str], float] = float


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A column of texts; see `Number`.

    Attributes:
        needed: An empty cell is an error.
    """

    names: tuple[str, ...]
    needed: bool = False
    missing: str | None = None


Spec = Mapping[str, Number | Word]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """The columns of a file; shape (rows,) each.

    Attributes:
        path: Of the file.
        header: Its names of the columns, by ours; those that are missing are left out.
        line: Line of each row, from 1.
    """

    path: Path
    header: Mapping[str, str]
    line: NDArray[np.int64]
    numbers: Mapping[str, Floats]
    words: Mapping[str, list[str]]

    def __len__(self) -> int:
        return len(self.line)

    def refuse(self, name: str, wrong: NDArray[np.bool_], accepted: str, reason: str = "") -> None:
        """Raise an error for the first row that is wrong, if there is one.

        Args:
            name: Of the column.
            wrong: Shape (rows,).
            accepted: What would be right.
            reason: Instead of the value of the cell.

        Raises:
            InvalidInput: There is one.
        """
        if wrong.any():
            row = int(np.argmax(wrong))
            value = self.numbers[name][row] if name in self.numbers else self.words[name][row]
            shown = f"{value:.15g}" if isinstance(value, float) else repr(value)
            raise _error(
                self.path,
                int(self.line[row]),
                f"field {self.header.get(name, name)}: {reason or f'is {shown}'}",
                accepted,
            )


def read_columns(
    path: Path, wanted: Spec, advanced: Callable[[float], None] = lambda share: None
) -> Columns:
    """Read some columns of a CSV file, plain or compressed by gzip, with a header.

    Args:
        path: The file.
        wanted: The columns by our names; other columns of the file are ignored.
        advanced: Called now and then with the share of the file that was read.

    Raises:
        InvalidInput: A column is missing, or a line is wrong; names line and field.
        OSError: The file can't be read.
    """
    with opened_lines(path, advanced, encoding="utf-8-sig") as lines:
        reader = csv.reader(lines, strict=True)
        try:
            header = [cell.strip() for cell in next(reader, ())]
            places = _places(path, header, wanted)
            return _read(path, reader, header, places, wanted)
        except csv.Error as error:
            raise _error(path, reader.line_num, f"is not valid CSV: {error}") from error


def _places(path: Path, header: Sequence[str], wanted: Spec) -> dict[str, int]:
    """Return the place of each wanted column that the file has."""
    if not any(header):
        raise _error(path, 1, "the header is missing", _expected(wanted))
    twice = {cell for cell in header if cell and header.count(cell) > 1}
    places = {}
    for name, column in wanted.items():
        found = [header.index(each) for each in column.names if each in header]
        if found:
            places[name] = found[0]
            if header[found[0]] in twice:
                raise _error(path, 1, f"the header has the column {header[found[0]]} twice")
        elif column.missing is None:
            near = get_close_matches(column.names[0], header, n=1)
            reason = f"the header has no column {' or '.join(column.names)}"
            reason += f"; did you mean {near[0]}?" if near else ""
            raise _error(path, 1, reason, _expected(wanted))
    return places


def _expected(wanted: Spec) -> str:
    needed = [column.names[0] for column in wanted.values() if column.missing is None]
    other = [column.names[0] for column in wanted.values() if column.missing is not None]
    return f"{', '.join(needed)}" + (f"; optional: {', '.join(other)}" if other else "")


def _read(
    path: Path,
    reader: Iterator[list[str]],
    header: Sequence[str],
    places: Mapping[str, int],
    wanted: Spec,
) -> Columns:
    numbers: dict[str, list[Floats]] = {
        name: [] for name, column in wanted.items() if isinstance(column, Number)
    }
    words: dict[str, list[str]] = {
        name: [] for name, column in wanted.items() if isinstance(column, Word)
    }
    lines: list[NDArray[np.int64]] = []
    rows = 0
    data = _rows(path, reader, len(header))
    while chunk := list(islice(data, _CHUNK_ROWS)):
        rows += len(chunk)
        if rows > MAX_ROWS:
            reason = f"has more than {MAX_ROWS:,} rows"
            raise _error(path, chunk[-1][0], reason, f"up to {MAX_ROWS:,} rows: split the file")
        line = np.array([number for number, _ in chunk], dtype=np.int64)
        cells = list(zip(*(row for _, row in chunk), strict=True))
        for name, column in wanted.items():
            if name not in places:
                if isinstance(column, Number):
                    numbers[name].append(np.full(len(chunk), column.missing, dtype=np.float64))
                else:
                    words[name] += [column.missing or ""] * len(chunk)
                continue
            texts, title = cells[places[name]], header[places[name]]
            if isinstance(column, Number):
                numbers[name].append(_parsed(path, line, title, column, texts))
            else:
                if column.needed and "" in texts:
                    row = texts.index("")
                    raise _error(path, int(line[row]), f"field {title} is empty", "text")
                words[name] += map(sys.intern, texts)
        lines.append(line)
    if not rows:
        raise _error(path, None, "has a header, but no rows")
    return Columns(
        path=path,
        header={name: header[place] for name, place in places.items()},
        line=np.concatenate(lines),
        numbers={name: np.concatenate(parts) for name, parts in numbers.items()},
        words=words,
    )


def _rows(path: Path, reader: Iterator[list[str]], fields: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows with their line; empty lines are left out."""
    for row in reader:
        if not row:
            continue
        number: int = reader.line_num  # type: ignore[attr-defined]  # of csv's reader
        if len(row) != fields:
            raise _error(
                path, number, f"has {len(row)} fields", f"{fields} fields, as in the header"
            )
        yield number, row


def _parsed(
    path: Path, line: NDArray[np.int64], title: str, column: Number, texts: Sequence[str]
) -> Floats:
    """Return a column of a chunk as numbers."""
    given = texts
    if column.empty is not None and "" in texts:
        given = ["nan" if text == "" else text for text in texts]
    try:
        if column.parse is float:
            values = np.array(given, dtype=np.float64)
        else:
            values = np.array([column.parse(text) if text else math.nan for text in texts])
    except ValueError:
        values = None
    if values is None:
        for row, text in enumerate(texts):
            try:
                column.parse(text or "nan" if column.empty is not None else text)
            except ValueError:
                shown = repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
                reason = f"field {title} is {shown}" if text else f"field {title} is empty"
                raise _error(path, int(line[row]), reason, "a number") from None
        raise _error(
            path,
            int(line[0]),
            f"field {title} holds text that is not a number, on this line or a later one",
            "numbers",
        )
    empty = np.array([text == "" for text in texts]) if column.empty is not None else None
    wrong = ~np.isfinite(values) if empty is None else ~np.isfinite(values) & ~empty
    wrong |= (values < column.low) | (values > column.high)
    accepted = f"a number from {column.low:.15g} to {column.high:.15g}"
    if column.whole and not wrong.any():
        wrong = (values != np.floor(values)) & np.isfinite(values)
        accepted = "a whole number"
    if wrong.any():
        row = int(np.argmax(wrong))
        raise _error(path, int(line[row]), f"field {title} is {texts[row][:_SHOWN]}", accepted)
    if empty is not None:
        values[empty] = column.empty
    return values


def _error(path: Path, line: int | None, reason: str, accepted: str = "") -> InvalidInput:
    where = str(path) if line is None else f"{path}, line {line}"
    return InvalidInput.at(where, reason, accepted)
