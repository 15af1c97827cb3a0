"""Metrics of cycles, read off their outcomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edgeyard.scheduler.engine.cycle_outcome import CycleOutcome, PolicyCommit
from edgeyard.scheduler.framework.protocols import ScorerKind
from edgeyard.scheduler.framework.runner import FAULT_CAUSES

Observe = Callable[[str, float, Mapping[str, str]], None]
"""``observe(metric, value, labels)``: takes a metric; the engine does not know who stores it."""


def observe_cycle(observe: Observe, outcome: CycleOutcome) -> None:
    """Report the metrics of a cycle that was committed."""
    for commit in () if outcome.idle else outcome.all_commits:
        observe_scorers(observe, commit)
        if commit.seq is None:
            continue
        counts = {
            "placed": len(commit.placed),
            "preempted": len(commit.preempted),
            "waiting": len(commit.new_reasons),
        }
        for result, count in counts.items():
            labels = {"policy": commit.policy.policy.name, "result": result}
            observe("decisions_total", count, labels)
    observe("cycle_seconds", outcome.seconds, {})


def observe_scorers(observe: Observe, commit: PolicyCommit) -> None:
    """Report the times, faults and fallbacks of the scorers that one policy asked."""
    result = commit.result
    faults = (*result.faults, *result.overruns)
    proposals = {each.scorer: each for each in result.decided.scores.proposals}
    for weighted in commit.policy.plugins.scorers:
        name = weighted.scorer.name
        if name in result.seconds:
            observe("scorer_seconds", result.seconds[name], {"scorer": name})
        for cause in FAULT_CAUSES:
            count = sum(each.plugin == name and each.cause == cause for each in faults)
            observe("scorer_failures_total", count, {"scorer": name, "cause": cause})
        proposal = proposals.get(name)
        fell_back = proposal is not None and bool(proposal.fallback)
        observe("scorer_fallbacks_total", float(fell_back), {"scorer": name})
        if proposal is not None and weighted.scorer.kind is ScorerKind.ILP:
            # With the solvers that were killed: the kind of their answer is another one.
            for fact, metric in (("seconds", "ilp_seconds"), ("gap", "ilp_gap_ratio")):
                if fact in proposal.facts:
                    observe(metric, proposal.facts[fact], {"scorer": name})
