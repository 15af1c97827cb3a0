"""Tables in pages of the docs that a program writes, between two comments."""

from __future__ import annotations

from pathlib import Path

END = "<!-- end -->"


def write_between(page: Path, begin: str, text: str) -> None:
    """Replace what stands in a page between ``begin`` and the next `END`."""
    before, _, rest = page.read_text("utf-8").partition(begin)
    after = rest.partition(END)[2]
    page.write_text(f"{before}{begin}\n{text}\n{END}{after}", "utf-8")
