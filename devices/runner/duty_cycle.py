"""Emulated boards that are slower than their machine: after each real inference the engine idles.

The time that the inference took of the processors is the computing part of the cycle, so that a
board with a duty cycle of 0.25 takes four times as long, as under a quota of processor time
(``cpu.max`` of Linux). Waits for a busy processor are not multiplied. The idle time is part of the
latency: it is what the emulated board takes.

Language models idle after the prompt and after each token. On-device training and types that an
engine declares are not slowed down: the engine runs them as a whole.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence, TypeVar

from edgeyard.devices.runner.board import process_s
from edgeyard.devices.runner.engine import Session, TensorSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")


def with_duty_cycle(
    session: Session,
    duty_cycle: float,
    *,
    processor_s: Callable[[], float] = process_s,
    sleep: Callable[[float], None] = time.sleep,
) -> Session:
    """Return a session that idles after each inference; at 1 the given one.

    Args:
        duty_cycle: Share of the time that it computes, above 0 up to 1.
        processor_s: Processor time of this process so far, seconds.
        sleep: Idles for so many seconds.
    """
    if duty_cycle >= 1.0:
        return session
    return _SlowSession(session, idling(duty_cycle, processor_s=processor_s, sleep=sleep))


def idling(
    duty_cycle: float,
    *,
    processor_s: Callable[[], float] = process_s,
    sleep: Callable[[float], None] = time.sleep,
) -> Callable[[Callable[[], T]], T]:
    """Return what makes a call and then idles; at 1 it only makes the call.

    Args:
        duty_cycle: As for `with_duty_cycle`, as are the others.
    """
    if duty_cycle >= 1.0:
        return lambda call: call()
    idle_ratio = 1.0 / duty_cycle - 1.0

    def call_and_idle(call: Callable[[], T]) -> T:
        began_s = processor_s()
        found = call()
        sleep((processor_s() - began_s) * idle_ratio)
        return found

    return call_and_idle


class _SlowSession:
    def __init__(
        self,
        session: Session,
        idle_after: Callable[[Callable[[], Any]], Any],
    ) -> None:
        self._session, self._idle_after = session, idle_after

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        return self._session.inputs

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        return self._session.outputs

    @property
    def facts(self) -> Mapping[str, object]:
        return self._session.facts

    def run(self, feeds: Mapping[str, NDArray[np.generic]]) -> Sequence[NDArray[np.generic]]:
        found: Sequence[NDArray[np.generic]] = self._idle_after(lambda: self._session.run(feeds))
        return found
