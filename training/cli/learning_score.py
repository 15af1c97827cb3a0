"""``learn score``: train a score of the paper's jobs by evolution, and judge it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgeyard.benchmark_api.cli.output import console, emit_json, json_text, show, table
from edgeyard.benchmark_api.cli.output_files import make_folder, write_output
from edgeyard.benchmark_api.cli.program import AsJson
from edgeyard.benchmark_api.cli.progress import progress_bar
from edgeyard.training.cli.learning_a2c import (
    JUDGED_COLUMNS,
    JUDGED_SEQUENCES,
    flags_named,
    judged_row,
)
from edgeyard.training.cli.training_folder import Generations, TrainingFolder

WEIGHTS = "score.json"


def score(
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="Folder for the checkpoint, the learning curve and the table."
        ),
    ] = Path("score"),
    rate: Annotated[
        float,
        typer.Option(metavar="P", min=0.0, max=1.0, help="Probability of an arrival in each step."),
    ] = 0.7,
    resources: Annotated[
        int, typer.Option(metavar="N", min=1, max=10, help="Kinds of resources.")
    ] = 2,
    slots: Annotated[
        int, typer.Option(metavar="N", min=1, max=100, help="Jobs of the queue that are visible.")
    ] = 5,
    hidden: Annotated[
        int, typer.Option(metavar="N", min=0, max=64, help="Hidden units beside the linear score.")
    ] = 0,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed of all random draws.")] = 0,
    generations: Generations = 100,
    as_json: AsJson = False,
) -> None:
    """Train a score of visible jobs on edgeyard/Cluster-v0 by CMA-ES, and judge it.

    It learns from rewards alone: 24 candidates a generation, on 256 new episodes. The job with the
    highest score is placed if that is above 0 or no job is placed. The best by validation is judged
    on 100 sequences that no training has seen, next to the rules of learn a2c. A training that was
    stopped goes on where it was when the same command runs again.
    """
    from edgeyard.simulator.mixes import JobMix
    from edgeyard.training import score_trainer as trainer
    from edgeyard.training.a2c.judgement import (
        judge,
        play_beside_rules,
        slowdown_ratio,
        unseen_sequences,
    )

    with flags_named("rate", "resources", "slots", "hidden", "seed", "generations"):
        settings = trainer.ScoreTraining(
            seed=seed,
            generations=generations,
            hidden=hidden,
            mix=JobMix(rate=rate, resources=resources),
            slots=slots,
        )
    make_folder(out, "--out")
    folder = TrainingFolder(out, settings, "", "mean slowdown")
    with progress_bar() as advanced:
        progress = trainer.train(
            settings, folder.begun(), folder.save, lambda share: advanced("training", share)
        )
    cluster = settings.cluster()
    sequences = unseen_sequences(settings.mix, JUDGED_SEQUENCES, settings.arrival_steps)
    chooser = trainer.chooser(settings, progress.best)
    played = play_beside_rules(cluster, chooser, sequences, "score")
    found, to_hold = judge(played), slowdown_ratio(played["score"], played["hold"])
    document = {
        **trainer.document_of(settings, progress),
        "sequences": JUDGED_SEQUENCES,
        "judged": [each.document for each in found],
        "to_hold": {"ratio": to_hold.mean, "low": to_hold.low, "high": to_hold.high},
    }
    write_output(out / WEIGHTS, "--out", json_text(document, indent=2) + "\n")
    if as_json:
        emit_json(document)
        return
    show(table([judged_row(each) for each in found], JUDGED_COLUMNS, console().width))
    show(
        "",
        f"slowdown {to_hold.mean:.3f} of hold's ({to_hold.low:.3f} to {to_hold.high:.3f}); "
        f"{progress.generation} generations; {JUDGED_SEQUENCES} unseen sequences; {out / WEIGHTS}",
    )
