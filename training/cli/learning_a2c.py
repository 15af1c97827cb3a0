"""``learn a2c``: train the A2cScheduler paper's agent, and judge it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict
from enum import StrEnum
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
_DEFAULT_N_STEPS = 20
_DEFAULT_STRIDE = 2
_COLUMNS = (
    Column(title="POLICY", of=field("policy"), whole=True),
    Column(title="SLOWDOWN", of=field("slowdown"), right=True, whole=True),
    Column(title="95 % INTERVAL", of=field("interval"), right=True, whole=True, yields=3),
    Column(title="TO SJF", of=field("to_sjf"), right=True, whole=True),
    Column(title="95 % INTERVAL", of=field("to_sjf_interval"), right=True, whole=True, yields=4),
    Column(title="COMPLETION", of=field("completion"), right=True, whole=True, yields=1),
    Column(title="WAIT", of=field("wait"), right=True, whole=True, yields=2),
    Column(title="UNFINISHED", of=field("unfinished"), right=True, whole=True),
)


class CriticForm(StrEnum):
    """Values of ``--critic``."""

    V = "v"
    Q = "q"


class NetworkForm(StrEnum):
    """Values of ``--network``."""

    CNN = "cnn"
    MAXPOOL = "maxpool"
    DENSE = "dense"
    COMPACT = "compact"


class RewardForm(StrEnum):
    """Values of ``--reward``."""

    SLOWDOWN = "slowdown"
    WAITING = "waiting"
    TURNAROUND = "turnaround"
    UTILISATION = "utilisation"


def a2c(
    rate: Annotated[
        float,
        typer.Option(metavar="P", help="Probability of an arrival in a step: above 0, at most 1."),
    ] = 0.7,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of all random draws.")] = 0,
    episodes: Annotated[int, typer.Option(metavar="N", help="Number of episodes to train.")] = 500,
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="Folder for the checkpoint, the learning curve and the table."
        ),
    ] = Path("a2c"),
    n_steps: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Actions between two updates; the critic estimates the reward that follows. "
            f"Default: {_DEFAULT_N_STEPS}.",
        ),
    ] = None,
    monte_carlo: Annotated[
        bool,
        typer.Option(
            "--monte-carlo",
            help="Update after each whole episode instead of after --n-steps actions.",
        ),
    ] = False,
    critic: Annotated[
        CriticForm,
        typer.Option(
            help="What the critic estimates. v: the value of a state; q: of an action in a state "
            "(the paper's equation 3)."
        ),
    ] = CriticForm.V,
    no_mask: Annotated[
        bool,
        typer.Option(
            "--no-mask",
            help="Let the agent also choose jobs that cannot be placed; a step of time "
            "passes then.",
        ),
    ] = False,
    network: Annotated[
        NetworkForm,
        typer.Option(
            help="cnn: two convolutions; maxpool: two convolutions with max-pooling; dense: one "
            "dense layer; compact: two dense layers on numbers instead of an image."
        ),
    ] = NetworkForm.CNN,
    stride: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Stride of the convolutions of --network cnn: 1 or 2. Default: "
            f"{_DEFAULT_STRIDE}.",
        ),
    ] = None,
    reward: Annotated[
        RewardForm,
        typer.Option(
            help="What a step costs. slowdown: 1/T for each job with a run time of T (as in "
            "the paper "
            "and DeepRM); waiting: 1/T for each job that is not placed; turnaround: 1 for each job "
            "(as in edgeyard/Boards-v0); utilisation: the idle share of the cluster."
        ),
    ] = RewardForm.SLOWDOWN,
    discount: Annotated[
        float, typer.Option(metavar="X", help="Discount factor of later rewards.")
    ] = 0.99,
    actor_rate: Annotated[
        float, typer.Option(metavar="X", help="Learning rate of the actor.")
    ] = 5e-5,
    critic_rate: Annotated[
        float, typer.Option(metavar="X", help="Learning rate of the critic.")
    ] = 2e-4,
    entropy: Annotated[
        float,
        typer.Option(
            metavar="X",
            help="Weight of the entropy of the actions, which keeps the agent exploring.",
        ),
    ] = 0.01,
    normalise: Annotated[
        bool,
        typer.Option(
            "--normalise", help="Divide the advantages of an update by their standard deviation."
        ),
    ] = False,
    anneal: Annotated[
        bool,
        typer.Option(
            "--anneal",
            help="Let learning rates and entropy weight fall to 0 over the episodes. Such a "
            "training ends at --episodes and can't go on for more.",
        ),
    ] = False,
    envs: Annotated[
        int, typer.Option(metavar="N", help="Episodes that are played at the same time.")
    ] = 8,
    same_arrivals: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="How many episodes get the same arrivals: each is compared with their mean. "
            "--envs must be a multiple of it.",
        ),
    ] = 1,
    imitation_episodes: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Episodes at the beginning in which the actor imitates the rule hold.",
        ),
    ] = 0,
    place_when_idle: Annotated[
        bool,
        typer.Option(
            "--place-when-idle",
            help="Never wait while no job is placed and one could be: every job then ends.",
        ),
    ] = False,
    validation: Annotated[
        int,
        typer.Option(metavar="N", help="Sequences on which the best actor is chosen."),
    ] = 20,
    slots: Annotated[int, typer.Option(metavar="N", help="Waiting jobs that the agent sees.")] = 5,
    resources: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=10, help="Kinds of resources of each node and job."),
    ] = 2,
    arrival_steps: Annotated[
        int,
        typer.Option(
            metavar="N", help="Steps at the beginning of an episode in which jobs arrive."
        ),
    ] = 50,
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
    difference of the slowdowns. Intervals are bootstraps of the sequences. Times are steps.

    A training that was stopped goes on where it was when the same command runs again, also for
    more episodes than before, except with --anneal; one that is finished is judged again.
    """
    from edgeyard.simulator.mixes import JobMix
    from edgeyard.training.a2c import settings as names
    from edgeyard.training.a2c.judgement import judge, unseen_sequences

    if not 0.0 < rate <= 1.0:
        raise InvalidInput.at("--rate", f"is {rate}", "a number above 0, at most 1")
    if monte_carlo and n_steps is not None:
        raise InvalidInput.at(
            "--n-steps",
            "has no effect with --monte-carlo, which takes whole episodes",
            "one of them",
        )
    if stride is not None and network is not NetworkForm.CNN:
        raise InvalidInput.at(
            "--stride", f"has no effect with --network {network}", "--network cnn"
        )
    if place_when_idle and no_mask:
        raise InvalidInput.at("--place-when-idle", "has no effect with --no-mask", "one of them")
    settings = names.A2cTraining(
        seed=seed,
        episodes=episodes,
        n_steps=None if monte_carlo else n_steps if n_steps is not None else _DEFAULT_N_STEPS,
        critic=names.Critic(critic.value),
        masked=not no_mask,
        network=names.NetworkKind(network.value),
        reward=names.Reward(reward.value),
        discount=discount,
        actor_rate=actor_rate,
        critic_rate=critic_rate,
        entropy=entropy,
        normalise=normalise,
        anneal=anneal,
        envs=envs,
        same_arrivals=same_arrivals,
        imitation_episodes=imitation_episodes,
        place_when_idle=place_when_idle,
        validation=validation,
        stride=stride if stride is not None else _DEFAULT_STRIDE,
        mix=JobMix(rate=rate, resources=resources),
        slots=slots,
        arrival_steps=arrival_steps,
    )
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
        write_output(plot, "--plot", curve_image({f"rate {rate:g}": [curve]}))
    sequences = unseen_sequences(settings.mix, JUDGED_SEQUENCES, arrival_steps)
    found = judge(settings, trainer.chooser(progress.result), sequences)
    document = _document(settings, progress, found, out)
    write_output(out / JUDGED, "--out", json_text(document, indent=2) + "\n")
    if as_json:
        emit_json(document)
        return
    if document["validation_slowdown"] is None:
        echo(
            "edgeyard: no actor ended all jobs of the validation sequences: the last one is "
            "judged; train for more episodes, or with other rates",
            err=True,
        )
    show(table([_row(each) for each in found], _COLUMNS, console().width))
    last = progress.curve[-1]
    show(
        "",
        f"{last.episodes:,} episodes, {last.steps:,} actions, {last.cpu_s:,.0f} s of processor "
        f"time; {JUDGED_SEQUENCES} unseen sequences; {out / CHECKPOINT}, {out / CURVE}, "
        f"{out / JUDGED}",
    )


def _train(trainer: Trainer, out: Path, advanced: Callable[[str, float], None]) -> Progress:
    from edgeyard.training.a2c import trainer as training

    checkpoint = out / CHECKPOINT
    progress = trainer.start()
    if checkpoint.exists():
        progress = training.load_progress(checkpoint, trainer)
        echo(f"edgeyard: going on from episode {progress.episodes} of {checkpoint}", err=True)
    began = time.monotonic()

    def saved(progress: Progress) -> None:
        write_output(out / CURVE, "--out", training.curve_csv(progress.curve))
        try:
            training.save_progress(checkpoint, progress, trainer.settings)
        except OSError as error:
            raise InvalidInput.at(
                "--out", f"{checkpoint} can't be written: {reason_of(error)}", "a folder with room"
            ) from error
        last = progress.curve[-1]
        echo(
            f"edgeyard: episode {last.episodes} of {trainer.settings.episodes}, mean slowdown "
            f"{last.mean_slowdown:.2f}, validation {_validation(last.validation)}, best "
            f"{_validation(progress.best_validation)}, {time.monotonic() - began:.0f} s",
            err=True,
        )

    return trainer.train(progress, saved, lambda share: advanced("training", share))


def _validation(slowdown: float | None) -> str:
    finished = slowdown is not None and math.isfinite(slowdown)
    return f"{slowdown:.2f}" if finished else "with unfinished jobs"


def _document(
    settings: A2cTraining, progress: Progress, found: list[PolicyFigures], out: Path
) -> dict[str, Any]:
    last = progress.curve[-1]
    best = progress.best_validation
    return {
        "settings": asdict(settings),
        "episodes": last.episodes,
        "steps": last.steps,
        "updates": last.updates,
        "cpu_s": round(last.cpu_s, 2),
        "validation_slowdown": best if math.isfinite(best) else None,
        "sequences": JUDGED_SEQUENCES,
        "judged": [each.document for each in found],
        "checkpoint": str(out / CHECKPOINT),
        "curve": str(out / CURVE),
    }


def _row(found: PolicyFigures) -> dict[str, object]:
    slowdown, to_sjf = found.slowdown, found.slowdown_to_sjf
    if not found.jobs:
        return {
            **{column: "-" for column in ("slowdown", "to_sjf", "completion", "wait")},
            "policy": found.policy,
            "unfinished": f"{found.unfinished}",
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
        "unfinished": f"{found.unfinished}",
    }
