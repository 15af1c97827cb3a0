"""``learn outcomes``: train models from what happened in the lab."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from edgeyard.benchmark_api.cli.output import Column, console, emit_json, field, show, table
from edgeyard.benchmark_api.cli.program import AsJson, Reason, add_group, echo
from edgeyard.benchmark_api.cli.progress import progress_bar
from edgeyard.benchmark_api.cli.replaying import Config, DataDir, Since, opened, utc

if TYPE_CHECKING:
    from edgeyard.scheduler.outcomes.learning import TrainingReport
    from edgeyard.scheduler.outcomes.watch import WatchReport

_COLUMNS = (
    Column(title="MODEL", of=field("model"), whole=True),
    Column(title="STATE", of=field("state"), whole=True),
    Column(title="RUNS", of=field("rows"), right=True, whole=True),
    Column(title="GATES", of=field("gates")),
)


def outcomes(
    since: Since = None,
    data_dir: DataDir = None,
    config: Config = None,
    max_cycles: Annotated[
        int, typer.Option(metavar="N", min=1, max=100_000, help="Newest recorded cycles to read.")
    ] = 5_000,
    max_memory_mib: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1_024,
            max=1_000_000,
            help="Limit of the memory (address space) that the training may add to what it starts "
            "with, MiB.",
        ),
    ] = 2_048,
    max_cpu_s: Annotated[
        int,
        typer.Option(
            metavar="S", min=1, max=1_000_000, help="Limit of the training's processor time, s."
        ),
    ] = 1_800,
    shadow_cycles: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            max=1_000_000,
            help="Cycles for which a model has to be the shadow before it can become active.",
        ),
    ] = 50,
    reason: Reason = "",
    by_server: Annotated[bool, typer.Option("--by-server", hidden=True)] = False,
    as_json: AsJson = False,
) -> None:
    """Train models of run times and failures from the server's ended runs.

    Each run is seen with the features of its decision, from the recorded cycles. A model is judged
    on later decisions, on other boards, and by replaying the newest recorded days, and is
    registered as a candidate with its gates: see edgeyard models. Before that, shadows are measured
    on the runs that have ended since, and active models that are worse than the history are rolled
    back; afterwards models whose gates hold are promoted as the setting learn_promote states. Uses
    the server's database; the server may keep running. Needs the extras server and onnx. Exits
    with 2 where nothing could be learned, and with 1 after an error or at a limit.
    """
    from edgeyard.benchmark_api.bootstrap import known_plugins
    from edgeyard.benchmark_api.local_acts import acting_here
    from edgeyard.scheduler.clock import SharedClock, SteadyClock
    from edgeyard.scheduler.engine.registered_models import PromotionMode, promote_due
    from edgeyard.scheduler.model.acts import acting_as
    from edgeyard.scheduler.model.event import Event
    from edgeyard.scheduler.outcomes.learning import learn_outcomes
    from edgeyard.scheduler.outcomes.limits import ProcessorTimeUsed, limit_own_process
    from edgeyard.scheduler.outcomes.rows import read_outcome_rows
    from edgeyard.scheduler.outcomes.watch import watch_models

    with (
        opened(data_dir, config, error_status=1) as (store, settings),
        known_plugins(settings) as known,
    ):
        clock = SharedClock(SteadyClock())
        if not by_server:  # one that the server begins is no act of this machine's user
            begun = Event(at=clock.now(), kind="training.begun")
            with acting_as(acting_here(begun.kind, begun.at, reason=reason)):
                store.transact(lambda uow: uow.log.append(begun))
        limit_own_process(max_memory_mib << 20, max_cpu_s)
        try:
            with progress_bar() as advanced:
                rows = read_outcome_rows(
                    store,
                    since=utc(since),
                    max_cycles=max_cycles,
                    progress=lambda share: advanced("reading cycles", share),
                )
            now = clock.now()
            watched = watch_models(store, rows, now, min_cycles=shadow_cycles)
            found = learn_outcomes(
                store,
                rows,
                now,
                registry=known,
                report=lambda text: echo(f"edgeyard: {text}", err=True),
            )
            promoted = promote_due(store, PromotionMode(settings.learn_promote), now)
        except MemoryError:
            _stopped(f"{max_memory_mib} MiB", "--max-memory-mib")
        except ProcessorTimeUsed:
            _stopped(f"{max_cpu_s} s of processor time", "--max-cpu-s")
    if as_json:
        emit_json(
            {
                "rows": len(rows),
                "left_out": dict(rows.left_out),
                "models": _json(found),
                "watched": _watched(watched),
                "promoted": [
                    {"model": each.reference, "state": each.state.value, "reason": each.reason}
                    for each in promoted
                ],
            }
        )
    else:
        for each in watched:
            echo(f"{each.model.reference} is {each.model.state.value}: {each.sentence}")
        _show(found)
        for model in promoted:
            echo(f"{model.reference} is {model.state.value} now: {model.reason}")
    if not any(each.registered for each in found):
        raise typer.Exit(2)


def _stopped(limit: str, flag: str) -> NoReturn:
    echo(
        f"edgeyard: the training needs more than {limit}: raise {flag}, or lower --max-cycles; "
        "what was registered before stays: see edgeyard models list",
        err=True,
    )
    raise typer.Exit(1) from None


def _json(found: list[TrainingReport]) -> list[dict[str, object]]:
    from dataclasses import asdict

    return [
        {
            "kind": each.kind.value,
            "model": each.registered.reference if each.registered else None,
            "refusal": each.refusal,
            "gates": [asdict(gate) for gate in each.registered.gates] if each.registered else [],
        }
        for each in found
    ]


def _watched(found: Sequence[WatchReport]) -> list[dict[str, object]]:
    return [
        {
            "model": each.model.reference,
            "state": each.model.state.value,
            "sentence": each.sentence,
        }
        for each in found
    ]


def _show(found: list[TrainingReport]) -> None:
    rows: list[dict[str, object]] = []
    for each in found:
        model = each.registered
        if model is None:
            echo(f"edgeyard: no model of {each.kind.value}: {each.refusal}", err=True)
            continue
        failed = ", ".join(gate.name for gate in model.failed_gates)
        rows.append(
            {
                "model": model.reference,
                "state": model.state.value,
                "rows": model.data["rows"],
                "gates": f"do not hold: {failed}" if failed else "all hold",
            }
        )
    if rows:
        show(table(rows, _COLUMNS, console().width))


def add_to(app: typer.Typer) -> None:
    """Register the command in its group."""
    add_group(app, "learn", "Train policies and models.").command("outcomes")(outcomes)
