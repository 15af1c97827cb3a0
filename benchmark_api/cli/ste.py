"""``ste``: DECICE's synthetic test environment, in thirteen visible steps."""

from __future__ import annotations

import secrets
import tempfile
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgeyard.benchmark_api.cli.output import (
    Column,
    Row,
    console,
    emit_json,
    field,
    local_time,
    show,
    table,
)
from edgeyard.benchmark_api.cli.program import echo
from edgeyard.benchmark_api.cli.scenario_db import Db
from edgeyard.benchmark_api.cli.sim_reports import progress
from edgeyard.benchmark_api.scenario_db import scenario_named
from edgeyard.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgeyard.scheduler.framework.policy import Policy
    from edgeyard.scheduler.framework.registry import Plugins
    from edgeyard.scheduler.sim.scenario import Scenario
    from edgeyard.scheduler.sim.ste.controller import Controller, RoundReport
    from edgeyard.scheduler.sim.ste.runs import RunFolder
    from edgeyard.scheduler.sim.ste.scheduling import Trainer

UNSEEN = 1_000_000
"""Distance of the seeds that a trained model is judged on from those that it was trained on."""

RunsDir = Annotated[
    Path | None,
    typer.Option("--runs", metavar="DIR", help="Folder of runs; default: of the user's data."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]

_STEPS = (
    Column(title="STEP", of=field("step"), right=True, whole=True),
    Column(title="WHAT", of=field("title"), whole=True),
    Column(title="RESULT", of=field("summary")),
    Column(title="MS", of=lambda row: f"{_seconds(row) * 1e3:.1f}", right=True, whole=True),
    Column(title="BY", of=field("service"), whole=True, from_width=110),
)
_EPISODES = (
    Column(title="EPISODE", of=field("episode"), right=True, whole=True),
    Column(title="SEED", of=field("seed"), right=True, whole=True),
    Column(title="ROUNDS", of=field("rounds"), right=True, whole=True),
    Column(title="JOBS", of=lambda row: _figure(row, "jobs"), right=True, whole=True),
    Column(title="COMPLETED", of=lambda row: _figure(row, "completed"), right=True, whole=True),
    Column(title="FAILED", of=lambda row: _figure(row, "failed"), right=True, whole=True),
    Column(title="EXPIRED", of=lambda row: _figure(row, "expired"), right=True, whole=True),
    Column(title="WAITING", of=lambda row: _figure(row, "waiting"), right=True, whole=True),
    Column(title="WAIT S", of=lambda row: _figure(row, "mean_wait_s"), right=True, whole=True),
    Column(title="TURNAROUND S", of=lambda row: _figure(row, "mean_turnaround_s"), right=True),
    Column(title="REWARD", of=lambda row: _reward(row), right=True),
)
_RUNS = (
    Column(title="RUN", of=field("run_id"), whole=True),
    Column(title="STATE", of=field("state"), whole=True),
    Column(title="SCENARIO", of=field("scenario")),
    Column(title="POLICY", of=field("policy")),
    Column(title="TRAINS", of=field("train")),
    Column(title="EPISODES", of=lambda row: f"{len(_list(row))}/{row['episodes_wanted']}"),
    Column(title="CREATED", of=lambda row: local_time(row["created_at"]), from_width=90),
)


class ShownSteps(StrEnum):
    """Values of ``--steps``."""

    FIRST = "first"
    ALL = "all"
    NONE = "none"


def run(
    scenario: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO", help="A TOML or JSON file, or a scenario of the ScenarioDB."
        ),
    ] = "",
    policy: Annotated[
        str,
        typer.Option(metavar="NAME|FILE", help="Its scorers are the registered schedulers."),
    ] = "learned",
    episodes: Annotated[int, typer.Option(metavar="N", min=1, help="Number of episodes.")] = 1,
    seed: Annotated[
        int | None, typer.Option(metavar="S", min=0, help="Of the first episode.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="At most so many rounds an episode.")
    ] = None,
    train: Annotated[
        str, typer.Option(metavar="NAME", help="Registered model that the rewards update.")
    ] = "",
    models: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of registered models: `models_dir` of the server."
        ),
    ] = None,
    new: Annotated[
        bool, typer.Option("--new", help="Register a model of this name that knows nothing yet.")
    ] = False,
    judged: Annotated[
        int,
        typer.Option(
            "--judge", metavar="N", min=0, help="Unseen seeds to compare the trained model on."
        ),
    ] = 5,
    resume: Annotated[
        str, typer.Option(metavar="RUN", help="Go on with a run that was cancelled.")
    ] = "",
    shown: Annotated[
        ShownSteps, typer.Option("--steps", help="Rounds whose thirteen steps are shown.")
    ] = ShownSteps.FIRST,
    twin: Annotated[
        str, typer.Option(metavar="URL", help="A digital twin of its own; with --scheduler.")
    ] = "",
    scheduler: Annotated[
        str, typer.Option(metavar="URL", help="A scheduler controller of its own; with --twin.")
    ] = "",
    runs_dir: RunsDir = None,
    db: Db = None,
    as_json: AsJson = False,
) -> None:
    """Run the synthetic test environment, in one process or with its services.

    Each round goes through DECICE's thirteen steps, from the scenario through the digital twin and
    all registered schedulers to the final decisions, by the same decision core as the server.
    Ctrl-C ends after the last finished episode; --resume goes on with it.
    """
    from edgeyard.plugins.builtin import registry
    from edgeyard.scheduler.framework.policy import load_policy
    from edgeyard.scheduler.sim.scenario import scenario_hash
    from edgeyard.scheduler.sim.ste import training
    from edgeyard.scheduler.sim.ste.runs import CHECKPOINT_FILE, FROZEN_FILE, episode_to_json

    runs = _runs(runs_dir)
    if resume:
        record = runs.run(resume)
        if record["state"] == "completed":
            raise InvalidInput.at("--resume", f"run {resume} is completed", "a cancelled run")
        scenario, policy, train = record["scenario_ref"], record["policy"], record["train"]
        models = Path(record["models"]) if record["models"] else None
        episodes = record["episodes_wanted"]
        record["state"] = "running"
    elif not scenario:
        raise InvalidInput.at("SCENARIO", "is missing", "a file, or a name of the ScenarioDB")
    if new and not train:
        raise InvalidInput.at("--new", "needs a name", "--train NAME --new")
    if bool(twin) != bool(scheduler) or (twin and train):
        reason = "goes with --scheduler, and without --train: models are trained in one process"
        raise InvalidInput.at("--twin", reason, "both URLs, or neither")
    if train and models is None:
        raise InvalidInput.at("--models", "is missing", "the folder of the model to be trained")
    found = scenario_named(scenario, db)
    if not resume:
        base = found.seed if seed is None else seed
        record = {
            "run_id": f"ste-{datetime.now(UTC):%Y%m%d%H%M%S}-{secrets.token_hex(3)}",
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "state": "running",
            "scenario": found.name,
            "scenario_ref": scenario,
            "scenario_sha256": scenario_hash(found),
            "policy": policy,
            "seed": base,
            "train": train,
            "models": str(models.absolute()) if models else "",
            "max_rounds": rounds,
            "episodes_wanted": episodes,
            "episodes": [],
            "judgement": None,
        }
    elif record["scenario_sha256"] != scenario_hash(found):
        raise InvalidInput.at("--resume", f"{scenario} has changed since", "the same scenario")
    run_id = str(record["run_id"])
    trainer: training.PolicyGradient | None = None
    chosen = load_policy(policy)
    manifest_path = models / f"{train}.toml" if models and train else None
    if manifest_path is not None:
        if new and not resume:
            training.new_model(train, manifest_path.parent)
        if not manifest_path.exists():
            known = ", ".join(sorted(each.stem for each in manifest_path.parent.glob("*.toml")))
            raise InvalidInput.at(
                "--train",
                f"there is no model {train!r} in {models}",
                f"{known or 'none'}, or --new",
            )
        manifest, network = training.load_trainable(manifest_path)
        state = training.TrainingState(network=network)
        if resume and (runs.path(run_id) / CHECKPOINT_FILE).exists():
            state = training.read_checkpoint(runs.path(run_id) / CHECKPOINT_FILE)
        trainer = training.PolicyGradient(manifest, state)
    known_plugins = registry(models=models)
    plugins = known_plugins.resolve(chosen)
    runs.save(record)
    if trainer is not None and not resume:
        training.write_checkpoint(runs.path(run_id) / FROZEN_FILE, trainer.state)
    controller = (
        _remote_controller(found, twin, scheduler)
        if twin
        else _controller(found, chosen, plugins, trainer)
    )
    reports: list[RoundReport] = []
    try:
        with progress() as advanced:
            for number in range(len(record["episodes"]), episodes):
                episode = controller.episode(
                    found.name,
                    run=run_id,
                    episode=number,
                    seed=record["seed"] + number,
                    train=train,
                    max_rounds=record["max_rounds"],
                    on_round=partial(
                        _keep,
                        reports,
                        shown,
                        partial(advanced, f"episode {number + 1} of {episodes}"),
                    ),
                )
                record["episodes"].append(episode_to_json(episode))
                if trainer is not None:
                    path = runs.path(run_id) / CHECKPOINT_FILE
                    training.write_checkpoint(path, trainer.state)
                runs.save(record)
            if trainer is not None and manifest_path is not None:
                record["judgement"] = _judge(
                    trainer, runs.path(run_id) / FROZEN_FILE, found, chosen, plugins,
                    range(record["seed"] + UNSEEN, record["seed"] + UNSEEN + judged),
                )  # fmt: skip
                learned = replace(
                    trainer.manifest,
                    version=trainer.manifest.version + 1,
                    trained_on=f"run {run_id}: {episodes} episodes of {found.name}",
                )
                training.write_model(manifest_path, learned, trainer.state.network)
                record["model_version"] = learned.version
    except KeyboardInterrupt:
        record["state"] = "cancelled"
        runs.save(record)
        echo(
            f"Cancelled after {len(record['episodes'])} episodes. Go on with: "
            f"edgeyard ste run --resume {run_id}",
            err=True,
        )
        raise
    except BaseException:
        record["state"] = "failed"
        runs.save(record)
        raise
    record["state"] = "completed"
    runs.save(record)
    if as_json:
        emit_json({**record, "rounds": [_round_json(each) for each in reports]})
        return
    for report in reports:
        show(f"Episode {report.episode}, round {report.round}, {report.time_s:.3f} s")
        show(table([asdict_step(each) for each in report.steps], _STEPS, console().width), "")
    _show(record)


class Service(StrEnum):
    """Services of the test environment that run by themselves."""

    TWIN = "twin"
    SCHEDULER = "scheduler"


def serve(
    service: Annotated[Service, typer.Argument(help="Which service.")],
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    twin: Annotated[
        str, typer.Option(metavar="URL", help="The digital twin, for the scheduler.")
    ] = "",
    policy: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="Its scorers are the registered schedulers.")
    ] = "learned",
    models: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of registered models.")
    ] = None,
) -> None:
    """Serve the digital twin or the scheduler controller by itself.

    Callers send the token of the variable EDGEYARD_STE_TOKEN; without a token the service listens
    on loopback addresses alone.
    """
    import os

    import uvicorn

    from edgeyard.benchmark_api import ste_services
    from edgeyard.scheduler.sim.ste.twin import DigitalTwin

    token = os.environ.get("EDGEYARD_STE_TOKEN", "")
    if not token and host not in ("127.0.0.1", "::1", "localhost"):
        reason = f"{host} is reached by others, and EDGEYARD_STE_TOKEN states no token"
        raise InvalidInput.at("--host", reason, "127.0.0.1, or a token")
    if service is Service.TWIN:
        uvicorn.run(ste_services.twin_app(DigitalTwin(), token), host=host, port=port)
        return
    if not twin:
        raise InvalidInput.at("--twin", "is missing", "the URL of the digital twin")
    import httpx

    from edgeyard.plugins.builtin import registry
    from edgeyard.scheduler.framework.policy import load_policy
    from edgeyard.scheduler.sim.ste.scheduling import SchedulerController

    chosen = load_policy(policy)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with httpx.Client(base_url=twin, headers=headers, timeout=60.0) as client:
        controller = SchedulerController(
            ste_services.HttpTwin(client),
            chosen,
            registry(models=models).resolve(chosen),
            monotonic_s=time.monotonic,
        )
        uvicorn.run(ste_services.scheduler_app(controller, token), host=host, port=port)


def list_(runs_dir: RunsDir = None, as_json: AsJson = False) -> None:
    """List past runs, newest first."""
    found = _runs(runs_dir).runs()
    if as_json:
        emit_json(found)
    elif found:
        show(table(found, _RUNS, console().width))
    else:
        echo("There are no runs yet.", err=True)


def show_(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="Id of a run.")],
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png", help="Write the learning curves (extra `plot`)."),
    ] = None,
    runs_dir: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Show a past run: its episodes, and what training has changed."""
    found = _runs(runs_dir).run(run_id)
    if plot is not None:
        if not plot.absolute().parent.is_dir():
            raise InvalidInput.at("--plot", f"there is no folder {plot.absolute().parent}")
        _plot(found, plot)
    if as_json:
        emit_json(found)
    else:
        _show(found)


def _runs(folder: Path | None) -> RunFolder:
    import platformdirs

    from edgeyard.scheduler.sim.ste.runs import RunFolder

    return RunFolder(folder or Path(platformdirs.user_data_dir("edgeyard")) / "ste")


class _Only:
    """The one scenario of a run, as a ScenarioDB."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario

    def scenario(self, name: str) -> Scenario:
        """Return it."""
        return self._scenario


def _controller(
    scenario: Scenario, policy: Policy, plugins: Plugins, trainer: Trainer | None = None
) -> Controller:
    from edgeyard.scheduler.sim.ste.controller import Controller, LocalScheduling, LocalTwin
    from edgeyard.scheduler.sim.ste.scheduling import SchedulerController
    from edgeyard.scheduler.sim.ste.twin import DigitalTwin

    twin = LocalTwin(DigitalTwin())
    scheduling = SchedulerController(
        twin, policy, plugins, monotonic_s=time.monotonic, trainer=trainer
    )
    return Controller(_Only(scenario), twin, LocalScheduling(scheduling))


def _remote_controller(scenario: Scenario, twin: str, scheduler: str) -> Controller:
    """Return a controller of services; their connections last as long as the process."""
    import os

    import httpx

    from edgeyard.benchmark_api.ste_services import HttpScheduling, HttpTwin
    from edgeyard.scheduler.sim.ste.controller import Controller

    token = os.environ.get("EDGEYARD_STE_TOKEN", "")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    twin_client, scheduler_client = (
        httpx.Client(base_url=url, headers=headers, timeout=60.0) for url in (twin, scheduler)
    )
    return Controller(_Only(scenario), HttpTwin(twin_client), HttpScheduling(scheduler_client))


def _judge(
    trainer: Any, frozen: Path, scenario: Scenario, policy: Policy, plugins: Plugins, seeds: range
) -> dict[str, object] | None:
    """Compare the model after and before the training on unseen seeds, each deciding alone."""
    import numpy as np

    from edgeyard.plugins.scorers.learned import load_learned
    from edgeyard.scheduler.framework.registry import Seat
    from edgeyard.scheduler.sim.metrics import compare
    from edgeyard.scheduler.sim.ste import training

    if not seeds:
        return None
    found = []
    with tempfile.TemporaryDirectory(prefix="edgeyard-ste-") as folder:
        for name, network in (
            ("trained", trainer.state.network),
            ("frozen", training.read_checkpoint(frozen).network),
        ):
            path = Path(folder) / f"{name}.toml"
            training.write_model(path, trainer.manifest, network)
            alone = replace(plugins, scorers=(Seat(scorer=load_learned(path)),), evaluator=None)
            controller = _controller(scenario, policy, alone)
            found.append(
                np.array(
                    [
                        controller.episode(
                            scenario.name, run=name, episode=number, seed=seed
                        ).figures.mean_turnaround_s
                        for number, seed in enumerate(seeds)
                    ]
                )
            )
    comparison = asdict(compare(found[0], found[1]))
    return {
        "figure": "mean_turnaround_s",
        "seeds": list(seeds),
        "trained": found[0].tolist(),
        "frozen": found[1].tolist(),
        **comparison,
    }


def _keep(
    reports: list[RoundReport],
    shown: ShownSteps,
    advanced: Callable[[float], None],
    report: RoundReport,
    share: float,
) -> None:
    """Show the progress, and keep the rounds that will be shown."""
    advanced(share)
    if shown is ShownSteps.ALL or (shown is ShownSteps.FIRST and not reports):
        reports.append(report)


def asdict_step(step: Any) -> Row:
    """Return a step as a row."""
    import msgspec

    found: Row = msgspec.to_builtins(step)
    return found


def _round_json(report: RoundReport) -> object:
    import msgspec

    return msgspec.to_builtins(report)


def _list(row: Row) -> list[Any]:
    found: Any = row["episodes"]
    return list(found)


def _figure(row: Row, name: str) -> str:
    figures: Any = row["figures"]
    value = figures[name]
    return "-" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def _seconds(row: Row) -> float:
    found: Any = row["seconds"]
    return float(found)


def _reward(row: Row) -> str:
    trained: Any = row["trained"]
    value = trained.get("outcome_reward")
    return "-" if value is None else f"{value:.3f}"


def _show(record: dict[str, Any]) -> None:
    show(table(record["episodes"], _EPISODES, console().width))
    show("", f"Run {record['run_id']}: {record['state']}, scenario {record['scenario']}")
    judgement = record.get("judgement")
    if judgement:
        change = judgement["difference"]
        show(
            f"Model {record['train']}, version {record['model_version']}: mean turnaround changed "
            f"by {change['mean']:.1f} s ({change['low']:.1f} to {change['high']:.1f}) on "
            f"{len(judgement['seeds'])} unseen seeds"
        )


def _plot(record: dict[str, Any], path: Path) -> None:
    """Draw turnaround and rewards by episode."""
    from matplotlib.figure import Figure

    episodes = record["episodes"]
    numbers = [each["episode"] for each in episodes]
    figure = Figure(figsize=(8, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    above.plot(numbers, [each["figures"]["mean_turnaround_s"] for each in episodes], marker="o")
    above.set_ylabel("mean turnaround, s")
    above.set_title(f"{record['run_id']}: {record['scenario']}")
    for name in ("evaluator_reward", "outcome_reward"):
        below.plot(
            numbers,
            [each["trained"].get(name) for each in episodes],
            marker="o",
            label=name.replace("_", " "),
        )
    below.set_ylabel("mean reward")
    below.set_xlabel("episode")
    below.legend()
    figure.savefig(path, format="png")


def add_to(app: typer.Typer) -> None:
    """Register the group with its commands."""
    group = typer.Typer(
        help="DECICE's synthetic test environment.", no_args_is_help=True, rich_markup_mode=None
    )
    group.command("run")(run)
    group.command("serve")(serve)
    group.command("list")(list_)
    group.command("show")(show_)
    app.add_typer(group, name="ste")
