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

MAX_LINE_CHARACTERS = 1 << 20
"""Longest line: a thousand times that of a job, and far less than the memory of a machine."""

_GZIP, _UTF8_MARK = b"\x1f\x8b", b"\xef\xbb\xbf"
_OTHERS = {
    _GZIP: ("is compressed by gzip twice", "gzip once, or none: gzip -d FILE"),
    b"\x5d\x00\x00": ("is compressed by lzma", "gzip or none: lzma -d FILE"),
    b"\xfd7zXZ\x00": ("is compressed by xz", "gzip or none: xz -d FILE"),
    b"BZh": ("is compressed by bzip2", "gzip or none: bzip2 -d FILE"),
    b"\x28\xb5\x2f\xfd": ("is compressed by zstd", "gzip or none: zstd -d FILE"),
    b"\x1f\x9d": ("is compressed by compress (.Z)", "gzip or none: gzip -d FILE"),
    b"PK\x03\x04": ("is a ZIP archive", "the text file in it: unzip FILE"),
    b"7z\xbc\xaf\x27\x1c": ("is a 7-Zip archive", "the text file in it: 7z x FILE"),
    b"\xff\xfe": ("is UTF-16 text: it begins with its byte order mark", "UTF-8"),
    b"\xfe\xff": ("is UTF-16 text: it begins with its byte order mark", "UTF-8"),
}
"""First bytes of files that are not read: what they are, and what is read instead."""


@contextmanager
def opened_lines(
    path: Path, advanced: Callable[[float], None], *, encoding: str
) -> Iterator[Iterator[str]]:
    """Open a file for reading by lines.

    The byte order mark of UTF-8 at the beginning is left out.

    Args:
        path: The file; its content, not its name, decides whether it is compressed.
        advanced: Called now and then with the share of the file that was read.
        encoding: Of the text.

    Raises:
        InvalidInput: The compressed file is damaged or cut, holds other text or a line that is too
            long, or is compressed in another way.
        OSError: The file can't be read.
    """
    number = 0
    with path.open("rb") as file:
        size = max(path.stat().st_size, 1)
        compressed = _beginning(file).startswith(_GZIP)
        raw = gzip.GzipFile(fileobj=file) if compressed else file

        def lines() -> Iterator[str]:
            nonlocal number
            start = _beginning(raw)
            for first, (reason, accepted) in _OTHERS.items():
                if start.startswith(first):
                    raise InvalidInput.at(str(path), reason, accepted)
            if start.startswith(_UTF8_MARK):
                raw.read(len(_UTF8_MARK))
            text = io.TextIOWrapper(raw, encoding=encoding, newline="")
            while line := text.readline(MAX_LINE_CHARACTERS + 1):
                if len(line) > MAX_LINE_CHARACTERS:
                    reason = f"is longer than {MAX_LINE_CHARACTERS:,} characters"
                    raise InvalidInput.at(
                        f"{path}, line {number + 1}", reason, "a line for each job"
                    )
                if number % PROGRESS_LINES == 0:
                    advanced(min(file.tell() / size, 1.0))
                number += 1
                yield line
            text.detach()

        try:
            yield lines()
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            reason = f"the compressed file is damaged or incomplete: {error}"
            raise InvalidInput.at(str(path), reason) from error
        except UnicodeDecodeError as error:
            where = f"{path}, after line {number}"
            raise InvalidInput.at(where, f"is not {encoding} text: {error.reason}") from error


def _beginning(file: io.BufferedReader | gzip.GzipFile) -> bytes:
    """Return the first bytes of what is left, which are read again."""
    return file.peek(8)[:8]
