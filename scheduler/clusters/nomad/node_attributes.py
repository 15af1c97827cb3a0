"""What Nomad's list of nodes leaves out: their attributes and metadata, for constraints."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from edgeyard.devices.model import NOT_READ, Host
from edgeyard.devices.operators import NODE_ATTRIBUTE_PATTERN
from edgeyard.errors import ClusterUnreachable

logger = logging.getLogger(__name__)

Json = Mapping[str, object]

REFRESH_INTERVAL_S = 60.0
"""Age at which a node that changed is read again. Its boards' progress changes it all the time, its
own attributes only with its machine, its agent or ``nomad node meta apply``."""

READ_TOGETHER = 32
"""Nodes that are read again for one answer, one after another: the cycle waits for them. Nodes of
which nothing is known yet do not count."""

READ_S = 5.0
"""Once they have taken so long, no other node is read for this answer."""

RETRY_INTERVAL_S = 10.0
"""Time after which a node that could not be read is tried again."""

MAX_CHARACTERS = 1000
"""Maximum characters of a value; longer ones are left out."""


@dataclass(frozen=True, slots=True)
class _ReadNode:
    """What is known of a node.

    Attributes:
        attributes: Of the node.
        read_with: The host as it was listed when they were read, at ``read_s``.
        listed: The host as it was listed last.
        host: That one with the attributes.
    """

    attributes: Mapping[str, str]
    read_with: Host
    read_s: float
    listed: Host
    host: Host


class NodeAttributes:
    """Adds attributes and metadata to listed hosts; one thread at a time.

    Attributes:
        incomplete: Nodes were left out of the last call, which had read enough; the next call reads
            more of them. One that could not be read is tried again after `RETRY_INTERVAL_S`.
    """

    def __init__(
        self, read: Callable[[str], Json], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """Read nodes by id with ``read``, which may raise ClusterUnreachable."""
        self._read = read
        self._now_s = now_s
        self._known: dict[str, _ReadNode] = {}
        self._failed_s: dict[str, float] = {}
        self.incomplete = False

    def added(self, hosts: Sequence[Host]) -> tuple[Host, ...]:
        """Return the hosts with what is known of their nodes."""
        now_s, left = self._now_s(), READ_TOGETHER
        known: dict[str, _ReadNode] = {}
        self.incomplete = False
        for host in hosts:
            before = self._known.get(host.host_id)
            if self._is_due(host, before, now_s):
                if (before is not None and left == 0) or self._now_s() - now_s >= READ_S:
                    self.incomplete = True
                else:
                    left -= before is not None
                    attributes = self._attributes(host)
                    if attributes is not None:
                        before = _ReadNode(attributes, host, now_s, host, _with(host, attributes))
            if before is None:
                continue
            if before.listed is not host:
                before = replace(before, listed=host, host=_with(host, before.attributes))
            known[host.host_id] = before
        self._known = known
        listed = {host.host_id for host in hosts}
        self._failed_s = {key: at_s for key, at_s in self._failed_s.items() if key in listed}
        return tuple(known[host.host_id].host if host.host_id in known else host for host in hosts)

    def _is_due(self, host: Host, before: _ReadNode | None, now_s: float) -> bool:
        failed_s = self._failed_s.get(host.host_id)
        if failed_s is not None and now_s < failed_s + RETRY_INTERVAL_S:
            return False
        return before is None or (
            before.read_with is not host and now_s >= before.read_s + REFRESH_INTERVAL_S
        )

    def _attributes(self, host: Host) -> Mapping[str, str] | None:
        """Return a node's attributes; None if they can't be read, which `added` then leaves out."""
        try:
            found = attributes_of_node(self._read(host.host_id))
        except ClusterUnreachable as error:
            self._failed_s[host.host_id] = self._now_s()
            logger.warning(
                "a node's attributes can't be read",
                extra={"event": "nomad.no_attributes", "host": host.name, "reason": str(error)},
            )
            return None
        self._failed_s.pop(host.host_id, None)
        return found


def _with(host: Host, attributes: Mapping[str, str]) -> Host:
    return replace(host, attributes={**host.attributes, **attributes}, attributes_read=True)


def attributes_of_node(node: Json) -> dict[str, str]:
    """Return the attributes and metadata of an answer of ``/v1/node/ID``, as constraints name them.

    Those whose names no constraint can hold are left out, and values that are no texts or too long.
    """
    found: dict[str, str] = {}
    for kind, values in (("attr", node.get("Attributes")), ("meta", node.get("Meta"))):
        for name, value in values.items() if isinstance(values, Mapping) else ():
            spelled = f"${{{kind}.{name}}}"
            if (
                isinstance(value, str)
                and len(value) <= MAX_CHARACTERS
                and value != NOT_READ
                and NODE_ATTRIBUTE_PATTERN.fullmatch(spelled)
            ):
                found[spelled] = value
    return found
