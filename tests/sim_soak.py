"""``make soak-sim``: the whole service under many schedules of faults.

Each schedule is drawn by Hypothesis, which also shrinks one that fails; with ``DENSE=1`` many
faults overlap in each, and all that fail are printed. The same seed draws the same schedules;
``SCHEDULE='…'`` lives one again that was printed. Ctrl-C ends it with the totals so far.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections import Counter
from collections.abc import Callable

from hypothesis import HealthCheck, given, seed, settings

from tests.faults.drawing import dense_schedule, run, schedules
from tests.faults.fault_run import FaultRun
from tests.faults.schedule import FaultSchedule, schedule_from_json

REPORT_S = 30.0
"""Between two lines about how far it is."""


def main() -> int:
    """Run; return 1 if something happened that must never happen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--schedule", default="", help="the JSON of one schedule")
    parser.add_argument("--dense", action="store_true", help="many faults that overlap")
    parser.add_argument("--log", action="store_true", help="show what the service logs")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO if args.log else logging.CRITICAL)
    if args.schedule:
        return _report(run(schedule_from_json(args.schedule)))
    return _soak(args.schedules, args.seed, _run_dense if args.dense else _run_drawn)


def _report(found: FaultRun) -> int:
    print(found)
    return 1 if found.violations else 0


RunSchedule = Callable[[FaultSchedule], FaultRun]


def _soak(count: int, number: int, run_all: Callable[[int, int, RunSchedule], None]) -> int:
    totals: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    failing: list[FaultSchedule] = []
    began_s = reported_s = time.monotonic()
    virtual_s = 0.0

    def run_counted(schedule: FaultSchedule) -> FaultRun:
        nonlocal reported_s, virtual_s
        found = run(schedule)
        totals.update(schedules=1, steps=found.steps, crashes=found.crashes, checks=found.checks)
        totals.update(epochs=found.epochs, restores=found.restores)
        virtual_s += found.virtual_s
        kinds.update(each.kind.value for each in schedule.faults)
        if time.monotonic() - reported_s > REPORT_S:
            reported_s = time.monotonic()
            print(f"{totals['schedules']:,} of {count:,} schedules", flush=True)
        if found.violations:
            failing.append(schedule)
        return found

    try:
        run_all(count, number, run_counted)
    except KeyboardInterrupt:
        print("interrupted")
    took_s = time.monotonic() - began_s
    summary = ", ".join(f"{value:,} {name}" for name, value in totals.items())
    print(f"seed {number}: {summary}, {virtual_s / 3600:,.0f} virtual hours")
    print(f"faults: {dict(kinds.most_common())}")
    print(f"{took_s:.0f} s; {'something is wrong' if failing else 'nothing is wrong'}")
    return 1 if failing else 0


def _run_drawn(count: int, number: int, run: RunSchedule) -> None:
    """Run what Hypothesis draws, until one fails; print the simplest that does."""
    failing: list[FaultSchedule] = []

    @seed(number)
    @settings(
        max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(schedules)
    def live_one(schedule: FaultSchedule) -> None:
        found = run(schedule)
        if found.violations:
            failing.append(schedule)
        assert not found.violations, found.violations

    try:
        live_one()
    except AssertionError as error:
        _print_failure(str(error), failing[-1])


def _run_dense(count: int, number: int, run: RunSchedule) -> None:
    """Run the schedules with the numbers from ``1000 * number`` on; print each that fails."""
    for each in range(1000 * number, 1000 * number + count):
        schedule = dense_schedule(each)
        found = run(schedule)
        if found.violations:
            _print_failure(str(found.violations), schedule)


def _print_failure(why: str, schedule: FaultSchedule) -> None:
    print(f"\n{why}\nReplay it: make soak-sim SCHEDULE='{schedule.to_json()}'", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
