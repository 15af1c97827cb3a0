"""Policies that others are compared with: the policy ``default`` with another order or choice."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass

import tomli_w


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """How a baseline differs from the policy ``default``.

    Attributes:
        queue_policy: Its order.
        scorer: Chooses the board.
        planner: Its planner; with one the scorer only breaks ties.
        backfill: Of logs and nodes; without effect in a lab.
        what: In a line.
    """

    queue_policy: str = "fifo"
    scorer: str = "least_loaded"
    planner: str = "none"
    backfill: str = "none"
    what: str


BASELINES: Mapping[str, Baseline] = {
    "fcfs": Baseline(what="First come, first served."),
    "sjf": Baseline(queue_policy="shortest_first", what="The shortest predicted run first."),
    "edf": Baseline(queue_policy="earliest_deadline", what="The earliest deadline first."),
    "easy": Baseline(backfill="easy", what="First come, first served, with EASY backfilling."),
    "conservative": Baseline(
        backfill="conservative", what="First come, first served, each with a reservation."
    ),
    "random": Baseline(
        queue_policy="random", scorer="random", what="A random order, and random boards."
    ),
    "tetris": Baseline(
        queue_policy="tetris", scorer="tetris", what="Alignment of needs with what is free."
    ),
    "wfp3": Baseline(queue_policy="wfp3", what="WFP3: waiting time over run time, cubed."),
    "unicep": Baseline(queue_policy="unicep", what="UNICEP: waiting time relative to size."),
    "f1": Baseline(queue_policy="f1", what="F1 of Carastan-Santos and de Camargo."),
    "f2": Baseline(queue_policy="f2", what="F2 of Carastan-Santos and de Camargo."),
    "f3": Baseline(queue_policy="f3", what="F3 of Carastan-Santos and de Camargo."),
    "f4": Baseline(queue_policy="f4", what="F4 of Carastan-Santos and de Camargo."),
    "fastest": Baseline(
        scorer="fastest", what="First come, first served, on the fastest free one."
    ),
    "met": Baseline(planner="met", what="Minimum execution time."),
    "mct": Baseline(planner="mct", what="Minimum completion time."),
    "min_min": Baseline(planner="min_min", what="The earliest of the earliest ends first."),
    "max_min": Baseline(planner="max_min", what="The latest of the earliest ends first."),
    "sufferage": Baseline(planner="sufferage", what="Who would lose most by its second best."),
}


def baseline_text(name: str, default: str) -> str:
    """Return the TOML of a baseline.

    Args:
        name: One of `BASELINES`.
        default: The TOML of the policy ``default``.
    """
    own = BASELINES[name]
    policy = tomllib.loads(default)
    policy |= {"name": name, "queue_policy": own.queue_policy, "fallback": own.scorer}
    policy["assignment"] |= {"planner": own.planner, "backfill": own.backfill}
    policy["scorers"] = [{"name": own.scorer, "weight": 1.0}]
    return f"# A baseline: {own.what}\n" + tomli_w.dumps(policy)
