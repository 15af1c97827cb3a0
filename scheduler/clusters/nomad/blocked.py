"""Why Nomad keeps a job waiting, with the names of the boards that are taken."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from edgeyard.devices.attributes import PROGRESS, attributes_of
from edgeyard.devices.constraints import compare
from edgeyard.devices.model import AttributeValue, Board, Host
from edgeyard.devices.operators import NODE_ATTRIBUTE_PATTERN
from edgeyard.scheduler.clusters.fitting import Condition, choose

Json = Mapping[str, object]

_DEVICE_ATTRIBUTE = re.compile(r"\$\{device\.attr\.([^}]+)\}")


class BoardMatcher:
    """Compares what waiting jobs demand with the boards of one moment.

    Thread-safe. Many jobs demand the same, so each demand is compared once.
    """

    def __init__(self, hosts: Sequence[Host]) -> None:
        self.hosts = hosts
        self._reasons: dict[tuple[Condition, ...], str] = {}
        self._boards = [board for host in hosts for board in host.boards]
        self._host = {board.target_uid: host for host in hosts for board in host.boards}
        self._attributes: dict[str, dict[str, AttributeValue]] = {}

    def why_not(self, conditions: tuple[Condition, ...]) -> str:
        """Return why no board is there for a job; "" where the boards are not the reason."""
        if conditions not in self._reasons:
            self._reasons[conditions] = self._why_not(conditions)
        return self._reasons[conditions]

    def _why_not(self, conditions: Sequence[Condition]) -> str:
        if not conditions:
            return ""
        of_idle = [each for each in conditions if _of_idle(each)]
        lasting = [each for each in conditions if not _of_idle(each)]

        def unavailable(board: Board) -> str:
            host = self._host[board.target_uid]
            if not host.ready:
                return f"is on {host.name}, which is {host.ready_reason or 'not ready'}"
            if not board.healthy:
                return board.health_reason
            if board.busy or all(
                compare(board.progress, each.operator, each.value) for each in of_idle
            ):
                return board.busy_reason
            return (
                f"reports a task at {board.progress or 0:.0f} %: one of a job outside Edgeyard, or "
                "one that has just ended, since hosts report some 10 s late"
            )

        return choose(self._boards, lasting, unavailable, self._attributes_of)[1]

    def _attributes_of(self, board: Board) -> dict[str, AttributeValue]:
        known = self._attributes.get(board.target_uid)
        if known is None:
            known = {**attributes_of(board), **self._host[board.target_uid].attributes}
            self._attributes[board.target_uid] = known
        return known


def _of_idle(condition: Condition) -> bool:
    """Return whether the progress of a board that does nothing meets it, so that it waits."""
    return condition.attribute == PROGRESS and compare(0, condition.operator, condition.value)


def conditions_of(job: Json) -> tuple[Condition, ...]:
    """Return what a job demands of its board and of the node of that, as Nomad shows the job."""
    found = [
        Condition(
            attribute=str(each["LTarget"]),
            operator=str(each.get("Operand")),
            value=str(each.get("RTarget") or ""),
        )
        for each in _list(job, "Constraints")
        if NODE_ATTRIBUTE_PATTERN.fullmatch(str(each.get("LTarget")))
    ]
    for group in _list(job, "TaskGroups"):
        for task in _list(group, "Tasks"):
            resources = task.get("Resources")
            for device in _list(resources if isinstance(resources, Mapping) else {}, "Devices"):
                for each in _list(device, "Constraints"):
                    match = _DEVICE_ATTRIBUTE.fullmatch(str(each.get("LTarget")))
                    if match is not None:
                        found.append(
                            Condition(
                                attribute=match.group(1),
                                operator=str(each.get("Operand")),
                                value=str(each.get("RTarget") or ""),
                            )
                        )
    return tuple(found)


def _list(value: Json, name: str) -> Sequence[Json]:
    found = value.get(name)
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else ()
