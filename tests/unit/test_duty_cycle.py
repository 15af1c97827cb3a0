"""Emulated boards that idle after each inference."""

from __future__ import annotations

import subprocess
import sys
import textwrap
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


def test_short_inferences_have_idle_times_where_processor_time_is_limited() -> None:
    script = """
        import resource, time
        from edgeyard.devices.runner.duty_cycle import idling

        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
        slept = []
        call = idling(0.5, sleep=lambda idle_s: slept.append(idle_s) or time.sleep(1e-4))
        for _ in range(200):
            call(lambda: sum(range(5000)))
        print(min(slept))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) > 0.0
