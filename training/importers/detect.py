"""Which importer reads a file, by its name and its first line."""

from __future__ import annotations

import csv
from enum import StrEnum
from pathlib import Path

from edgeyard.errors import InvalidInput
from edgeyard.simulator.importers.text import opened_lines
from edgeyard.simulator.scenario import built_in_scenarios


class TraceFormat(StrEnum):
    """Format of an imported trace."""

    SCENARIO = "scenario"
    SWF = "swf"
    SUPERCLOUD = "supercloud"
    ALIBABA = "alibaba"
    EDGEYARD = "edgeyard"


_BY_COLUMN = {"cpus_req": TraceFormat.SUPERCLOUD, "cpu_milli": TraceFormat.ALIBABA}


def detect_format(path: Path) -> TraceFormat:
    """Return the format of a file or folder.

    Raises:
        InvalidInput: It is none of those that Edgeyard reads.
        OSError: It can't be read.
    """
    names = path.name.removesuffix(".gz")
    if path.is_dir():
        return TraceFormat.EDGEYARD
    if names.endswith((".toml", ".json")) or str(path) in built_in_scenarios():
        return TraceFormat.SCENARIO
    if names.endswith(".swf"):
        return TraceFormat.SWF
    with opened_lines(path, lambda share: None, encoding="utf-8-sig") as lines:
        first = next(lines, "")[:10_000]
    if first.startswith(";"):
        return TraceFormat.SWF
    header = [cell.strip() for row in csv.reader([first]) for cell in row]
    for column, found in _BY_COLUMN.items():
        if column in header:
            return found
    raise InvalidInput.at(
        str(path),
        "the format cannot be recognized from the file's name and first line",
        f"--format {', '.join(TraceFormat)}",
    )
