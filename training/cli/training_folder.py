"""The folder of a training by generations: its checkpoint and its learning curve."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeyard.benchmark_api.cli.output_files import open_output
from edgeyard.benchmark_api.cli.program import echo

if TYPE_CHECKING:
    from edgeyard.training.progress import Progress, TrainingSettings

TrainingDir = Annotated[
    Path,
    typer.Option(
        metavar="DIR", help="Folder for the checkpoint, the learning curve and the model."
    ),
]
ModelName = Annotated[
    str, typer.Option(metavar="NAME", help="Name by which policies use the model.")
]
Generations = Annotated[
    int, typer.Option(metavar="N", min=1, max=100_000, help="Number of generations to train.")
]


class TrainingFolder:
    """What ``learn queue`` keeps while it trains, so that it goes on later."""

    def __init__(self, out: Path, settings: TrainingSettings, data: str, loss: str) -> None:
        """Write nothing before `save`.

        Args:
            out: The folder, which exists.
            settings: Of the training.
            data: Digest of what is learned from.
            loss: What a loss states, for the line after each validation.
        """
        self._checkpoint, self._curve = out / "checkpoint.npz", out / "curve.csv"
        self._settings, self._data, self._loss = settings, data, loss
        self._began = time.monotonic()

    def begun(self) -> Progress | None:
        """Return where the training stopped, and say so; None: it has not begun.

        Raises:
            InvalidInput: The checkpoint can't be read, or belongs to another training.
        """
        from edgeyard.training.progress import load_progress

        if not self._checkpoint.exists():
            return None
        found = load_progress(self._checkpoint, self._settings, self._data)
        where = f"generation {found.generation} of {self._checkpoint}"
        echo(f"edgeyard: going on from {where}", err=True)
        return found

    def save(self, progress: Progress) -> None:
        """Write the curve and the checkpoint, and show the last validation."""
        from edgeyard.training.progress import save_progress

        with open_output(self._curve, "--out") as file:
            file.write(b"generation,training,validation\n")
            file.writelines(
                f"{each.generation},{_number(each.training)},{each.validation:.6f}\n".encode()
                for each in progress.curve
            )
        save_progress(self._checkpoint, progress, self._settings, self._data)
        last = progress.curve[-1]
        echo(
            f"edgeyard: generation {last.generation} of {self._settings.generations}, "
            f"validation {last.validation:+.3f}, best {progress.best_validation:+.3f} "
            f"({self._loss}), {time.monotonic() - self._began:.0f} s",
            err=True,
        )


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6f}"
