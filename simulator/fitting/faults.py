"""How often boards, hosts and benchmarks fail, and for how long, from a recorded history."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeyard.scheduler.model.benchmark import FailureCategory
from edgeyard.simulator.fitting.estimates import (
    Estimate,
    beta_strength,
    rate_interval,
    share_interval,
)
from edgeyard.simulator.importers.history import (
    EXTERNAL_CAUSES,
    MAX_REPORT_LAG_S,
    KnownBoards,
    Row,
)
from edgeyard.simulator.scenario import Faults

HOUR_S = 3600.0
BENCHMARK_CAUSES = frozenset(
    {
        FailureCategory.USER_MODEL,
        FailureCategory.USER_INPUT,
        FailureCategory.ENGINE_UNSUPPORTED,
        FailureCategory.OUT_OF_MEMORY,
        FailureCategory.TIMEOUT,
    }
)
"""Causes of failures that follow a benchmark to every board."""
_NO_RUN = EXTERNAL_CAUSES | {FailureCategory.REJECTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedFaults:
    """What fails how often.

    Attributes:
        faults: Of the whole lab.
        task_rates: Probability of a fault of each board that ran anything; empty without faults.
        estimates: With intervals.
    """

    faults: Faults
    task_rates: Mapping[str, float]
    estimates: tuple[Estimate, ...]


def fit_faults(attempts: Mapping[str, Sequence[Row]], known: KnownBoards) -> FittedFaults:
    """Fit failures of runs by cause and board, and faults of boards, hosts and networks.

    Runs that failed because their board or its host was just failing belong to that fault. Attempts
    that were preempted, lost or rejected are left out: they follow from decisions and from outages.
    """
    outages = known.outages()
    hosts = known.host_of()
    failing: dict[str, list[float]] = defaultdict(list)
    for outage in outages:
        failing[outage.name].append(outage.from_s)
    task_causes: Counter[FailureCategory] = Counter()
    model_causes: Counter[FailureCategory] = Counter()
    ran: Counter[str] = Counter()
    faulted: Counter[str] = Counter()
    with_end = 0
    for its in attempts.values():
        for each in its:
            uid = each["target_uid"]
            category = each["failure_category"] and FailureCategory(each["failure_category"])
            ended_s = known.seconds(each["ended_at"])
            if category in _NO_RUN or category in BENCHMARK_CAUSES:
                continue
            if category and any(
                abs(ended_s - at_s) <= MAX_REPORT_LAG_S
                for name in (uid, hosts.get(uid, ""))
                for at_s in failing.get(name, ())
            ):
                continue
            ran[uid] += 1
            if category:
                faulted[uid] += 1
                task_causes[category] += 1
        last = its[-1]["failure_category"]
        if last is None or FailureCategory(last) in BENCHMARK_CAUSES:
            with_end += 1
            if last is not None:
                model_causes[FailureCategory(last)] += 1
    estimates = []
    faults: dict[str, Any] = {}
    runs, failures = ran.total(), faulted.total()
    if runs:
        low, high = share_interval(failures, runs)
        faults["task_rate"] = failures / runs
        estimates.append(_estimate("task_rate", failures / runs, low, high, runs))
    if with_end:
        low, high = share_interval(model_causes.total(), with_end)
        rate = model_causes.total() / with_end
        faults["model_rate"] = rate
        estimates.append(_estimate("model_rate", rate, low, high, with_end))
    for field, causes in (("task_causes", task_causes), ("model_causes", model_causes)):
        if causes:
            faults[field] = {cause: float(causes[cause]) for cause in sorted(causes)}
    for what in ("board", "host", "network"):
        its_parts = known.host_of() if what == "board" else {name: "" for name in hosts.values()}
        found = [(each.from_s, each.to_s) for each in outages if each.what == what]
        # What was so when cycles were first recorded began at an unknown time.
        begun = [times for times in found if times[0] > known.first_s]
        down_s = sum(to_s - from_s for from_s, to_s in found)
        up_s = max(len(its_parts) * (known.duration_s - known.first_s) - down_s, 1.0)
        repaired = [to_s - from_s for from_s, to_s in begun if to_s < known.duration_s]
        low, high = rate_interval(len(begun), up_s)
        between_s = up_s / len(begun) if begun else 0.0
        name = f"{what}_mean_between_s"
        faults[name] = between_s
        estimates.append(
            _estimate(name, between_s, 1.0 / high, 1.0 / low if low else np.inf, len(begun))
        )
        if begun:
            total_s = sum(to_s - from_s for from_s, to_s in begun)
            low, high = rate_interval(max(len(repaired), 1), total_s)
            name = f"{what}_mean_repair_s"
            faults[name] = total_s / max(len(repaired), 1)
            estimates.append(
                _estimate(
                    name, faults[name], 1.0 / high, 1.0 / low if low else np.inf, len(repaired)
                )
            )
    return FittedFaults(
        faults=Faults(**faults),
        task_rates=_by_board(ran, faulted),
        estimates=tuple(estimates),
    )


def _by_board(ran: Counter[str], faulted: Counter[str]) -> Mapping[str, float]:
    """Return the probability of a fault of each board, shrunk to that of all."""
    if not faulted:
        return {}
    uids = sorted(ran)
    of = np.array([ran[uid] for uid in uids], dtype=np.float64)
    counts = np.array([faulted[uid] for uid in uids], dtype=np.float64)
    strength = beta_strength(counts, of)
    if not np.isfinite(strength):
        return {}
    share = counts.sum() / of.sum()
    rates = (counts + strength * share) / (of + strength)
    return dict(zip(uids, rates.tolist(), strict=True))


def _estimate(name: str, value: float, low: float, high: float, observations: int) -> Estimate:
    return Estimate(name=name, value=value, low=low, high=high, observations=observations)
