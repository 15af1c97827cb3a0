"""What a scenario states of the past and of its hosts, as decisions know it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model.history import PastRun, RunKind
from edgeyard.scheduler.model.knowledge import HostLoad
from edgeyard.simulator.lab.jobs import model_sha256
from edgeyard.simulator.scenario import LabScenario, PastRunRow


def past_run(row: PastRunRow, number: int, begin: datetime) -> PastRun:
    """Return a run that ended before the beginning.

    Args:
        row: As stated.
        number: Of the row, which names its benchmark.
        begin: Beginning of the simulation.
    """
    return PastRun(
        benchmark_id=f"past-{number + 1}",
        user_id=row.user,
        target_uid=row.target_uid,
        family=row.target_uid.split("-")[0],
        kind=RunKind(
            engine=row.engine,
            benchmark_type=row.benchmark_type,
            model_sha256=model_sha256(row.model),
            nb_inference=row.nb_inference,
            variant=row.variant,
        ),
        run_s=row.run_s,
        failure=None if row.failure is None else row.failure.value,
        ended_at=begin - timedelta(seconds=row.ended_s),
    )


class HostLoads:
    """The stated loads of hosts, by time."""

    def __init__(self, lab: LabScenario, hosts: Collection[str], source: str) -> None:
        """Nothing is known before the first row of a host.

        Args:
            lab: States the loads.
            hosts: Names of all hosts that are ever in the lab.
            source: Name of the scenario, for errors.

        Raises:
            InvalidInput: A row names no host of the lab.
        """
        for place, row in enumerate(lab.loads):
            if row.host not in hosts:
                raise InvalidInput.at(
                    f"{source}: lab.loads[{place}].host",
                    f"there is no host {row.host!r}",
                    ", ".join(sorted(hosts)[:10]),
                )
        self._rows = sorted(lab.loads, key=lambda each: each.at_s)
        self._next = 0
        self._now: Mapping[str, HostLoad] = {}

    def at(self, now_s: float) -> Mapping[str, HostLoad]:
        """Return the loads by host at a time, which never goes back.

        Returns:
            The same object while nothing changes; without hosts that report no load.
        """
        if self._next < len(self._rows) and self._rows[self._next].at_s <= now_s:
            found = dict(self._now)
            while self._next < len(self._rows) and self._rows[self._next].at_s <= now_s:
                row = self._rows[self._next]
                self._next += 1
                if row.cpu is None or row.memory is None:
                    found.pop(row.host, None)
                else:
                    found[row.host] = HostLoad(cpu=row.cpu, memory=row.memory)
            self._now = found
        return self._now
