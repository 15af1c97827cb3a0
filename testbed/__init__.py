"""A test bed: a real Nomad cluster on loopback whose hosts have boards."""

from edgeyard.testbed.agent import PLUGIN, Agent
from edgeyard.testbed.cluster import (
    NAMESPACE,
    LoopbackNomad,
    call,
    make,
    secrets_uuid,
    set_up_rights,
)

__all__ = [
    "NAMESPACE",
    "PLUGIN",
    "Agent",
    "LoopbackNomad",
    "call",
    "make",
    "secrets_uuid",
    "set_up_rights",
]
