"""Where Nomad is and how it is spoken to: what the operator's settings say."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import quote, urlsplit

from edgeyard.errors import ConfigError
from edgeyard.tls import trust_nobody

_NONE_SHOWN = "Nomad requires a client certificate: set client_cert and client_key of its cluster"
_NOT_TAKEN = "Nomad refuses the client certificate: its CA did not sign client_cert of its cluster"
_ALL_POOLS = "all"
"""Built into Nomad: every host is in it."""

_TLS_ALERTS = {
    "certificate required": _NONE_SHOWN,
    "bad certificate": _NOT_TAKEN,
    "unknown ca": _NOT_TAKEN,
    "certificate unknown": _NOT_TAKEN,
    "decrypt error": _NOT_TAKEN,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NomadAccess:
    """One Nomad cluster, seen from one namespace.

    Attributes:
        name: Of the cluster in the settings, whose entry is ``[clusters.NAME]``.
        address: Of the HTTP API, without a slash at the end.
        token: ACL token's secret; None where ACLs are off.
        region: None: the agent's own.
        datacenters: That jobs name; each may contain ``*``.
        node_pool: That jobs name.
        ca_cert: PEM file of the CA of Nomad's certificates; None: the system's CAs.
        client_cert: PEM file of our certificate (mTLS), with ``client_key``.
        tls_server_name: Name that Nomad's certificate must carry, e.g. ``server.global.nomad``;
            None: the address's host.
        ui_url: Where people reach Nomad's UI; None: ``address``.
        device: ``vendor/type`` of the boards' device plugin.
        connections: Most at a time for dispatching and asking of jobs; what boards and events are
            read by is apart.
        timeout_s: Of each call, from sending to the whole answer's next part.
    """

    name: str = "nomad"
    address: str = "http://127.0.0.1:4646"
    token: str | None = field(default=None, repr=False)
    namespace: str = "default"
    region: str | None = None
    datacenters: tuple[str, ...] = ("dc1",)
    node_pool: str = "default"
    ca_cert: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    tls_server_name: str | None = None
    ui_url: str | None = None
    device: str = "daiedge/edgedevice"
    connections: int = 8
    timeout_s: float = 10.0

    def setting(self, name: str) -> str:
        """Return the full name of a setting of the cluster."""
        return f"clusters.{self.name}.{name}"

    def unserved(self, datacenter: str, node_pool: str) -> Literal["", "datacenters", "node_pool"]:
        """Return the setting that keeps jobs from hosts there; "" where jobs may go."""
        patterns = [".*".join(map(re.escape, each.split("*"))) for each in self.datacenters]
        if not any(re.fullmatch(pattern, datacenter) for pattern in patterns):
            return "datacenters"
        return "" if self.node_pool in (node_pool, _ALL_POOLS) else "node_pool"

    def why_unserved(self, datacenter: str, node_pool: str) -> str:
        """Return why no job goes to hosts there, to follow "its host X is"; "" where jobs may."""
        match self.unserved(datacenter, node_pool):
            case "datacenters":
                named, setting = ", ".join(self.datacenters), self.setting("datacenters")
                return f"in datacenter {datacenter}, and jobs go to {named} only: see {setting}"
            case "node_pool":
                setting = self.setting("node_pool")
                return f"in node pool {node_pool}, and jobs go to {self.node_pool}: see {setting}"
            case _:
                return ""

    def tls(self) -> ssl.SSLContext:
        """Return how to check Nomad's certificate, and what to show of our own.

        Raises:
            ConfigError: A file of certificates can't be used.
        """
        if urlsplit(self.address).scheme != "https":
            return trust_nobody()
        try:
            context = ssl.create_default_context(
                cafile=str(self.ca_cert) if self.ca_cert is not None else None
            )
            if self.client_cert is not None:
                context.load_cert_chain(self.client_cert, self.client_key)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise ConfigError([f"nomad TLS files: {error}"]) from error
        return context

    def page_of(self, job_id: str) -> str:
        """Address of the job's page in Nomad's UI."""
        name = quote(f"{job_id}@{self.namespace}", safe="@")
        return f"{self.ui_url or self.address}/ui/jobs/{name}"


def no_answer(error: Exception) -> str:
    """Return why a call was not answered, in words; what TLS says names the setting."""
    text = str(error)
    lowered = text.lower()
    if "certificate verify failed" in lowered:
        why = text.partition("certificate verify failed: ")[2].partition(" (_ssl")[0]
        return (
            f"Nomad's certificate is not trusted ({why or 'unknown reason'}): see "
            "ca_cert and tls_server_name of its cluster"
        )
    for alert, meaning in _TLS_ALERTS.items():
        if f"alert {alert}" in lowered:
            return meaning
    return f"{type(error).__name__}: {text}".rstrip(": ")
