"""Where jobs may run: the entries ``[clusters.NAME]`` of the settings.

In the environment an entry's setting is ``EDGEYARD_CLUSTERS__NAME__SETTING``; a dash of the name is
an underscore there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from edgeyard.benchmark_api.setting_values import CommaSeparated, PlainUrl, Seconds
from edgeyard.errors import reason_of

EMBEDDED = "embedded"
"""Name of the cluster where the settings name none: this machine."""

VARIABLE = "EDGEYARD_CLUSTERS__"

NAME_PATTERN = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
"""A name has one spelling in the environment, and is a label of metrics as it is."""

MAX_NAME = 63

_OF_ANY = frozenset({"address", "public_url"})


class ClusterSettings(BaseModel):
    """One cluster: this machine, or the Nomad at ``address``."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=False)

    address: PlainUrl | None = Field(
        default=None,
        description="Address of Nomad's API, e.g. http://nomad.example:4646. Without it jobs run "
        "on this machine, the embedded cluster.",
    )
    public_url: PlainUrl | None = Field(
        default=None,
        description="Base of every download and upload URL, as the hosts of the cluster reach it; "
        "default: the bound address.",
    )
    region: str | None = Field(
        default=None, description="Region of Nomad; default: the agent's own."
    )
    namespace: str = Field(default="default", min_length=1, description="Namespace of our jobs.")
    token: SecretStr | None = Field(default=None, description="Nomad ACL token.")
    token_file: Path | None = Field(
        default=None, description="File with the token, so that the settings hold no secret."
    )
    datacenters: CommaSeparated = Field(
        default=("dc1",),
        min_length=1,
        description="Datacenters of jobs, comma-separated; * stands for any characters. Boards of "
        "other hosts are offline, and say so.",
    )
    node_pool: str = Field(
        default="default",
        pattern=r"^[A-Za-z0-9_-]{1,128}$",
        description="Node pool of jobs. Boards of hosts in other pools are offline, and say so.",
    )
    ca_cert: Path | None = Field(
        default=None,
        description="PEM file of the CA of Nomad's certificates; default: the system's CAs.",
    )
    client_cert: Path | None = Field(
        default=None, description="PEM file of our certificate, where Nomad asks for one (mTLS)."
    )
    client_key: Path | None = Field(default=None, description="PEM file of the key of client_cert.")
    tls_server_name: str | None = Field(
        default=None,
        description="Name that Nomad's certificate carries, e.g. server.global.nomad; "
        "default: the host of address.",
    )
    ui_url: PlainUrl | None = Field(
        default=None, description="Where people reach Nomad's UI; default: address."
    )
    device: str = Field(
        default="daiedge/edgedevice",
        pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$",
        description="Vendor and type of the boards' device plugin.",
    )
    connections: int = Field(
        default=8,
        ge=1,
        le=64,
        description="Maximum number of connections to Nomad for calls about jobs.",
    )
    timeout_s: Seconds = Field(
        default=10.0, gt=0, le=300, description="Bound on one call of Nomad's API, s."
    )
    purge_age_s: Seconds = Field(
        default=7 * 86400.0,
        gt=0,
        description="Age at which jobs that have ended are removed from Nomad, s; their benchmarks "
        "stay.",
    )
    cpu_mhz: int | None = Field(
        default=None,
        ge=1,
        description="CPU that a job asks of its host, MHz; default: Nomad's, 100.",
    )
    memory_mib: int | None = Field(
        default=None,
        ge=10,
        description="Memory that a job asks of its host, MiB; default: Nomad's, 300.",
    )
    lost_after_s: int = Field(
        default=600,
        ge=0,
        le=86400,
        description="How long Nomad waits for a host that it does not hear from before it gives up "
        "the run there, s. The task goes on meanwhile and its result is taken. 0: it is given up "
        "as soon as the host's heartbeat is missing.",
    )

    @model_validator(mode="before")
    @classmethod
    def _token_of_file(cls, values: object) -> object:
        if not isinstance(values, Mapping) or values.get("token_file") is None:
            return values
        if values.get("token") is not None:
            raise ValueError("token and token_file are both set: keep token_file")
        path = Path(str(values["token_file"]))
        try:
            return {**values, "token": path.read_text("utf-8").strip()}
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"token_file: {path}: {reason_of(error)}") from error

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        of_nomad = sorted(self.model_fields_set - _OF_ANY)
        if self.address is None and of_nomad:
            raise ValueError(
                f"{', '.join(of_nomad)}: only for a Nomad cluster, which has an address"
            )
        if (self.client_cert is None) != (self.client_key is None):
            raise ValueError("client_cert and client_key belong together")
        return self

    @property
    def kind(self) -> Literal["embedded", "nomad"]:
        """What runs the jobs."""
        return "embedded" if self.address is None else "nomad"


RELOADED = frozenset(
    {
        *("address", "token", "token_file", "ca_cert", "client_cert", "client_key"),
        *("tls_server_name", "ui_url", "connections", "timeout_s"),
    }
)
"""Settings of a cluster that a running server takes up on SIGHUP."""


def from_environment(environ: Mapping[str, str]) -> tuple[dict[str, dict[str, object]], list[str]]:
    """Return the entries that variables state, and the variables that are no setting.

    Args:
        environ: All variables of the process.
    """
    found: dict[str, dict[str, object]] = {}
    unknown = []
    for variable in sorted(environ):
        if not variable.startswith(VARIABLE):
            continue
        name, _, setting = variable.removeprefix(VARIABLE).partition("__")
        if not name or setting.lower() not in ClusterSettings.model_fields:
            unknown.append(variable)
            continue
        entry = found.setdefault(name.lower().replace("_", "-"), {})
        entry[setting.lower()] = environ[variable]
    return found, unknown


def merge(
    of_file: Mapping[str, object], of_environment: Mapping[str, Mapping[str, object]]
) -> dict[str, object]:
    """Return the entries of the file; what the environment states takes precedence."""
    merged: dict[str, object] = {**of_file}
    for name, entry in of_environment.items():
        known = merged.get(name, {})
        if not isinstance(known, Mapping):
            continue  # its mistake is reported
        if entry.keys() & {"token", "token_file"}:
            known = {key: each for key, each in known.items() if key not in ("token", "token_file")}
        merged[name] = {**known, **entry}
    return merged


def check(clusters: Mapping[str, ClusterSettings]) -> None:
    """Check the names of the entries, and that there is one at most.

    Raises:
        ValueError: A name is invalid, or there are two entries.
    """
    for name in clusters:
        if NAME_PATTERN.fullmatch(name) is None or len(name) > MAX_NAME:
            raise ValueError(
                f"{name!r} is no name of a cluster: it has lower-case letters and digits, with "
                f"single dashes between them, up to {MAX_NAME} characters"
            )
    if len(clusters) > 1:
        raise ValueError(
            f"{', '.join(clusters)}: a server has one cluster at present; keep one entry, and run "
            "a server of its own for each of the others"
        )
