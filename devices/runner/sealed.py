"""A copy of a file that can't be changed any more, and that is no memory of this process.

Only the standard library; Python 3.10.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Optional

from edgeyard.errors import RunFailed

_ADD_SEALS = getattr(fcntl, "F_ADD_SEALS", 1033)
_ALL_SEALS = 0x1 | 0x2 | 0x4 | 0x8
"""No further seals, no shrinking, no growing, no writing: ``linux/fcntl.h``."""


@contextmanager
def sealed(file: Path, offset: int = 0, size: Optional[int] = None) -> Iterator[Path]:
    """Yield a path to a sealed copy of the file's content, which later changes do not affect.

    What was inspected there is what is loaded there. The content lies in the kernel's memory and
    not in the process's, so that it is no part of what the process is measured to need. Nothing
    lies next to it.

    Args:
        offset: Where the content begins that is copied.
        size: So many bytes; None: up to the end.

    Raises:
        RunFailed: ``board_fault``: it can't be read, or there is no room for the copy.
    """
    try:
        copy = os.memfd_create("model", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        raise RunFailed("board_fault", f"no room for a copy of the model: {error}") from error
    try:
        try:
            with file.open("rb") as source:
                end = source.seek(0, os.SEEK_END) if size is None else offset + size
                while offset < end:
                    done = os.sendfile(copy, source.fileno(), offset, min(2**30, end - offset))
                    if not done:
                        break
                    offset += done
            fcntl.fcntl(copy, _ADD_SEALS, _ALL_SEALS)
        except OSError as error:
            raise RunFailed("board_fault", f"the model can't be read: {error}") from error
        yield Path(f"/proc/self/fd/{copy}")
    finally:
        os.close(copy)
