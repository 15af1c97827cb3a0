"""Files that a reader finds with their old content or with the whole new one.

This module is imported on boards too: only the standard library, Python 3.10.
"""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def open_atomically(path: Path, mode: int = 0o666, sync: bool = False) -> Iterator[IO[bytes]]:
    """Open a temporary file of the same folder, which replaces the target when the block ends.

    The target stays as it was if the block raises. A link keeps its place: the file that it names
    is replaced. A device or a pipe is written directly.

    Args:
        path: The target.
        mode: Permissions of the new file, from which the umask is subtracted.
        sync: Whether file and folder are synced, so that the new content survives a power cut.

    Raises:
        OSError: Nothing can be written there.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("wb") as file:
            yield file
        return
    try:
        path = path.resolve()
    except RuntimeError as error:  # Python before 3.13, of links that lead to each other
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(temporary, flags, mode), "wb") as file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if sync:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
