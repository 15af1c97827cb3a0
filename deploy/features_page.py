"""``make docs``: the reference page of the columns that models may take."""

from __future__ import annotations

from edgeyard.scheduler.learning.features import COLUMNS, MAX_VALUE


def page() -> str:
    """Return the columns as Markdown, for the reference."""
    lines = [
        "# Columns for models",
        "",
        "A manifest names those that its model takes, in order. `<column>?` is 1 where the column",
        "has a value, 0 where it is missing. A value becomes `(value - mean) / scale`, cut at",
        f"{MAX_VALUE:g}; a missing one becomes 0. The digest states what a column computes:",
        "`features` of a manifest is made of the digests of its columns.",
        "",
        "`extra.NAME` is the number of that name in the `extra` of a job description, a value a",
        "class. Its input states `default = NUMBER` or `required = true`.",
        "",
        "| column | one value a | meaning | digest |",
        "| --- | --- | --- | --- |",
        *(
            f"| `{name}` | {each.along} | {each.meaning} | `{each.digest}` |"
            for name, each in COLUMNS.items()
        ),
    ]
    return "\n".join([*lines, ""])
