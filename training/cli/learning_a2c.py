"""``learn a2c``: train the A2cScheduler paper's agent, and judge it."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgeyard.benchmark_api.cli.output import (
    Column,
    console,
    emit_json,
    field,
    json_text,
    show,
    table,
)
from edgeyard.benchmark_api.cli.output_files import (
    check_matplotlib,
    check_output,
    make_folder,
    write_output,
)
from edgeyard.benchmark_api.cli.program import AsJson, echo
from edgeyard.benchmark_api.cli.progress import progress_bar
from edgeyard.errors import InvalidInput, reason_of

if TYPE_CHECKING:
    from edgeyard.training.a2c.judgement import PolicyFigures
    from edgeyard.training.a2c.settings import A2cTraining
    from edgeyard.training.a2c.trainer import Progress, Trainer

CHECKPOINT = "checkpoint.npz"
CURVE = "curve.csv"
JUDGED = "judged.json"
JUDGED_SEQUENCES = 100
JUDGED_COLUMNS = (
    Column(title="POLICY", of=field("policy"), whole=True),
    Column(title="SLOWDOWN", of=field("slowdown"), right=True, whole=True),
    Column(title="95 % INTERVAL", of=field("interval"), right=True, whole=True, yields=3),
    Column(title="TO SJF", of=field("to_sjf"), right=True, whole=True),
    Column(title="95 % INTERVAL", of=field("to_sjf_interval"), right=True, whole=True, yields=4),
    Column(title="COMPLETION", of=field("completion"), right=True, whole=True, yields=1),
    Column(title="WAIT", of=field("wait"), right=True, whole=True, yields=2),
    Column(title="UNPLACED", of=field("unplaced"), right=True, whole=True),
)


@contextmanager
def flags_named(*names: str) -> Iterator[None]:
    """Name the flag in errors of settings that a flag gave."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(
            [
                replace(each, pointer=f"--{each.pointer}") if each.pointer in names else each
                for each in error.errors
            ]
        ) from error


def a2c(
    settings_file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SETTINGS.toml]",
            help="Settings that differ from their defaults, as the how-to lists them.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="Seed of all random draws; default: the file's, or 0."),
    ] = None,
    episodes: Annotated[
        int | None,
        typer.Option(metavar="N", help="Number of episodes to train; default: the file's, or 500."),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="Folder for the checkpoint, the learning curve and the table."
        ),
    ] = Path("a2c"),
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png", help="Write the learning curve (extra `plot`)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train the A2cScheduler paper's agent on edgeyard/Cluster-v0, and judge it.

    Actions are sampled in training; in use the most probable one is taken. The actor that was best
    on validation sequences is judged on 100 sequences that no training has seen, next to shortest
    job first, Tetris, random choices, `place` (any job that fits within the horizon) and `hold`
    (the shortest; a long one only if no slot is empty or nothing is placed). TO SJF is the
    difference of the slowdowns. Intervals are bootstraps of the sequences. Times are steps. Jobs
    that a policy leaves UNPLACED are placed by `place` in the end, and count with that delay.

    A training that was stopped goes on where it was when the same command runs again, also for
    more episodes than before, except with anneal = true; one that is finished is judged again.
    """
    from edgeyard.training.a2c.judgement import judge, play_beside_rules, unseen_sequences
    from edgeyard.training.a2c.settings import settings_of

    given = _table(settings_file)
    flags = {"seed": seed, "episodes": episodes}
    given |= {name: each for name, each in flags.items() if each is not None}
    with flags_named(*(name for name, each in flags.items() if each is not None)):
        settings = settings_of(given)
    if plot is not None:
        check_output(plot, "--plot")
        check_matplotlib()
    from edgeyard.training.a2c.trainer import Trainer

    make_folder(out, "--out")
    with progress_bar() as advanced:
        trainer = Trainer(settings)
        progress = _train(trainer, out, advanced)
    if plot is not None:
        from edgeyard.training.cli.a2c_plots import curve_image

        curve = [(point.episodes, point.mean_slowdown) for point in progress.curve]
        write_output(plot, "--plot", curve_image({f"rate {settings.mix.rate:g}": [curve]}))
    sequences = unseen_sequences(settings.mix, JUDGED_SEQUENCES, settings.arrival_steps)
    chooser = trainer.chooser(progress.result)
    found = judge(play_beside_rules(settings, chooser, sequences, "a2c"))
    document = _document(settings, progress, found, out)
    write_output(out / JUDGED, "--out", json_text(document, indent=2) + "\n")
    if as_json:
        emit_json(document)
        return
    show(table([judged_row(each) for each in found], JUDGED_COLUMNS, console().width))
    last = progress.curve[-1]
    show(
        "",
        f"{last.episodes:,} episodes, {last.steps:,} actions, {last.cpu_s:,.0f} s of processor "
        f"time; {JUDGED_SEQUENCES} unseen sequences; {out / CHECKPOINT}, {out / CURVE}, "
        f"{out / JUDGED}",
    )


def _table(path: Path | None) -> dict[str, Any]:
    """Return the table of a settings file; empty where none is named."""
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidInput.at("SETTINGS", f"{path}: {reason_of(error)}") from error
    except ValueError as error:
        raise InvalidInput.at("SETTINGS", f"{path} is not a TOML file: {error}") from error


def _train(trainer: Trainer, out: Path, advanced: Callable[[str, float], None]) -> Progress:
    from edgeyard.training.a2c import checkpoints

    checkpoint = out / CHECKPOINT
    progress = trainer.start()
    if checkpoint.exists():
        progress = checkpoints.load_progress(checkpoint, trainer)
        echo(f"edgeyard: going on from episode {progress.episodes} of {checkpoint}", err=True)
    began = time.monotonic()

    def saved(progress: Progress) -> None:
        write_output(out / CURVE, "--out", checkpoints.curve_csv(progress.curve))
        try:
            checkpoints.save_progress(checkpoint, progress, trainer.settings)
        except OSError as error:
            raise InvalidInput.at(
                "--out", f"{checkpoint} can't be written: {reason_of(error)}", "a folder with room"
            ) from error
        last = progress.curve[-1]
        echo(
            f"edgeyard: episode {last.episodes} of {trainer.settings.episodes}, mean slowdown "
            f"{last.mean_slowdown:.2f}, validation {last.validation:.2f}, best "
            f"{progress.best_validation:.2f}, {time.monotonic() - began:.0f} s",
            err=True,
        )

    return trainer.train(progress, saved, lambda share: advanced("training", share))


def _document(
    settings: A2cTraining, progress: Progress, found: list[PolicyFigures], out: Path
) -> dict[str, Any]:
    last = progress.curve[-1]
    return {
        "settings": asdict(settings),
        "episodes": last.episodes,
        "steps": last.steps,
        "updates": last.updates,
        "cpu_s": round(last.cpu_s, 2),
        "validation_slowdown": progress.best_validation,
        "sequences": JUDGED_SEQUENCES,
        "judged": [each.document for each in found],
        "checkpoint": str(out / CHECKPOINT),
        "curve": str(out / CURVE),
    }


def judged_row(found: PolicyFigures) -> dict[str, object]:
    """Return a policy's figures as a row of `JUDGED_COLUMNS`."""
    slowdown, to_sjf = found.slowdown, found.slowdown_to_sjf
    if not found.jobs:
        return {
            **{column: "-" for column in ("slowdown", "to_sjf", "completion", "wait")},
            "policy": found.policy,
            "unplaced": f"{found.unplaced}",
        }
    is_sjf = found.policy == "sjf"
    return {
        "policy": found.policy,
        "slowdown": f"{slowdown.mean:.3f}",
        "interval": f"{slowdown.low:.2f}-{slowdown.high:.2f}",
        "to_sjf": "" if is_sjf else f"{to_sjf.mean:+.3f}",
        "to_sjf_interval": "" if is_sjf else f"{to_sjf.low:+.2f} to {to_sjf.high:+.2f}",
        "completion": f"{found.turnaround.mean:.2f}",
        "wait": f"{found.wait.mean:.2f}",
        "unplaced": f"{found.unplaced}",
    }
