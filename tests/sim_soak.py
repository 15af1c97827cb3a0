"""``make soak-sim``: the whole service under many schedules of faults.

Each schedule is drawn by Hypothesis, which also shrinks one that fails. The same seed draws the
same schedules; ``SCHEDULE='…'`` lives one again that was printed.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections import Counter

from hypothesis import HealthCheck, given, seed, settings

from edgeyard.scheduler.sim.service.fault_run import FaultRun
from edgeyard.scheduler.sim.service.schedule import FaultSchedule, schedule_from_json
from tests.builders.fault_schedules import run, schedules

REPORT_S = 30.0
"""Between two lines about how far it is."""


def main() -> int:
    """Run; return 1 if something happened that must never happen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--schedule", default="", help="the JSON of one schedule")
    parser.add_argument("--log", action="store_true", help="show what the service logs")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO if args.log else logging.CRITICAL)
    if args.schedule:
        return _report(run(schedule_from_json(args.schedule)))
    return _soak(args.schedules, args.seed)


def _report(found: FaultRun) -> int:
    print(found)
    return 1 if found.violations else 0


def _soak(count: int, number: int) -> int:
    totals: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    failing: list[FaultSchedule] = []
    began_s = reported_s = time.monotonic()

    @seed(number)
    @settings(
        max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(schedules)
    def live(schedule: FaultSchedule) -> None:
        nonlocal reported_s
        found = run(schedule)
        totals.update(schedules=1, steps=found.steps, crashes=found.crashes, checks=found.checks)
        totals["virtual hours"] += round(found.virtual_s / 3600)
        kinds.update(each.kind.value for each in schedule.faults)
        if time.monotonic() - reported_s > REPORT_S:
            reported_s = time.monotonic()
            print(f"{totals['schedules']:,} of {count:,} schedules", flush=True)
        if found.violations:
            failing.append(schedule)
        assert not found.violations, found.violations

    try:
        live()
    except AssertionError as error:
        print(f"\n{error}\nReplay it: make soak-sim SCHEDULE='{failing[-1].to_json()}'")
    took_s = time.monotonic() - began_s
    print(f"seed {number}: " + ", ".join(f"{value:,} {name}" for name, value in totals.items()))
    print(f"faults: {dict(kinds.most_common())}")
    print(f"{took_s:.0f} s; {'something is wrong' if failing else 'nothing is wrong'}")
    return 1 if failing else 0


if __name__ == "__main__":
    raise SystemExit(main())
