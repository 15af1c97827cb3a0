"""Emulated boards that idle after each inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeyard.devices.runner.duty_cycle import with_duty_cycle
from edgeyard.devices.runner.engine import TensorSpec


@dataclass
class BusySession:
    """A session whose inferences take so many seconds of a processor each."""

    processor_s: float = 0.0
    costs: list[float] = field(default_factory=lambda: [0.3, 0.1])
    inputs: Sequence[TensorSpec] = ()
    outputs: Sequence[TensorSpec] = ()
    facts: Mapping[str, object] = field(default_factory=lambda: {"version": "1"})

    def run(self, feeds: Mapping[str, NDArray[np.generic]]) -> Sequence[NDArray[np.generic]]:
        self.processor_s += self.costs.pop(0)
        return [feeds["x"]]


@pytest.mark.parametrize(("duty_cycle", "factor"), [(0.5, 1.0), (0.25, 3.0)])
def test_the_idle_time_follows_the_processor_time_of_each_inference(
    duty_cycle: float, factor: float
) -> None:
    session, slept = BusySession(), list[float]()
    slow = with_duty_cycle(
        session, duty_cycle, processor_s=lambda: session.processor_s, sleep=slept.append
    )
    feeds = {"x": np.ones(2)}
    assert slow.run(feeds)[0] is feeds["x"]
    slow.run(feeds)
    assert slept == pytest.approx([0.3 * factor, 0.1 * factor])
    assert slow.facts == session.facts


def test_a_board_that_always_computes_has_the_session_of_its_engine() -> None:
    session = BusySession()
    assert with_duty_cycle(session, 1.0) is session
