"""Reasons why benchmarks wait: made in one place, each with a code of its own."""

from __future__ import annotations

import ast
from pathlib import Path

import edgeyard
from edgeyard.scheduler.model import waiting_reasons
from edgeyard.scheduler.model.benchmark import WaitingReason, WaitReason

ROOT = Path(next(iter(edgeyard.__path__)))
MAKERS = {
    "scheduler/model/waiting_reasons.py",
    "scheduler/sim/ste/documents.py",  # as a document states them
    "scheduler/store/rows.py",  # as they were stored
}


def makes_reasons(path: Path) -> bool:
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == WaitReason.__name__
        for node in ast.walk(ast.parse(path.read_text()))
    )


def test_reasons_are_made_in_one_place() -> None:
    found = {
        str(path.relative_to(ROOT))
        for folder in ("scheduler", "plugins", "benchmark_api")
        for path in (ROOT / folder).rglob("*.py")
        if makes_reasons(path)
    }
    assert found == MAKERS


def test_a_failed_filter_an_own_policy_and_a_hold_have_different_codes() -> None:
    codes = [
        waiting_reasons.failed_filter("ram failed: ValueError").reason,
        waiting_reasons.own_policy().reason,
        waiting_reasons.held().reason,
    ]
    assert codes == [WaitingReason.FILTER_FAILED, WaitingReason.OWN_POLICY, WaitingReason.HELD]
