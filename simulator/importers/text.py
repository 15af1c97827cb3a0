"""Text files of traces, plain or compressed by gzip, read line by line."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from edgeyard.errors import InvalidInput

PROGRESS_LINES = 50_000
"""Number of lines between reports of the progress."""


@contextmanager
def opened_lines(
    path: Path, advanced: Callable[[float], None], *, encoding: str
) -> Iterator[Iterator[str]]:
    """Open a file for reading by lines.

    Args:
        path: The file; its content, not its name, decides whether it is compressed.
        advanced: Called now and then with the share of the file that was read.
        encoding: Of the text.

    Raises:
        InvalidInput: The compressed file is damaged or cut, or holds other text.
        OSError: The file can't be read.
    """
    number = 0
    with path.open("rb") as file:
        size = max(path.stat().st_size, 1)
        compressed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        raw = gzip.GzipFile(fileobj=file) if compressed else file

        def lines() -> Iterator[str]:
            nonlocal number
            text = io.TextIOWrapper(raw, encoding=encoding, newline="")
            for number, line in enumerate(text):
                if number % PROGRESS_LINES == 0:
                    advanced(min(file.tell() / size, 1.0))
                yield line
            text.detach()

        try:
            yield lines()
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            reason = f"the compressed file is damaged or incomplete: {error}"
            raise InvalidInput.at(str(path), reason) from error
        except UnicodeDecodeError as error:
            where = f"{path}, after line {number + 1}"
            raise InvalidInput.at(where, f"is not {encoding} text: {error.reason}") from error
