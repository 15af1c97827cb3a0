"""Files that commands write where a flag says."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from edgeyard.atomic_files import open_atomically
from edgeyard.errors import InvalidInput, reason_of


def check_matplotlib() -> None:
    """Check that a plot can be drawn, before anything takes long.

    Raises:
        MissingExtra: Matplotlib is not installed.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        from edgeyard.benchmark_api.sdk.errors import MissingExtra

        raise MissingExtra("matplotlib", "plot", "a plot") from error


PLOT_SUFFIXES = (".png", ".svg", ".pdf")


def check_plot(path: Path) -> None:
    """Check the file of ``--plot``, before work is done for it.

    Raises:
        InvalidInput: Its ending is of no drawing, or it can't be written.
    """
    if path.suffix.lower() not in PLOT_SUFFIXES:
        raise InvalidInput.at("--plot", f"can't draw {path.name!r}", ", ".join(PLOT_SUFFIXES))
    check_output(path, "--plot")


def make_folder(folder: Path, flag: str) -> Path:
    """Create a folder, with those above it, if it does not exist, and return it.

    Raises:
        InvalidInput: It can't be created; names the flag.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"{folder} can't be created: {reason_of(error)}"
        raise InvalidInput.at(flag, reason, "a folder") from error
    return folder


def check_output(path: Path, flag: str, example: str = "result") -> None:
    """Check where a file is to be written, before work is done for it.

    Args:
        path: The file.
        flag: Named in errors.
        example: Name of such a file, which is proposed where the path is a folder.

    Raises:
        InvalidInput: It is a folder, its folder or that of its link's target is missing, or the
            user may not write there.
    """
    if path.is_dir():
        raise InvalidInput.at(flag, f"{path} is a folder", f"a file, e.g. {path / example}")
    try:
        target = path.absolute().resolve()
    except RuntimeError:  # Python before 3.13
        raise InvalidInput.at(flag, f"{path} is a link to itself", "a file") from None
    if not target.parent.is_dir():
        missing = target.parent if path.is_symlink() else path.parent
        raise InvalidInput.at(flag, f"there is no folder {missing}")
    if not os.access(path if path.exists() else target.parent, os.W_OK):
        raise InvalidInput.at(flag, f"{path} can't be written", "a file that you may write")


@contextmanager
def open_output(path: Path, flag: str) -> Iterator[IO[bytes]]:
    """Open a file that is written whole or not at all, or a device.

    Raises:
        InvalidInput: Nothing can be written there; names the flag.
    """
    check_output(path, flag)
    try:
        with open_atomically(path) as file:
            yield file
    except BrokenPipeError:  # the reader has seen enough
        raise
    except OSError as error:
        raise InvalidInput.at(flag, f"{path} can't be written: {error}") from error


def write_output(path: Path, flag: str, content: str | bytes) -> None:
    """Write a file whole or not at all; see `open_output`."""
    with open_output(path, flag) as file:
        file.write(content.encode() if isinstance(content, str) else content)
