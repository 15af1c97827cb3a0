"""Reasons why benchmarks wait: made in one place, each with a code of its own."""

from __future__ import annotations

import ast
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

import edgeyard
from edgeyard.plugins.builtin import BUILT_IN
from edgeyard.plugins.testing import board, pending, snapshot_of
from edgeyard.scheduler.decide.pins import PinnedBoard, pin_verdict
from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.protocols import Filter, Refusal
from edgeyard.scheduler.framework.registry import Kind
from edgeyard.scheduler.model import waiting_reasons
from edgeyard.scheduler.model.benchmark import (
    Binding,
    IfUnavailable,
    WaitingReason,
    WaitReason,
)
from edgeyard.scheduler.model.decision import PinGrace
from tests.builders.decision import cycle, plugins

ROOT = Path(next(iter(edgeyard.__path__)))
MAKERS = {
    "scheduler/model/waiting_reasons.py",
    "training/ste/cycle_inputs.py",  # as a document states them
    "scheduler/store/rows.py",  # as they were stored
}


def makes_reasons(path: Path) -> bool:
    text = path.read_text()
    return WaitReason.__name__ in text and any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == WaitReason.__name__
        for node in ast.walk(ast.parse(text))
    )


def test_reasons_are_made_in_one_place() -> None:
    found = {
        str(path.relative_to(ROOT))
        for folder in ("scheduler", "plugins", "benchmark_api", "simulator", "training")
        for path in (ROOT / folder).rglob("*.py")
        if makes_reasons(path)
    }
    assert found == MAKERS


FILTERS = [cast(Filter, make()) for make in BUILT_IN[Kind.FILTER].values()]
PASSING = sorted(
    {each.reason for made in FILTERS for each in made.refusals if not each.never}
    | {WaitingReason.FILTER_FAILED}
)
"""Reasons for which a built-in filter refuses a board that it may accept later."""


@pytest.mark.parametrize("reason", PASSING)
def test_each_state_of_a_board_that_may_pass_has_words(reason: WaitingReason) -> None:
    found = waiting_reasons.refused_boards(
        WaitingReason.BOARD_BUSY, "b-1", "is busy", 3, {reason: 2}
    )
    assert not found.sentence.endswith("others: 2 refused"), f"BOARD_REFUSALS lacks {reason}"


ONE, TWO = "rpi4b-0001-0001", "rpi4b-0001-0002"
UNSTATED = {
    *(WaitingReason.RESERVED, WaitingReason.UNKNOWN_BOARD, WaitingReason.FILTER_FAILED),
    *(WaitingReason.BOARD_UNHEALTHY, WaitingReason.QUOTA, WaitingReason.BUDGET),
    WaitingReason.BOARD_DRAINED,
}
"""Reasons that no constraint of a job states, so that the cluster could choose such a board."""
STATED = {
    *(WaitingReason.BOARD_BUSY, WaitingReason.BOARD_OFFLINE, WaitingReason.MEMORY),
    *(WaitingReason.CLUSTER_CONSTRAINT, WaitingReason.DEADLINE_UNREACHABLE),
}
"""Reasons that the job states, that the cluster knows by itself, or that are a mere prediction."""


class RefusesTwo(Filter):
    """Refuses the second board for a stated reason."""

    def __init__(self, reason: WaitingReason, *, never: bool = False) -> None:
        self._refusals = (Refusal(reason, never=never),)

    @property
    def name(self) -> str:
        return "refuses_two"

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        return self._refusals

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        return np.array([[uid == TWO for uid in batch.snapshot.uids]], dtype=np.uint8)

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        return "is refused"


@pytest.mark.parametrize("reason", sorted(UNSTATED | STATED))
def test_a_loose_job_is_confined_where_its_text_does_not_state_the_refusal(
    reason: WaitingReason,
) -> None:
    [placement] = cycle(
        snapshot_of([board(ONE), board(TWO)]),
        [pending(binding=Binding.LOOSE)],
        more_plugins={"filters": (*plugins().filters, RefusesTwo(reason))},
    ).placements
    assert placement.allowed_uids == ((ONE,) if reason in UNSTATED else ())


def test_a_board_that_a_plugin_refuses_for_ever_is_in_no_allow_list() -> None:
    for binding in (Binding.LOOSE, Binding.FILTERED):
        [placement] = cycle(
            snapshot_of([board(ONE), board(TWO)]),
            [pending(binding=binding)],
            more_plugins={
                "filters": (*plugins().filters, RefusesTwo(WaitingReason.MEMORY, never=True))
            },
        ).placements
        assert (placement.target_uid, placement.allowed_uids) == (ONE, (ONE,))


@pytest.mark.parametrize("reason", list(WaitingReason))
def test_a_pinned_board_is_unavailable_for_these_reasons_alone(reason: WaitingReason) -> None:
    grace = PinGrace(if_unavailable=IfUnavailable.NOTIFY, grace_s=300.0, is_over=True)
    found = pin_verdict(grace, WaitReason(reason=reason, sentence="why"))
    assert (found.board is PinnedBoard.UNAVAILABLE) == (
        reason in ("board_offline", "board_unhealthy", "board_drained", "reserved", "unknown_board")
    )


def test_a_failed_filter_an_own_policy_and_a_hold_have_different_codes() -> None:
    codes = [
        waiting_reasons.failed_filter("ram failed: ValueError").reason,
        waiting_reasons.own_policy().reason,
        waiting_reasons.held("ann", "").reason,
    ]
    assert codes == [WaitingReason.FILTER_FAILED, WaitingReason.OWN_POLICY, WaitingReason.HELD]


@pytest.mark.parametrize(
    ("reason", "free", "sentence"),
    [
        (
            *(WaitingReason.CHEAP_HOUR, ONE),
            f"waits until 2026-11-22 03:00 UTC for {ONE}, when credits cost less: "
            "costs at least 2 min less than now",
        ),
        (
            *(WaitingReason.QUIET_HOST, TWO),
            f"waits until 2026-11-22 03:00 UTC for {ONE}, when its host is expected to be quiet: "
            f"costs at least 2 min less than on {TWO}, which is free",
        ),
    ],
)
def test_what_a_plan_waits_for_follows_the_word_benchmark(
    reason: WaitingReason, free: str, sentence: str
) -> None:
    """`explain` continues "but the benchmark" with it."""
    start = datetime(2026, 11, 22, 3, tzinfo=UTC)
    found = waiting_reasons.held_by_plan(reason, ONE, start, 130.0, free)
    assert (found.reason, found.sentence) == (reason, sentence)
