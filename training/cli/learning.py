"""``learn``: train policies in the simulator, and models from what happened."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeyard.benchmark_api.cli.output import Column, console, emit_json, field, show, table
from edgeyard.benchmark_api.cli.output_files import make_folder
from edgeyard.benchmark_api.cli.program import AsJson, add_group
from edgeyard.benchmark_api.cli.progress import progress_bar
from edgeyard.errors import InvalidInput
from edgeyard.simulator.cli.sim_reports import show_notes
from edgeyard.training.cli.learning_a2c import a2c
from edgeyard.training.cli.learning_score import score
from edgeyard.training.cli.training_folder import (
    Generations,
    ModelName,
    TrainingDir,
    TrainingFolder,
)

if TYPE_CHECKING:
    from edgeyard.training.judgement import Judgement
    from edgeyard.training.progress import Progress
    from edgeyard.training.queue_trainer import QueueTraining, WindowSet
    from edgeyard.training.worlds.swf import Log

_COLUMNS = (
    Column(title="LOG", of=field("log"), whole=True),
    Column(title="MEAN", of=field("mean"), right=True, whole=True),
    Column(
        title="95 % INTERVAL", of=field("interval"), right=True, whole=True, from_width=96, yields=4
    ),
    Column(title="MEDIAN", of=field("median"), right=True, whole=True, yields=3),
    Column(title="WORST", of=field("worst"), right=True, whole=True, yields=2),
    Column(title="BEST RULE", of=field("best_rule"), right=True, whole=True),
    Column(title="RATIO", of=field("ratio"), right=True, whole=True),
    Column(title="MAX WAIT", of=field("max_wait"), right=True, whole=True, yields=1),
)


class TrainingMethod(StrEnum):
    """Values of ``--method``."""

    EVOLUTION = "evolution"
    GRADIENT = "gradient"


def queue(
    log: Annotated[
        list[Path],
        typer.Option(
            metavar="LOG",
            help="Log in the Standard Workload Format, plain or .gz; may be repeated.",
        ),
    ],
    out: TrainingDir,
    name: ModelName = "my_queue",
    method: Annotated[
        TrainingMethod,
        typer.Option(help="evolution: CMA-ES; gradient: REINFORCE with a softmax over the queue."),
    ] = TrainingMethod.EVOLUTION,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed of all random draws.")] = 0,
    generations: Generations = 100,
    hidden: Annotated[
        int, typer.Option(metavar="N", min=1, max=64, help="Units of the function's hidden layer.")
    ] = 8,
    procs: Annotated[
        int | None,
        typer.Option(
            metavar="P",
            min=1,
            max=2**31 - 1,
            help="Processors of the machine; default: as each log's header states.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train a queue policy on logs: a small function that scores each job that waits.

    It learns from windows of 1,024 jobs outside the sequences on which it is judged, and the best
    by validation windows is kept. A training that was stopped goes on where it was when the same
    command runs again. The model is written to DIR/NAME.onnx and DIR/NAME.toml: use it with
    sim replay --queue DIR/NAME.toml, or in the service from models_dir.
    """
    from edgeyard.training import queue_trainer as trainer
    from edgeyard.training.export import export_queue
    from edgeyard.training.judgement import judge
    from edgeyard.training.windows import judged_windows, score_ends, training_windows

    _check_name(name)
    settings = trainer.QueueTraining(
        method=trainer.Method(method.value), seed=seed, generations=generations, hidden=hidden
    )
    with progress_bar() as advanced:
        logs = [_read(path, procs, advanced) for path in log]
        make_folder(out, "--out")
        training, validation = trainer.split(
            [training_windows(each, processors) for each, processors in logs]
        )
        progress = _train(settings, training, validation, out, advanced)
    found = {
        each.path.name: judge(
            judged_windows(each, processors),
            lambda window: score_ends(window, progress.best, hidden),
        )
        for each, processors in logs
        if len(each) >= _judged_jobs()
    }
    words = (
        f"{', '.join(each.path.name for each, _ in logs)}; {method.value}, seed {seed}, "
        f"{generations} generations"
    )
    words = "".join(letter for letter in words if letter.isprintable() and letter not in '"\\')
    manifest = export_queue(out, name, progress.best, hidden, words)
    if as_json:
        emit_json(
            {
                "manifest": str(manifest),
                "generations": progress.generation,
                "training_windows": len(training.windows),
                "validation_windows": len(validation.windows),
                "validation_ratio": _ratio(progress),
                "judged": {name: _figures(each) for name, each in found.items()},
            }
        )
        return
    if found:
        rows = [_row(name, each) for name, each in found.items()]
        show(table(rows, _COLUMNS, console().width))
    show(
        "",
        f"{progress.generation} generations on {len(training.windows)} windows; mean bounded "
        f"slowdown on {len(validation.windows)} validation windows: {_ratio(progress):.2f} of the "
        f"best rule's (fcfs, sjf, f1), geometric mean; {manifest}",
    )


def _train(
    settings: QueueTraining,
    training: WindowSet,
    validation: WindowSet,
    out: Path,
    advanced: Callable[[str, float], None],
) -> Progress:
    from edgeyard.training import queue_trainer as trainer

    data = trainer.digest_of(training, validation)
    folder = TrainingFolder(out, settings, data, "ln ratio to the best rule")
    return trainer.train(
        settings,
        training,
        validation,
        folder.begun(),
        folder.save,
        lambda share: advanced("training", share),
    )


def _read(path: Path, procs: int | None, advanced: Callable[[str, float], None]) -> tuple[Log, int]:
    from edgeyard.training.worlds.swf import no_processors, read_swf, refuse_large_jobs

    found = read_swf(path, lambda share: advanced(f"reading {path.name}", share))
    show_notes(found.notes)
    processors = procs or found.max_procs or no_processors(found)
    refuse_large_jobs(found, processors)
    return found, processors


def _judged_jobs() -> int:
    from edgeyard.training.windows import JUDGED_STARTS, WINDOW_JOBS

    return max(JUDGED_STARTS) + WINDOW_JOBS


def _check_name(name: str) -> None:
    from edgeyard.scheduler.learning.queue_model import NAME

    if not NAME.fullmatch(name):
        raise InvalidInput.at(
            "--name",
            f"{name!r} is not a valid model name",
            "a-z, 0-9 and _, beginning with a letter",
        )


def _ratio(progress: Progress) -> float:
    from math import exp

    return exp(progress.best_validation)


def _figures(found: Judgement) -> dict[str, float]:
    from dataclasses import asdict

    return asdict(found)


def _row(name: str, found: Judgement) -> dict[str, object]:
    return {
        "log": name,
        "mean": f"{found.mean:,.1f}",
        "interval": f"{found.low:,.1f}-{found.high:,.1f}",
        "median": f"{found.median:,.1f}",
        "worst": f"{found.worst:,.1f}",
        "best_rule": f"{found.best_rule:,.1f}",
        "ratio": f"{found.ratio:.2f}",
        "max_wait": f"{found.max_wait_s / 3600:,.0f} h",
    }


def add_to(app: typer.Typer) -> None:
    """Register the group with its commands."""
    group = add_group(app, "learn", "Train policies and models.")
    group.command("queue")(queue)
    group.command("a2c")(a2c)
    group.command("score")(score)
