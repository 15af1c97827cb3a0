"""``learn boards``: train a scorer of boards, and a queue policy, in simulated labs."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeyard.benchmark_api.cli.output import emit_json, show
from edgeyard.benchmark_api.cli.output_files import make_folder, open_output
from edgeyard.benchmark_api.cli.program import AsJson, echo
from edgeyard.benchmark_api.cli.progress import progress_bar
from edgeyard.errors import ConfigError, InvalidInput
from edgeyard.simulator.cli.sim_processes import begin_worker
from edgeyard.training.cli.training_folder import (
    Generations,
    ModelName,
    TrainingDir,
    TrainingFolder,
)

if TYPE_CHECKING:
    from edgeyard.scheduler.framework.registry import Registry
    from edgeyard.scheduler.learning.model import Model
    from edgeyard.scheduler.learning.queue_model import QueueModel
    from edgeyard.training.board_trainer import BoardTraining
    from edgeyard.training.progress import Progress


def boards(
    out: TrainingDir,
    name: ModelName = "my_boards",
    queue: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Queue policy under which it is trained; 'learned' trains one with it.",
        ),
    ] = "priority_age",
    seed: Annotated[
        int,
        typer.Option(metavar="N", min=0, max=2**31 - 1, help="Seed of all random draws."),
    ] = 0,
    generations: Generations = 20,
    candidates: Annotated[
        int, typer.Option(metavar="N", min=4, max=1000, help="Candidates in each generation.")
    ] = 8,
    hidden: Annotated[
        int, typer.Option(metavar="N", min=1, max=64, help="Units of a model's hidden layer.")
    ] = 1,
    labs: Annotated[
        int, typer.Option(metavar="N", min=1, max=10_000, help="Labs to learn from.")
    ] = 16,
    batch: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            max=10_000,
            help="Labs for each generation; all, where there are fewer.",
        ),
    ] = 4,
    validation_labs: Annotated[
        int, typer.Option(metavar="N", min=1, max=10_000, help="Labs by which the best is chosen.")
    ] = 8,
    jobs: Annotated[
        int,
        typer.Option(metavar="N", min=10, max=100_000, help="Mean number of benchmarks in a lab."),
    ] = 60,
    workers: Annotated[
        int, typer.Option(metavar="N", min=1, max=256, help="Labs that are simulated at a time.")
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Train a scorer of boards: a small function that states what a run on each board costs.

    It learns in simulated labs, by evolution (CMA-ES); all decisions are those of the service. The
    loss is that of the mean completion time, and of missed deadlines, next to the policy default;
    the best by validation labs is kept. A training that was stopped goes on where it was when the
    same command runs again. The model is written to DIR/NAME.onnx and DIR/NAME.toml, a policy that
    uses it to DIR/NAME_policy.toml: put both files of the model into models_dir. With --queue
    learned also a scoring function of queued benchmarks is trained, which first orders them like
    shortest_first: put DIR/NAME_queue.onnx and DIR/NAME_queue.toml there too.
    """
    from edgeyard.plugins.builtin import registry
    from edgeyard.plugins.queue_policies.learned_queue import load_learned_queue
    from edgeyard.scheduler.framework.registry import Kind
    from edgeyard.scheduler.learning.model import load_model
    from edgeyard.training import board_trainer as trainer
    from edgeyard.training.export import export_boards, export_queue

    known = registry(entry_points=False)
    queues = (trainer.LEARNED_QUEUE, *known.names(Kind.QUEUE_POLICY))
    if queue not in queues:
        raise InvalidInput.at("--queue", f"{queue!r} is not a queue policy", ", ".join(queues))
    settings = trainer.BoardTraining(
        seed=seed, generations=generations, candidates=candidates, hidden=hidden, labs=labs,
        batch=batch, validation_labs=validation_labs, jobs=jobs, queue_policy=queue,
    )  # fmt: skip
    queue_name = trainer.queue_name(name, settings)
    _check_name(name, queue_name, known)
    make_folder(out, "--out")
    with progress_bar() as advanced:
        progress = _train(settings, out, workers, lambda share: advanced("training", share))
    words = (
        f"{labs} simulated labs of {jobs} benchmarks; {generations} generations of {candidates}, "
        f"seed {seed}, queue policy {queue}"
    )
    network = trainer.network_of(progress.best, hidden)
    manifest = export_boards(out, name, network, trainer.INPUTS, words)
    load_model(manifest)  # checks it like any user's model
    queue_manifest = None
    if queue == trainer.LEARNED_QUEUE:
        weights = trainer.queue_weights(progress.best, hidden)
        queue_manifest = export_queue(out, queue_name, weights, hidden, words)
        load_learned_queue(queue_manifest)
    policy = out / f"{name}_policy.toml"
    with open_output(policy, "--out") as file:
        file.write(trainer.board_policy_text(name, queue_name).encode())
    first = progress.curve[0].validation
    if as_json:
        emit_json(
            {
                "manifest": str(manifest),
                "queue_manifest": None if queue_manifest is None else str(queue_manifest),
                "policy": str(policy),
                "generations": progress.generation,
                "first_validation_loss": first,
                "validation_loss": progress.best_validation,
            }
        )
        return
    show(
        "",
        f"{progress.generation} generations; loss next to the policy default on "
        f"{validation_labs} validation labs: {progress.best_validation:+.3f} "
        f"({first:+.3f} before the training); "
        f"{'; '.join(map(str, filter(None, (manifest, queue_manifest, policy))))}",
    )
    if not progress.best_validation < 0.0:
        echo("edgeyard: it is not better than the policy default on the validation labs", err=True)


def _train(
    settings: BoardTraining, out: Path, workers: int, advanced: Callable[[float], None]
) -> Progress:
    from edgeyard.training import board_trainer as trainer

    pool = _pool(workers) if workers > 1 else None
    training, validation = trainer.lab_sets(
        settings, _registry_of, map if pool is None else pool.map
    )
    data = trainer.digest_of(training, validation)
    folder = TrainingFolder(out, settings, data, "loss next to default")
    try:
        return trainer.train(settings, training, validation, folder.begun(), folder.save, advanced)
    except BrokenProcessPool as error:
        raise ConfigError(
            [
                "a process of the training was killed, maybe for lack of memory; run the same "
                "command again, with fewer --workers: it goes on from its checkpoint"
            ]
        ) from error
    finally:
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)


def _pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        workers,
        mp_context=get_context("spawn"),
        initializer=begin_worker,
        initargs=(os.getpid(),),
    )


def _registry_of(model: Model | None, queue: QueueModel | None) -> Registry:
    from edgeyard.plugins.builtin import registry
    from edgeyard.plugins.queue_policies.learned_queue import LearnedQueue
    from edgeyard.plugins.scorers.learned import LearnedScorer
    from edgeyard.scheduler.framework.registry import Kind

    known = registry(entry_points=False)
    if model is not None:
        known.add(Kind.SCORER, model.manifest.name, lambda: LearnedScorer(model))
    if queue is not None:
        known.add(Kind.QUEUE_POLICY, queue.manifest.name, lambda: LearnedQueue(queue))
    return known


def _check_name(name: str, queue_name: str, known: Registry) -> None:
    from edgeyard.scheduler.framework.registry import Kind
    from edgeyard.scheduler.learning.queue_model import NAME

    if not (NAME.fullmatch(name) and NAME.fullmatch(queue_name)):
        raise InvalidInput.at(
            "--name",
            f"{name!r} is not a valid model name",
            "a-z, 0-9 and _, beginning with a letter, at most 58 characters",
        )
    if name in known.names(Kind.SCORER):
        raise InvalidInput.at("--name", f"{name!r} is a scorer of Edgeyard", "another name")
