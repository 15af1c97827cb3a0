"""``ste``: DECICE's synthetic test environment, in thirteen visible steps."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
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
from edgeyard.benchmark_api.cli.output_files import check_output, write_output
from edgeyard.benchmark_api.cli.program import AsJson, add_group, echo
from edgeyard.benchmark_api.cli.progress import progress_bar
from edgeyard.errors import ConfigError, InvalidInput, Unavailable
from edgeyard.simulator.cli.scenario_db import Db, StoreRuns
from edgeyard.simulator.cli.sim_labs import MAX_SEED
from edgeyard.simulator.scenario_db import is_named, opened_db, scenario_named
from edgeyard.simulator.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from fastapi import FastAPI

    from edgeyard.scheduler.framework.policy import Policy
    from edgeyard.scheduler.framework.registry import Plugins
    from edgeyard.simulator.scenario import Scenario
    from edgeyard.training.ste.controller import Episode, RoundReport
    from edgeyard.training.ste.driver import Progress, RunDriver
    from edgeyard.training.ste.runs import RunFolder
    from edgeyard.training.ste_services.clients import HttpRuns

DEFAULT_POLICY = "ste"

RunsDir = Annotated[
    Path | None,
    typer.Option(
        "--runs", metavar="DIR", help="Folder of runs; default: in the user's data folder."
    ),
]
ControllerUrl = Annotated[
    str,
    typer.Option(metavar="URL", help="Use this controller service instead of running here."),
]

_STEPS = (
    Column(title="STEP", of=field("step"), right=True, whole=True),
    Column(title="WHAT", of=field("title"), whole=True),
    Column(title="RESULT", of=field("summary")),
    Column(title="MS", of=lambda row: f"{_seconds(row) * 1e3:.1f}", right=True, whole=True),
    Column(title="BY", of=field("service"), whole=True, from_width=110),
)
_EPISODES = (
    Column(title="EPISODE", of=field("episode"), right=True, whole=True),
    Column(title="SEED", of=field("seed"), right=True, whole=True, from_width=100),
    Column(title="ROUNDS", of=field("rounds"), right=True, whole=True, from_width=110),
    Column(title="JOBS", of=lambda row: _figure(row, "jobs"), right=True, whole=True),
    Column(title="COMPLETED", of=lambda row: _figure(row, "completed"), right=True, whole=True),
    Column(title="FAILED", of=lambda row: _figure(row, "failed"), right=True, whole=True),
    Column(title="EXPIRED", of=lambda row: _figure(row, "expired"), right=True, whole=True),
    Column(title="WAITING", of=lambda row: _figure(row, "waiting"), right=True, whole=True),
    Column(title="WAIT S", of=lambda row: _figure(row, "mean_wait_s"), right=True, whole=True),
    Column(
        title="TURNAROUND S",
        of=lambda row: _figure(row, "mean_turnaround_s"),
        right=True,
        whole=True,
    ),
    Column(title="REWARD", of=lambda row: _reward(row), right=True, whole=True, from_width=90),
)
_RUNS = (
    Column(title="RUN", of=field("run_id"), whole=True),
    Column(title="STATE", of=field("state"), whole=True),
    Column(title="SCENARIO", of=field("scenario")),
    Column(title="POLICY", of=field("policy")),
    Column(title="TRAINS", of=field("train")),
    Column(title="EPISODES", of=lambda row: f"{_done(row)}/{row['episodes_wanted']}"),
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
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Policy whose scorers are the registered schedulers; default: ste. Not with "
            "--controller: its scheduler service has a policy of its own.",
        ),
    ] = None,
    episodes: Annotated[int, typer.Option(metavar="N", min=1, help="Number of episodes.")] = 1,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="S",
            min=0,
            max=MAX_SEED,
            help="Seed of the first episode; each further episode uses the next one.",
        ),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Maximum number of rounds of an episode.")
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
        bool, typer.Option("--new", help="Register an untrained model of the name --train first.")
    ] = False,
    judged: Annotated[
        int,
        typer.Option(
            "--judge",
            metavar="N",
            min=0,
            help="Number of unseen seeds on which the trained model is compared.",
        ),
    ] = 5,
    resume: Annotated[
        str, typer.Option(metavar="RUN", help="Go on with a run that was cancelled.")
    ] = "",
    shown: Annotated[
        ShownSteps, typer.Option("--steps", help="Rounds whose thirteen steps are shown.")
    ] = ShownSteps.FIRST,
    controller: ControllerUrl = "",
    runs_dir: RunsDir = None,
    store: StoreRuns = None,
    db: Db = None,
    as_json: AsJson = False,
) -> None:
    """Run the synthetic test environment, in this process or at a controller service.

    Each round goes through DECICE's thirteen steps, from the scenario through the digital twin and
    all registered schedulers to the final decisions, by the same decision core as the server.
    Ctrl-C ends after the last finished episode; --resume goes on with it.
    """
    wanted = {
        "scenario": scenario,
        "episodes": episodes,
        "seed": seed,
        "max_rounds": rounds,
        "train": train,
        "new": new,
        "judged": judged,
    }
    if controller:
        for flag, value in (
            ("--policy", policy), ("--models", models), ("--runs", runs_dir), ("--db", db),
        ):  # fmt: skip
            if value:
                raise InvalidInput.at(flag, "the services of --controller have their own")
        _run_at(controller, wanted, resume, shown, as_json)
        return
    runs = _runs(runs_dir)
    if resume:
        found, record = _resumed(runs, resume, db, new=new)
        record["judged"] = judged
    else:
        found, record = _new_run(wanted, db, policy or DEFAULT_POLICY, models)
    storing = is_named(db) if store is None else store
    reports = _execute(
        found, record, runs, shown, db, storing=storing, new=new, resume=bool(resume)
    )
    _answer(record, reports, as_json)


def _new_run(
    wanted: dict[str, Any], db: str | None, policy: str, models: Path | None
) -> tuple[Scenario, dict[str, Any]]:
    """Return the scenario and the record of a run that has not begun.

    Raises:
        InvalidInput: What is wanted states no scenario, or a model that cannot be trained.
    """
    from edgeyard.training.ste.driver import new_record

    scenario = wanted["scenario"]
    if not scenario:
        raise InvalidInput.at("SCENARIO", "is missing", "a file, or a name of the ScenarioDB")
    _check_model(wanted["train"], models, new=wanted["new"], resume=False)
    found = scenario_named(scenario, db)
    return found, new_record(
        found,
        reference=scenario,
        policy=policy,
        episodes=wanted["episodes"],
        seed=wanted["seed"],
        max_rounds=wanted["max_rounds"],
        train=wanted["train"],
        models=str(models.absolute()) if models else "",
        judged=wanted["judged"],
    )


def _resumed(
    runs: RunFolder, run_id: str, db: str | None, *, new: bool
) -> tuple[Scenario, dict[str, Any]]:
    """Return the scenario and the record of a run that was cancelled.

    Raises:
        InvalidInput: It is completed, or its scenario has changed since.
    """
    from edgeyard.simulator.scenario import scenario_hash

    record = runs.run(run_id)
    if record["state"] == "completed":
        raise InvalidInput.at("--resume", f"run {run_id} is completed", "a cancelled run")
    _check_model(record["train"], _models_of(record), new=new, resume=True)
    scenario = record["scenario_ref"]
    found = scenario_named(scenario, db)
    if record["scenario_sha256"] != scenario_hash(found):
        raise InvalidInput.at("--resume", f"{scenario} has changed since", "the same scenario")
    return found, record


def _models_of(record: Mapping[str, Any]) -> Path | None:
    return Path(record["models"]) if record["models"] else None


def _check_model(train: str, models: Path | None, *, new: bool, resume: bool) -> None:
    from edgeyard.training.ste.driver import model_path

    if new and not train:
        raise InvalidInput.at("--new", "needs a name", "--train NAME --new")
    if train and models is None:
        raise InvalidInput.at("--models", "is missing", "the folder of the model to be trained")
    if train and models is not None:
        model_path(models, train, new=new or resume)


def _execute(
    scenario: Scenario,
    record: dict[str, Any],
    runs: RunFolder,
    shown: ShownSteps,
    db: str | None,
    *,
    storing: bool,
    new: bool,
    resume: bool,
) -> list[dict[str, Any]]:
    """Play the episodes of a run in this process, and return the rounds that are shown."""
    import msgspec

    if storing:
        with opened_db(db):
            pass  # what is wrong with it is reported before the simulation
    reports: list[RoundReport] = []
    try:
        with (
            _driver(scenario, runs, record["policy_ref"], _models_of(record)) as driver,
            progress_bar() as bar,
        ):
            record["policy"] = driver.policy().name

            def on_round(number: int) -> Progress:
                advanced = partial(bar, f"episode {number + 1} of {record['episodes_wanted']}")
                return partial(_keep, reports, shown, advanced)

            driver.execute(
                record,
                scenario=scenario.name,
                new=new,
                resume=resume,
                on_round=on_round,
                on_episode=partial(_store, db, scenario, record) if storing else _pass_on,
            )
    except KeyboardInterrupt:
        echo(
            f"Cancelled after {count_of(len(record['episodes']), 'episode')}. Go on with: "
            f"edgeyard ste run --resume {record['run_id']}",
            err=True,
        )
        raise
    return [msgspec.to_builtins(each) for each in reports]


def _answer(record: dict[str, Any], rounds: list[dict[str, Any]], as_json: bool) -> None:
    """Print a run that has ended, with the rounds that are shown."""
    if as_json:
        emit_json({**record, "rounds": rounds})
        return
    for each in rounds:
        show(f"Episode {each['episode']}, round {each['round']}, {each['time_s']:.3f} s")
        show(table(each["steps"], _STEPS, console().width), "")
    _show(record)


_POLL_S = 0.5


def _run_at(
    url: str, wanted: dict[str, Any], resume: str, shown: ShownSteps, as_json: bool
) -> None:
    """Start a run at a controller service, or go on with one, and wait for its end."""
    if not resume and not wanted["scenario"]:
        raise InvalidInput.at("SCENARIO", "is missing", "a scenario of the ScenarioDB service")
    with _runs_at(url) as runs:
        found = runs.resume(resume) if resume else runs.start(wanted)
        run_id = str(found["run_id"])
        try:
            with progress_bar() as bar:
                while found["state"] in ("queued", "running"):
                    done, of = found["episodes_done"], found["episodes_wanted"]
                    share = (found["progress"] or {}).get("share", 0.0)
                    stage = f"episode {done + 1} of {of}" if done < of else "unseen seeds"
                    bar(found["state"] if found["state"] == "queued" else stage, share)
                    time.sleep(_POLL_S)
                    found = runs.run(run_id)
        except KeyboardInterrupt:
            echo(
                f"Run {run_id} goes on. Show it: edgeyard ste show {run_id} --controller {url}; "
                f"cancel it: edgeyard ste cancel {run_id} --controller {url}",
                err=True,
            )
            raise
        reports = [] if shown is ShownSteps.NONE else runs.rounds(run_id)
    if shown is ShownSteps.FIRST:
        del reports[1:]
    _answer(found, reports, as_json)
    if found["state"] != "completed":
        raise Unavailable(f"run {run_id} is {found['state']}: {found['problem'] or 'by request'}")


@contextmanager
def _runs_at(url: str) -> Iterator[HttpRuns]:
    from edgeyard.training.ste_services import clients
    from edgeyard.training.ste_services.common import ste_token

    with clients.service_client(url, ste_token(), "--controller") as client:
        yield clients.HttpRuns(client)


class Service(StrEnum):
    """Services of the test environment that run by themselves."""

    TWIN = "twin"
    SCHEDULER = "scheduler"
    SCENARIOS = "scenarios"
    CONTROLLER = "controller"


_PORTS = {
    Service.TWIN: 8081,
    Service.SCHEDULER: 8082,
    Service.SCENARIOS: 8083,
    Service.CONTROLLER: 8084,
}


def serve(
    service: Annotated[Service, typer.Argument(help="Service to run.")],
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port to listen on; 0: a free one; default: 8081 of the twin, 8082 of the "
            "scheduler, 8083 of the scenarios, 8084 of the controller.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    twin: Annotated[
        str,
        typer.Option(
            metavar="URL", help="URL of the digital twin, for the scheduler and the controller."
        ),
    ] = "http://127.0.0.1:8081",
    scheduler: Annotated[
        str,
        typer.Option(metavar="URL", help="URL of the scheduler controller, for the controller."),
    ] = "http://127.0.0.1:8082",
    scenarios: Annotated[
        str, typer.Option(metavar="URL", help="URL of the ScenarioDB, for the controller.")
    ] = "http://127.0.0.1:8083",
    policy: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE",
            help="Policy whose scorers are the registered schedulers of the scheduler controller.",
        ),
    ] = DEFAULT_POLICY,
    models: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of registered models, which the scheduler controller trains.",
        ),
    ] = None,
    runs_dir: RunsDir = None,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="The twin shows the real lab, from the Nomad and Prometheus that the settings of "
            "`edgeyard up` name (clusters, inventory, twin_prometheus and others).",
        ),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --live: settings in TOML; see also EDGEYARD_*."),
    ] = None,
    store: Annotated[
        bool | None,
        typer.Option(
            "--store/--no-store",
            help="The controller stores episodes in the ScenarioDB, for sim list and sim report. "
            "Default: where --db or EDGEYARD_SCENARIO_DB names a database.",
        ),
    ] = None,
    db: Db = None,
) -> None:
    """Serve one of the test environment's services by itself.

    twin: the digital twin; scheduler: the scheduler controller with its models; scenarios: the
    ScenarioDB; controller: starts runs on the other three. Each has Swagger UI at /docs. Callers
    send the token of EDGEYARD_STE_TOKEN (or of the file EDGEYARD_STE_TOKEN_FILE); without a token
    a service listens on loopback addresses alone.
    """
    from edgeyard.training.ste_services import common

    if live and service is not Service.TWIN:
        raise InvalidInput.at("--live", f"is not for {service.value}", "ste serve twin --live")
    if config is not None and not live:
        reason = "has an effect with --live only"
        raise InvalidInput.at("--config", reason, "ste serve twin --live --config FILE")
    token = common.ste_token()
    common.check_address(host, token)
    with ExitStack() as opened:
        match service:
            case Service.TWIN:
                app = _twin(token, config, live=live)
            case Service.SCENARIOS:
                app = _scenarios(opened, token, db)
            case Service.SCHEDULER:
                app = _scheduler(opened, token, twin, policy, models, _runs(runs_dir))
            case Service.CONTROLLER:
                storing = is_named(db) if store is None else store
                urls = twin, scheduler, scenarios
                app = _controller(opened, token, urls, _runs(runs_dir), db, storing=storing)
        common.serve(app, host, _PORTS[service] if port is None else port)


def _twin(token: str, config: Path | None, *, live: bool) -> FastAPI:
    from edgeyard.scheduler.twin.posted import DigitalTwin
    from edgeyard.training.ste_services.twin import twin_app

    lab = None
    if live:
        from edgeyard.benchmark_api.settings import Settings
        from edgeyard.training.ste_services.observed_lab import observed_lab

        lab = observed_lab(Settings.load(config))
        lab.start()
    return twin_app(DigitalTwin(), token, lab)


def _scenarios(opened: ExitStack, token: str, db: str | None) -> FastAPI:
    from edgeyard.training.ste_services.scenarios import scenario_app

    return scenario_app(opened.enter_context(opened_db(db)), token)


def _scheduler(
    opened: ExitStack, token: str, twin: str, policy: str, models: Path | None, runs: RunFolder
) -> FastAPI:
    from edgeyard.plugins.scorers.learned import load_learned
    from edgeyard.training.ste.driver import LocalTraining
    from edgeyard.training.ste.scheduling import SchedulerController
    from edgeyard.training.ste_services import clients
    from edgeyard.training.ste_services.scheduler import scheduler_app

    twins = opened.enter_context(clients.service_client(twin, token, "--twin"))
    chosen, plugins = opened.enter_context(_schedulers(policy, models))
    deciding = SchedulerController(
        clients.HttpTwin(twins), chosen, plugins, monotonic_s=time.monotonic
    )
    training = None
    if models is not None:
        training = LocalTraining(deciding, models, runs, load_learned)
    return scheduler_app(deciding, token, training)


def _controller(
    opened: ExitStack,
    token: str,
    urls: tuple[str, str, str],
    runs: RunFolder,
    db: str | None,
    *,
    storing: bool,
) -> FastAPI:
    """Return the app of the controller.

    Args:
        opened: Closes its clients.
        token: That of callers and services.
        urls: Of twin, scheduler and scenarios.
        runs: Where its runs are.
        db: The ScenarioDB that stores episodes.
        storing: It stores them.
    """
    from edgeyard.training.ste.controller import Controller
    from edgeyard.training.ste.driver import RunDriver
    from edgeyard.training.ste_services import clients
    from edgeyard.training.ste_services.controller import RunQueue, controller_app

    flags = "--twin", "--scheduler", "--scenarios"
    twins, decides, sources = (
        opened.enter_context(clients.service_client(url, token, flag))
        for url, flag in zip(urls, flags, strict=True)
    )
    source = clients.HttpScenarios(sources)
    controller = Controller(source, clients.HttpTwin(twins), clients.HttpScheduling(decides))
    driver = RunDriver(controller, runs, clients.HttpTraining(decides))
    if storing:
        with opened_db(db):
            pass  # what is wrong with it is reported before the first run
    store = partial(_store, db) if storing else lambda *known: None
    return controller_app(RunQueue(driver, source, runs, store), token)


def list_(
    controller: ControllerUrl = "", runs_dir: RunsDir = None, as_json: AsJson = False
) -> None:
    """List past runs, newest first."""
    if controller:
        with _runs_at(controller) as runs:
            found = runs.runs()
    else:
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
    controller: ControllerUrl = "",
    runs_dir: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Show a run: its episodes, and what training has changed."""
    if controller:
        with _runs_at(controller) as runs:
            found = runs.run(run_id)
    else:
        found = _runs(runs_dir).run(run_id)
    if plot is not None:
        check_output(plot, "--plot")
        from edgeyard.training.ste_services.curves import curve_png

        write_output(plot, "--plot", curve_png(found))
    if as_json:
        emit_json(found)
    else:
        _show(found)


def cancel(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="Id of a run.")],
    controller: ControllerUrl = "http://127.0.0.1:8084",
    as_json: AsJson = False,
) -> None:
    """Cancel a run of a controller service: it ends before its next round.

    Its finished episodes are kept, and `ste run --resume RUN --controller URL` goes on with it.
    """
    with _runs_at(controller) as runs:
        found = runs.cancel(run_id)
    if as_json:
        emit_json(found)
    else:
        echo(f"Run {run_id} ends after {count_of(found['episodes_done'], 'episode')}.", err=True)


def _runs(folder: Path | None) -> RunFolder:
    import platformdirs

    from edgeyard.training.ste.runs import RunFolder

    return RunFolder(folder or Path(platformdirs.user_data_dir("edgeyard")) / "ste")


class _Only:
    """The one scenario of a run, as a ScenarioDB."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario

    def scenario(self, name: str) -> Scenario:
        """Return it."""
        return self._scenario


@contextmanager
def _schedulers(policy: str, models: Path | None) -> Iterator[tuple[Policy, Plugins]]:
    """Yield a policy and its plugins; own scorers run in processes of their own, as in the server.

    Raises:
        InvalidInput: The policy is unknown, or a plugin of it can't be made.
    """
    from edgeyard.benchmark_api.bootstrap import known_plugins
    from edgeyard.benchmark_api.settings import Settings
    from edgeyard.scheduler.framework.named import policy_named

    with known_plugins(Settings.load(None), models) as known:
        chosen = policy_named(policy, known)
        try:
            plugins = known.resolve(chosen)
        except ConfigError as error:
            accepted = "" if models else "--models DIR for models of your own"
            raise InvalidInput.at("--policy", "; ".join(error.problems), accepted) from error
        yield chosen, plugins


@contextmanager
def _driver(
    scenario: Scenario, runs: RunFolder, policy: str, models: Path | None
) -> Iterator[RunDriver]:
    """Yield the driver of an environment in this process.

    Raises:
        InvalidInput: The policy can't be used.
    """
    from edgeyard.plugins.scorers.learned import load_learned
    from edgeyard.scheduler.twin.posted import DigitalTwin
    from edgeyard.training.ste.controller import Controller, LocalScheduling, LocalTwin
    from edgeyard.training.ste.driver import LocalTraining, RunDriver
    from edgeyard.training.ste.scheduling import SchedulerController

    twin = LocalTwin(DigitalTwin())
    with _schedulers(policy, models) as (chosen, plugins):
        scheduler = SchedulerController(twin, chosen, plugins, monotonic_s=time.monotonic)
        training = None if models is None else LocalTraining(scheduler, models, runs, load_learned)
        controller = Controller(_Only(scenario), twin, LocalScheduling(scheduler))
        yield RunDriver(controller, runs, training)


def _store(db: str | None, scenario: Scenario, record: dict[str, Any], episode: Episode) -> None:
    """Store an episode in the ScenarioDB; one in which a model decided alone under its name."""
    from dataclasses import replace

    from edgeyard.simulator.cli.sim_stored import store_runs

    run, train = episode.simulation, record["train"]
    if train:
        run = replace(run, meta=replace(run.meta, policy=f"{run.meta.policy}, training {train}"))
    run_id = f"{record['run_id']}-{episode.episode}"
    store_runs(db, [(run_id, scenario, run, None)], f"ste run {record['scenario_ref']}", "ste")


def _pass_on(episode: Episode) -> None:
    """Store nothing of an episode."""


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


def _done(row: Row) -> int:
    """Return how many episodes have ended."""
    found: Any = row.get("episodes_done", row.get("episodes"))
    return found if isinstance(found, int) else len(found)


def _figure(row: Row, name: str) -> str:
    figures: Any = row["figures"]
    value = figures[name]
    return "-" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def _seconds(row: Row) -> float:
    found: Any = row["seconds"]
    return float(found)


def _reward(row: Row) -> str:
    trained: Any = row["trained"]
    value = trained.get("reward")
    return "-" if value is None else f"{value:.1f}"


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


def add_to(app: typer.Typer) -> None:
    """Register the group with its commands."""
    group = add_group(app, "ste", "DECICE's synthetic test environment.")
    group.command("run")(run)
    group.command("serve")(serve)
    group.command("cancel")(cancel)
    group.command("list")(list_)
    group.command("show")(show_)
