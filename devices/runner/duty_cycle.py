"""Emulated boards that are slower than their machine: after each real inference the engine idles.

The time that the inference took of the processors is the computing part of the cycle, so that a
board with a duty cycle of 0.25 takes four times as long, as under a quota of processor time
(``cpu.max`` of Linux). Waits for a busy processor are not multiplied. The idle time is part of the
latency: it is what the emulated board takes.

On-device training and types that an engine declares are not slowed down: the engine runs them as a
whole.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Callable, Mapping, Sequence

from edgeyard.devices.runner.engine import Session, TensorSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def with_duty_cycle(
    session: Session,
    duty_cycle: float,
    *,
    processor_s: Callable[[], float] = time.process_time,
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
    return _SlowSession(session, 1.0 / duty_cycle - 1.0, processor_s, sleep)


class _SlowSession:
    def __init__(
        self,
        session: Session,
        idle_ratio: float,
        processor_s: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._session, self._idle_ratio = session, idle_ratio
        self._processor_s, self._sleep = processor_s, sleep

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
        began_s = self._processor_s()
        outputs = self._session.run(feeds)
        self._sleep((self._processor_s() - began_s) * self._idle_ratio)
        return outputs
