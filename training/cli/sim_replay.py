"""``sim replay``: replay logs of other clusters in virtual time."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeyard.benchmark_api.cli.output import Column, console, emit_json, field, show, table
from edgeyard.benchmark_api.cli.output_files import check_output, open_output
from edgeyard.benchmark_api.cli.program import AsJson, echo
from edgeyard.benchmark_api.cli.progress import progress_bar
from edgeyard.errors import ConfigError, InvalidInput
from edgeyard.installing import extra_command
from edgeyard.simulator.cli.sim_reports import show_notes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from edgeyard.scheduler.framework.protocols import QueuePolicy
    from edgeyard.scheduler.framework.registry import Registry
    from edgeyard.simulator.schedules import Schedule
    from edgeyard.training.worlds.swf import Log

_BOUNDED_JOBS = 200_000
"""Logs up to this length get a lower bound, which takes a second or two then."""

_ALIASES = {"fcfs": "fifo", "sjf": "shortest_first", "edf": "earliest_deadline"}
_LONG_LOG_JOBS = 20_000
_COLUMNS = (
    Column(title="PER JOB", of=field("figure"), whole=True),
    Column(title="MEAN", of=field("mean"), whole=True, right=True),
    Column(
        title="95 % INTERVAL", of=field("interval"), whole=True, right=True, from_width=96, yields=4
    ),
    Column(title="MEDIAN", of=field("p50"), yields=3, whole=True, right=True),
    Column(title="90 %", of=field("p90"), yields=2, whole=True, right=True),
    Column(title="99 %", of=field("p99"), yields=1, whole=True, right=True),
    Column(title="MAX", of=field("max"), whole=True, right=True),
)


class Backfill(StrEnum):
    """Values of ``--backfill``."""

    NONE = "none"
    EASY = "easy"
    CONSERVATIVE = "conservative"
    RLSCHEDULER = "rlscheduler"


Queue = Annotated[
    str | None,
    typer.Option(
        metavar="fcfs|sjf|f1|f2|f3|f4|wfp3|unicep|POLICY",
        help="Order of the queue; POLICY: a queue policy of Edgeyard or of a plugin, or the "
        "manifest of a model (.toml). Default: fcfs.",
    ),
]
BackfillRule = Annotated[
    Backfill | None,
    typer.Option(
        help="Rule by which jobs may start before the first one of the queue. Default: none."
    ),
]


def replay(
    log: Annotated[
        Path,
        typer.Argument(metavar="LOG", help="Log in the Standard Workload Format, plain or .gz."),
    ],
    queue: Queue = None,
    backfill: BackfillRule = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Use the queue policy (with its options) and the backfilling of this policy.",
        ),
    ] = None,
    commit: Annotated[
        bool,
        typer.Option(
            "--commit",
            help="Keep to the job that was chosen first until it starts, even if jobs that "
            "would come "
            "before it arrive meanwhile.",
        ),
    ] = False,
    procs: Annotated[
        int | None,
        typer.Option(
            metavar="P",
            min=1,
            max=2**31 - 1,
            help="Processors of the machine; default: the header's.",
        ),
    ] = None,
    skip: Annotated[int, typer.Option(metavar="N", min=0, help="Skip the first N jobs.")] = 0,
    count: Annotated[
        int | None, typer.Option(metavar="M", min=1, help="Replay at most M jobs.")
    ] = None,
    starts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv", help="Write job,submit,start,end,procs in seconds of the log."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npz", help="Write the whole run, for edgeyard sim report."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Replay the log of another cluster on an empty machine.

    Jobs with a run time of 0, or without a job number or submit time (-1), are left out; a negative
    run time counts as 10 s. A job takes its allocated or its requested processors, whichever is
    more. How many jobs a rule touched is stated. The backfilling rlscheduler is the
    weaker one of RLScheduler's environment and implies --commit.
    """
    from edgeyard.scheduler.kernel.compiled import COMPILED
    from edgeyard.simulator.runs import save_run
    from edgeyard.training.worlds.replay import Backfilling, simulated_run
    from edgeyard.training.worlds.replay import replay as replayed
    from edgeyard.training.worlds.swf import no_processors, read_swf

    label, ordering, backfill = _rules(queue, backfill, policy)
    _check_outputs(log, starts, out)
    began = time.monotonic()
    with progress_bar() as advanced:
        whole = read_swf(log, lambda share: advanced("reading", share))
        part = whole.part(skip, count)
        if not len(part):
            raise InvalidInput.at("--skip", f"{log} has only {len(whole)} jobs with a run time")
        processors = procs or whole.max_procs or no_processors(whole)
        if not COMPILED and len(part) >= _LONG_LOG_JOBS:
            fix = extra_command("compiled")
            echo(f"edgeyard: this is slow without Numba: {fix}", err=True)
        advanced("compiling" if COMPILED else "replaying", 0.0)
        found = replayed(
            part,
            ordering,
            processors=processors,
            backfilling=Backfilling(backfill.value),
            commit=commit,
            advanced=lambda share: advanced("replaying", share),
        )
    schedule = found.schedule
    if out is not None:
        part_name = "" if len(part) == len(whole) else f" ({len(part)} jobs from {skip})"
        save_run(
            simulated_run(
                part,
                found,
                scenario=f"{log.name}{part_name}",
                policy=f"{label}{'+commit' if commit else ''}",
                processors=processors,
                wall_s=time.monotonic() - began,
            ),
            out,
        )
    if starts is not None:
        _write_starts(starts, part, schedule)
    show_notes(whole.notes)
    if as_json:
        emit_json({"jobs": len(part), **_figures(schedule, processors), "notes": [*whole.notes]})
        return
    _show(part, schedule, processors)


def _rules(
    queue: str | None, backfill: Backfill | None, policy: str | None
) -> tuple[str, QueuePolicy, Backfill]:
    """Return name, queue policy and backfilling that the flags state."""
    from edgeyard.plugins.builtin import registry

    if policy is not None:
        for flag, given in (("--queue", queue), ("--backfill", backfill)):
            if given is not None:
                raise InvalidInput.at(flag, "is part of the policy of --policy", "one of the two")
        return _of_policy(policy, registry())
    queue, backfill = queue or "fcfs", backfill or Backfill.NONE
    label = f"{queue}{'' if backfill is Backfill.NONE else f'+{backfill.value}'}"
    return label, _policy(queue, registry().queue_policy), backfill


def _check_outputs(log: Path, starts: Path | None, out: Path | None) -> None:
    for flag, path in (("--starts", starts), ("--out", out)):
        if path is None:
            continue
        check_output(path, flag)
        if path.exists() and log.exists() and path.samefile(log):
            raise InvalidInput.at(flag, "is the log itself", "another file")
    if starts is not None and out is not None and starts.resolve() == out.resolve():
        raise InvalidInput.at("--out", "is the file of --starts", "another file")


def _figures(schedule: Schedule, processors: int) -> dict[str, float]:
    return {
        "mean_wait_s": float(schedule.wait_s.mean()),
        "mean_bounded_slowdown": float(schedule.bounded_slowdown().mean()),
        "utilisation": schedule.utilisation(processors),
        "makespan_s": schedule.makespan_s,
        "max_wait_s": float(schedule.wait_s.max()),
    }


def _policy(name: str, make: Callable[[str], QueuePolicy]) -> QueuePolicy:
    try:
        if name.endswith(".toml"):
            from edgeyard.plugins.queue_policies.learned_queue import load_learned_queue

            return load_learned_queue(Path(name))
        return make(_ALIASES.get(name, name))
    except ConfigError as error:
        accepted = "a queue model's .toml, or a built-in queue policy such as fcfs, sjf or edf"
        raise InvalidInput.at("--queue", "; ".join(error.problems), accepted) from error


def _of_policy(reference: str, known: Registry) -> tuple[str, QueuePolicy, Backfill]:
    """Return name, queue policy and backfilling of a policy; what can't act on a log is refused."""
    from edgeyard.scheduler.framework.named import policy_named
    from edgeyard.training.worlds.simulated_nodes import refuse_settings

    chosen = policy_named(reference, known)
    refuse_settings(chosen, log=True)
    try:
        plugins = known.resolve(chosen)
    except ConfigError as error:
        raise InvalidInput.at("--policy", "; ".join(error.problems)) from error
    return chosen.name, plugins.queue_policy, Backfill(chosen.backfill.value)


def _show(log: Log, schedule: Schedule, processors: int) -> None:
    import numpy as np

    from edgeyard.scheduler.figures.metrics import SLOWDOWN_THRESHOLD_S, fairness
    from edgeyard.simulator.wording import count_of
    from edgeyard.training.worlds.bounds import lower_bound

    figures = (
        ("waiting time, s", schedule.wait_s),
        ("turnaround, s", schedule.turnaround_s),
        ("slowdown", schedule.slowdown),
        ("bounded slowdown (10 s)", schedule.bounded_slowdown()),
    )
    show(table([_figure(name, values) for name, values in figures], _COLUMNS, console().width))
    between = "all of one user"
    if len(np.unique(log.user)) > 1:
        fair = fairness(log.user, schedule.bounded_slowdown())
        between = f"fairness between users {fair:.3f} (Jain, of their mean bounded slowdown)"
    show(
        "",
        f"{count_of(len(log), 'job')} on {count_of(processors, 'processor')}, "
        f"{_duration(schedule.makespan_s)}; "
        f"utilisation {schedule.utilisation(processors):.1%}; {between}",
    )
    if len(log) <= _BOUNDED_JOBS:
        share, run_s = schedule.procs / processors, schedule.run_s
        weights = 1.0 / np.maximum(run_s, SLOWDOWN_THRESHOLD_S)
        bound = lower_bound(schedule.submit, run_s, share)
        slowdown = max(lower_bound(schedule.submit, run_s, share, weights).mean_turnaround_s, 1.0)
        show(
            f"no schedule of these jobs reaches a mean turnaround below "
            f"{_number(bound.mean_turnaround_s)} s, a mean bounded slowdown below "
            f"{slowdown:.2f} or a makespan below {_duration(bound.makespan_s)}"
        )


def _figure(name: str, values: NDArray[np.float64]) -> dict[str, object]:
    from edgeyard.scheduler.figures.metrics import mean_interval, percentiles

    interval = mean_interval(values, block=round(len(values) ** 0.5))
    p50, p90, p99 = percentiles(values)
    return {
        "figure": name,
        "mean": _number(interval.mean),
        "interval": f"{_number(interval.low)}-{_number(interval.high)}",
        "p50": _number(p50),
        "p90": _number(p90),
        "p99": _number(p99),
        "max": _number(values.max()),
    }


def _duration(seconds: float) -> str:
    """Return a time in the unit in which people state it."""
    for unit, unit_s in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:,.1f} {unit}"
    return f"{seconds:,.0f} s"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"


def _write_starts(path: Path, log: Log, schedule: Schedule) -> None:
    columns = (log.submit, schedule.start, schedule.end)
    rows = zip(log.job.tolist(), *map(_seconds, columns), log.procs.tolist(), strict=True)
    with open_output(path, "--starts") as file:
        file.write(b"job,submit,start,end,procs\n")
        file.writelines(f"{','.join(map(str, row))}\n".encode() for row in rows)


def _seconds(times: NDArray[np.float64]) -> list[int | float]:
    return [int(each) if each.is_integer() else each for each in times.tolist()]


def add_to(group: typer.Typer) -> None:
    """Add the commands to the group ``sim``."""
    group.command("replay")(replay)
