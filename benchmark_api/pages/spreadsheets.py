"""Tables for spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from fastapi.responses import Response


def csv_file(name: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Response:
    """Return a CSV file to be saved; no text in it is a formula for a spreadsheet."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(header)
    for row in rows:
        writer.writerow([_cell(each) for each in row])
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "Cache-Control": "no-store",
    }
    return Response(text.getvalue(), media_type="text/csv", headers=headers)


def csv_of_records(name: str, rows: Sequence[Mapping[str, object]]) -> Response:
    """Return a CSV file of rows by column; what a row lacks is an empty cell."""
    header = list(dict.fromkeys(column for row in rows for column in row))
    return csv_file(name, header, [[row.get(column) for column in header] for row in rows])


def _cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return value
